/* Opens NCCL's library; see net.h. */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "net/net.h"
#include "util/find_nccl.h"
#include "util/settings.h"

#define OPEN_FLAGS (RTLD_NOW | RTLD_LOCAL)
#define NEEDED "calls over several hosts need NCCL 2.17 or later"

static bool find(void *library, const char *name, void *function)
{
    char whole[64];
    snprintf(whole, sizeof(whole), "nccl%s", name);
    void *found = dlsym(library, whole);
    memcpy(function, &found, sizeof(found));
    return found != NULL;
}

static ceclResult_t find_all(void *library, struct nccl *nccl)
{
    struct link_map *map;
    const char *missing = NULL,
               *path = dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : "";
#define FIND(name, arguments) \
    if (!missing && !find(library, #name, &nccl->name)) \
        missing = "nccl" #name;
    NCCL_FUNCTIONS(FIND)
    FIND(GetErrorString, )
    FIND(GetLastError, )
#undef FIND
    if (missing)
        return cecl_fail(ceclSystemError, NEEDED ": %s lacks %s", path, missing);
    if (nccl->GetVersion(&nccl->version) != NCCL_SUCCESS || nccl->version < NCCL_LEAST_VERSION)
        return cecl_fail(ceclSystemError, NEEDED ": %s has version %d", path, nccl->version);
    /* the tests' stand-in has this symbol; it is accepted only if CECL_NCCL_PATH names it */
    nccl->on_host = cecl_setting_text(CECL_SET_NCCL_PATH) &&
                    dlsym(library, "cecl_nccl_works_on_host_memory") != NULL;
    return ceclSuccess;
}

/* Opens the NCCL that is loaded. If there is none but cecl's, or if CECL_NCCL_PATH is set, searches for NCCL. */
static ceclResult_t open_library(struct nccl *nccl)
{
    void *library = cecl_setting_text(CECL_SET_NCCL_PATH)
                        ? NULL
                        : dlopen(CECL_NCCL_SONAME, OPEN_FLAGS | RTLD_NOLOAD);
    if (library && cecl_is_in_nccls_place(library)) {
        dlclose(library);
        library = NULL;
    }
    if (!library)
        CECL_TRY(cecl_find_nccl(OPEN_FLAGS, "to carry calls over several hosts", &library));
    const ceclResult_t result = find_all(library, nccl);
    if (result != ceclSuccess)
        dlclose(library);
    return result;
}

ceclResult_t cecl_net_load(const struct nccl **out)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct nccl nccl;
    static bool is_open;
    pthread_mutex_lock(&lock);
    const ceclResult_t result = is_open ? ceclSuccess : open_library(&nccl);
    is_open = result == ceclSuccess;
    pthread_mutex_unlock(&lock);
    *out = &nccl;
    return result;
}
