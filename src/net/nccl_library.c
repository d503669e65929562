/* Opens NCCL for the network of GPUs; see nccl_internal.h. */
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "net/nccl_internal.h"
#include "util/find_nccl.h"
#include "util/settings.h"

static bool find(void *library, const char *name, void *function)
{
    char whole[64];
    snprintf(whole, sizeof(whole), "nccl%s", name);
    void *found = dlsym(library, whole);
    memcpy(function, &found, sizeof(found));
    return found != NULL;
}

ceclResult_t cecl_net_nccl_find(void *library, struct nccl_functions *api)
{
    struct link_map *map;
    const char *missing = NULL,
               *path = dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : "";
#define FIND(name, arguments)                                                                      \
    if (!missing && !find(library, #name, &api->name))                                             \
        missing = "nccl" #name;
    NCCL_FUNCTIONS(FIND)
    FIND(GetErrorString, )
    FIND(GetLastError, )
#undef FIND
    if (missing)
        return cecl_fail(ceclSystemError, "nodes of GPUs need NCCL 2.17 or later: %s lacks %s",
                         path, missing);
    if (api->GetVersion(&api->version) != NCCL_SUCCESS || api->version < NCCL_LEAST_VERSION)
        return cecl_fail(ceclSystemError,
                         "nodes of GPUs need NCCL 2.17 or later: %s has version %d", path,
                         api->version);
    return ceclSuccess;
}

#define OPEN_FLAGS (RTLD_NOW | RTLD_LOCAL)

/* Takes the NCCL that the program has loaded, if there is one. */
static ceclResult_t open_library(struct nccl_functions *api)
{
    void *library = cecl_setting_text(CECL_SET_NCCL_PATH)
                        ? NULL
                        : dlopen(CECL_NCCL_SONAME, OPEN_FLAGS | RTLD_NOLOAD);
    if (library && cecl_is_in_nccls_place(library)) {
        dlclose(library);
        return cecl_fail(ceclInvalidUsage,
                         "nodes of GPUs need NCCL, but cecl's own library is in its place "
                         "(cecl-run): name NCCL by CECL_NCCL_PATH, or lend it by "
                         "ceclCommInitOobNccl");
    }
    if (!library)
        CECL_TRY(cecl_find_nccl(OPEN_FLAGS, "for nodes of GPUs", &library));
    return cecl_net_nccl_find(library, api);
}

/* The library stays open. After a failure the next communicator tries again. */
ceclResult_t cecl_net_nccl_load(const struct nccl_functions **out)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct nccl_functions api;
    static bool is_open;
    pthread_mutex_lock(&lock);
    const ceclResult_t result = is_open ? ceclSuccess : open_library(&api);
    is_open = result == ceclSuccess;
    pthread_mutex_unlock(&lock);
    *out = &api;
    return result;
}
