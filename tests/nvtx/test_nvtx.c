/* CECL_NVTX=1: a tool gets each call with its name. The only argument is the tool's path. */
#include <dlfcn.h>

#include "../with_cmocka.h"

#include "cecl/cecl.h"

static const char *heard;

static ceclComm_t comm;
static int *words, *out;

static void open_comm(const char *setting)
{
    void *memory;
    setenv("CECL_NVTX", setting, 1);
    assert_int_equal(ceclCommInitAll(&comm, 1, NULL), ceclSuccess);
    assert_int_equal(ceclMemAlloc(comm, &memory, 12 * sizeof(int)), ceclSuccess);
    memset(memory, 0, 12 * sizeof(int));
    words = memory;
    out = words + 4;
}

static void close_comm(void)
{
    assert_int_equal(ceclMemFree(comm, words), ceclSuccess);
    assert_int_equal(ceclCommDestroy(comm), ceclSuccess);
}

TEST(a_tool_hears_every_call_by_its_name)
{
    open_comm("1");
    assert_int_equal(ceclAllGather(words, out, 4, ceclInt32, comm, NULL), ceclSuccess);
    assert_int_equal(ceclGroupStart(), ceclSuccess);
    assert_int_equal(ceclAlltoAll(words, out, 4, ceclInt32, comm, NULL), ceclSuccess);
    assert_int_equal(ceclBroadcast(words, out + 4, 4, ceclInt32, 0, comm, NULL), ceclSuccess);
    assert_int_equal(ceclGroupEnd(), ceclSuccess);
    assert_int_equal(ceclAllReduce(words, out, 4, ceclInt32, ceclSum, comm, NULL), ceclSuccess);
    /* A refused call ends its range as well. */
    assert_int_equal(ceclAllGather(NULL, out, 4, ceclInt32, comm, NULL), ceclInvalidArgument);
    close_comm();
    assert_string_equal(heard, "<cecl(ceclMemAlloc)(ceclAllGather)(ceclAlltoAll)(ceclBroadcast)"
                               "(ceclGroupEnd)(ceclAllReduce)(ceclAllGather)");
}

TEST(without_the_setting_it_hears_nothing)
{
    const size_t before = strlen(heard);
    open_comm("0");
    assert_int_equal(ceclAllGather(words, out, 4, ceclInt32, comm, NULL), ceclSuccess);
    close_comm();
    assert_int_equal(strlen(heard), before);
}

int main(int argc, char **argv)
{
    void *tool = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
    heard = tool ? dlsym(tool, "nvtx_heard") : NULL;
    if (!heard || setenv("NVTX_INJECTION64_PATH", argv[1], 1) != 0)
        return 2;
    return tests_run(NULL, NULL);
}
