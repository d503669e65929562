/* Finds the real NCCL and opens it. The loader cannot find it by name, because this library has the
 * same name. RTLD_NEXT does not reach libraries that a program's own libraries would have
 * loaded. */
#include "nccl/real.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nccl/abi.h"
#include "util/log.h"
#include "util/settings.h"

#define SONAME "libnccl.so.2"
#define WHEEL "nvidia/nccl/lib/" SONAME /* below the folder of Python's packages */
#define PARENTS 5 /* how many folders above a library are searched for the wheel */
#define OTHERS 8  /* how many libraries with NCCL's name are looked at */

/* Distinguishes this library and its copies from NCCL. Exported, and read only through dlsym. */
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

/* RTLD_DEEPBIND keeps NCCL's calls of its own functions in NCCL. With a replaced malloc it cannot
 * be used, because NCCL would free memory of the replacement by libc. Then such calls come here,
 * and cecl_nccl_real_has tells them from the program's. */
static int open_flags(void)
{
    return RTLD_NOW | RTLD_LOCAL | (malloc_is_replaced() ? 0 : RTLD_DEEPBIND);
}

static const char ours[] = "this is cecl's library, not NCCL";

static bool is_ours(void *handle)
{
    return dlsym(handle, "cecl_in_place_of_nccl") != NULL;
}

/* Opens the absolute `path`. Returns NULL if it is not NCCL; `*why` says why not. */
static void *open_nccl(const char *path, const char **why)
{
    void *handle = dlopen(path, open_flags());
    if (!handle) {
        *why = dlerror();
        return NULL;
    }
    if (!is_ours(handle) && dlsym(handle, "ncclGetVersion"))
        return handle;
    *why = is_ours(handle) ? ours : "this is not NCCL";
    dlclose(handle);
    return NULL;
}

static bool try_path(struct cecl_nccl_real *real, const char *path)
{
    const char *why;
    if (access(path, R_OK) != 0)
        return false;
    real->handle = open_nccl(path, &why);
    if (!real->handle && why != ours) /* finding this library itself is expected */
        cecl_log(CECL_LOG_WARN, -1, "%s is not used: %s", path, why);
    return real->handle != NULL;
}

static ceclResult_t open_setting(struct cecl_nccl_real *real, const char *setting)
{
    char path[PATH_MAX];
    const char *why;
    if (!realpath(setting, path))
        return cecl_fail(ceclSystemError, "CECL_NCCL_PATH=%s: %s", setting, strerror(errno));
    real->handle = open_nccl(path, &why);
    return real->handle ? ceclSuccess
                        : cecl_fail(ceclSystemError, "CECL_NCCL_PATH=%s: %s", setting, why);
}

/* Tries `folders`, separated by colons. Empty and relative ones are left out. */
static bool try_folders(struct cecl_nccl_real *real, const char *folders)
{
    char path[PATH_MAX];
    for (const char *next = folders; *next; next += *next == ':') {
        const int length = (int)strcspn(next, ":");
        if (*next == '/' && snprintf(path, sizeof(path), "%.*s/" SONAME, length, next) < PATH_MAX &&
            try_path(real, path))
            return true;
        next += length;
    }
    return false;
}

/* ---- the wheel's NCCL, beside a loaded library */

struct wheel {
    const char *beside; /* the beginning of the names of libraries that are looked at */
    char path[PATH_MAX];
};

static const char *name_in(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* For dl_iterate_phdr: returns 1 when a wheel lies beside this library. */
static int look_beside(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    struct wheel *wheel = argument;
    char folder[PATH_MAX];
    if (info->dlpi_name[0] != '/' ||
        strncmp(name_in(info->dlpi_name), wheel->beside, strlen(wheel->beside)) != 0)
        return 0;
    snprintf(folder, sizeof(folder), "%s", info->dlpi_name);
    for (int up = 0; up < PARENTS; up++) {
        char *slash = strrchr(folder, '/');
        if (!slash)
            return 0;
        *slash = '\0';
        if (snprintf(wheel->path, PATH_MAX, "%s/" WHEEL, folder) < PATH_MAX &&
            access(wheel->path, R_OK) == 0)
            return 1;
    }
    return 0;
}

/* The file is opened after the walk through the libraries, because the loader is locked during the
 * walk. */
static bool try_beside(struct cecl_nccl_real *real, const char *libraries)
{
    struct wheel wheel = {.beside = libraries};
    return dl_iterate_phdr(look_beside, &wheel) == 1 && try_path(real, wheel.path);
}

/* PyTorch's libraries come first, because another package may lie in another folder of packages. */
static bool try_wheels(struct cecl_nccl_real *real)
{
    return try_beside(real, "libtorch_cuda") || try_beside(real, "");
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
    const char *setting = cecl_setting_text(CECL_SET_NCCL_PATH);
    const char *folders = getenv("LD_LIBRARY_PATH");
    if (!folders)
        folders = "";
    if (setting)
        CECL_TRY(open_setting(real, setting));
    else if (!try_wheels(real) && !try_folders(real, folders) &&
             !try_folders(real, CECL_NCCL_FOLDERS))
        return cecl_fail(
            ceclSystemError,
            "no NCCL was found to pass calls to. CECL_NCCL_PATH may name it. Looked for "
            "nvidia/nccl/lib/" SONAME " beside the libraries of this process, and for " SONAME
            " in %s and in LD_LIBRARY_PATH (%s)",
            CECL_NCCL_FOLDERS, folders);
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
    if (strncmp(name_in(info->dlpi_name), "libnccl.so", strlen("libnccl.so")) == 0)
        snprintf(named->path[named->count++], PATH_MAX, "%s", info->dlpi_name);
    return named->count == OTHERS;
}

static bool is_other(const struct cecl_nccl_real *real, const char *path)
{
    void *handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    const bool is = handle && handle != real->handle && !is_ours(handle);
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
