/* A program may close libcecl.so (the path is this program's only argument) while the library's threads run. */
#include <dlfcn.h>

#include "../with_cmocka.h"

#include "cecl/cecl.h"

static const char *path;

static void *find(void *library, const char *name)
{
    void *symbol = dlsym(library, name);
    assert_non_null(symbol);
    return symbol;
}

TEST(threads_go_on_in_a_library_that_was_closed)
{
    ceclResult_t (*get_id)(ceclUniqueId *), (*join)(ceclComm_t *, int, ceclUniqueId, int),
        (*destroy)(ceclComm_t);
    ceclUniqueId id;
    ceclComm_t before, after;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    *(void **)&get_id = find(library, "ceclGetUniqueId");
    *(void **)&join = find(library, "ceclCommInitRank");
    *(void **)&destroy = find(library, "ceclCommDestroy");
    assert_int_equal(get_id(&id), ceclSuccess);
    assert_int_equal(join(&before, 1, id, 0), ceclSuccess);
    assert_int_equal(get_id(&id), ceclSuccess);

    assert_int_equal(dlclose(library), 0);
    library = dlopen(path, RTLD_NOW | RTLD_NOLOAD); /* NULL: it was unloaded */
    assert_non_null(library);
    assert_int_equal(dlclose(library), 0);
    assert_int_equal(join(&after, 1, id, 0), ceclSuccess); /* the id's thread still answers */
    assert_int_equal(destroy(after), ceclSuccess);
    assert_int_equal(destroy(before), ceclSuccess);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    path = argv[1];
    return tests_run(NULL, NULL);
}
