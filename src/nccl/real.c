/* Opens the real NCCL. It is opened by its path, because this library has the same name. RTLD_NEXT would not find an
 * NCCL that only a library of the program loads, for example a Python module. */
#include "nccl/process.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "nccl/abi.h"
#include "util/find_nccl.h"

#define OTHERS 8 /* the most libraries named libnccl.so* that are looked at */

/* dlsym finds this symbol in this library and its copies, but not in NCCL. */
CECL_NCCL_API extern const char cecl_in_place_of_nccl;
const char cecl_in_place_of_nccl = 1;

/* Whether an allocator or a sanitizer has replaced malloc in this process. */
static bool malloc_is_replaced(void)
{
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    const void *malloc_of_libc = libc ? dlsym(libc, "malloc") : NULL;
    if (libc)
        dlclose(libc);
    return dlsym(RTLD_DEFAULT, "malloc") != malloc_of_libc;
}

/* With RTLD_DEEPBIND, NCCL's calls of its own functions stay in NCCL. The flag cannot be used with a replaced malloc,
 * because libc would then free memory that the replacement has allocated. Without RTLD_DEEPBIND, NCCL's own calls come
 * to this library, and cecl_nccl_is_own tells them from the program's calls. */
static int open_flags(void)
{
    return RTLD_NOW | RTLD_LOCAL | (malloc_is_replaced() ? 0 : RTLD_DEEPBIND);
}

/* ---- what was opened */

static int find_range(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    struct cecl_nccl_real *real = argument;
    if (strcmp(info->dlpi_name, real->path) != 0)
        return 0;
    real->begin = UINTPTR_MAX;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        const uintptr_t begin = info->dlpi_addr + part->p_vaddr;
        if (part->p_type != PT_LOAD)
            continue;
        real->begin = begin < real->begin ? begin : real->begin;
        real->end = begin + part->p_memsz > real->end ? begin + part->p_memsz : real->end;
    }
    return 1;
}

static void describe(struct cecl_nccl_real *real)
{
    struct link_map *map;
    ncclResult_t (*get_version)(int *) = NULL;
    *(void **)&get_version = dlsym(real->handle, "ncclGetVersion");
    if (get_version(&real->version) != ceclSuccess)
        real->version = 0;
    if (dlinfo(real->handle, RTLD_DI_LINKMAP, &map) == 0)
        snprintf(real->path, sizeof(real->path), "%s", map->l_name);
    dl_iterate_phdr(find_range, real);
}

ceclResult_t cecl_nccl_real_open(struct cecl_nccl_real *real)
{
    CECL_TRY(cecl_find_nccl(open_flags(), "to pass calls to", &real->handle));
    describe(real);
    return ceclSuccess;
}

/* ---- another NCCL in this process */

struct named {
    int count;
    char path[OTHERS][PATH_MAX];
};

static int note_named(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    struct named *named = argument;
    if (strncmp(cecl_name_in(info->dlpi_name), "libnccl.so", strlen("libnccl.so")) == 0)
        snprintf(named->path[named->count++], PATH_MAX, "%s", info->dlpi_name);
    return named->count == OTHERS;
}

static bool is_other(const struct cecl_nccl_real *real, const char *path)
{
    void *handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    const bool is = handle && handle != real->handle && !cecl_is_in_nccls_place(handle);
    if (handle)
        dlclose(handle);
    return is;
}

bool cecl_nccl_real_other(const struct cecl_nccl_real *real, char path[PATH_MAX])
{
    struct named named = {0};
    dl_iterate_phdr(note_named, &named);
    for (int i = 0; i < named.count; i++) {
        if (is_other(real, named.path[i])) {
            snprintf(path, PATH_MAX, "%s", named.path[i]);
            return true;
        }
    }
    return false;
}
