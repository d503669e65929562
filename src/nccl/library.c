/* See library.h. */
#include "nccl/library.h"

#include <dlfcn.h>
#include <pthread.h>

#define STRING_OF(x) #x
#define STRING(x) STRING_OF(x)
#define FILE_NAME "libcecl.so." STRING(CECL_MAJOR) "." STRING(CECL_MINOR)

static struct cecl_nccl_library library;
static ceclResult_t opened;
static char why[CECL_MESSAGE_BYTES];

static ceclResult_t find(void *handle, const char *name, void **found)
{
    *found = dlsym(handle, name);
    return *found ? ceclSuccess : cecl_fail(ceclSystemError, FILE_NAME ": %s", dlerror());
}

/* this library's RUNPATH says where dlopen finds libcecl.so */
static ceclResult_t open_library(void)
{
    void *handle = dlopen(FILE_NAME, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return cecl_fail(ceclSystemError, "%s", dlerror());
#define CALL(name) CECL_TRY(find(handle, #name, (void **)&library.name));
    CECL_NCCL_LIBRARY_CALLS(CALL)
#undef CALL
    return ceclSuccess;
}

static void open_once(void)
{
    opened = open_library();
    if (opened != ceclSuccess)
        cecl_keep_message(why);
}

const struct cecl_nccl_library *cecl_nccl_library(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_once);
    if (opened == ceclSuccess)
        return &library;
    (void)!cecl_fail_with(opened, why);
    return NULL;
}
