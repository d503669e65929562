/* Looks for NCCL's library. CECL_NCCL_FOLDERS lists the folders in which systems keep it, separated by
 * colons; the build sets it. */
#include "util/find_nccl.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/file.h"
#include "util/log.h"
#include "util/settings.h"

#define WHEEL "nvidia/nccl/lib/" CECL_NCCL_SONAME /* relative to site-packages */
#define PARENTS 5 /* how many folders above a library are searched for the wheel */

static const char ours[] = "this is cecl's library, not NCCL";

bool cecl_is_in_nccls_place(void *handle)
{
    return dlsym(handle, "cecl_in_place_of_nccl") != NULL;
}

const char *cecl_name_in(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Returns NULL if `name` is not NCCL; `*why` says why not. */
static void *open_nccl(const char *name, int flags, const char **why)
{
    *why = strchr(name, '/') ? cecl_file_other_kind(name) : NULL;
    if (*why)
        return NULL;
    void *handle = dlopen(name, flags);
    if (!handle) {
        *why = dlerror();
        return NULL;
    }
    const bool is_ours = cecl_is_in_nccls_place(handle);
    if (!is_ours && dlsym(handle, "ncclGetVersion"))
        return handle;
    *why = is_ours ? ours : "this is not NCCL";
    dlclose(handle);
    return NULL;
}

static void *try_path(const char *path, int flags)
{
    const char *why;
    if (access(path, R_OK) != 0)
        return NULL;
    void *handle = open_nccl(path, flags, &why);
    if (!handle && why != ours) /* no warning: cecl's own library is often found */
        cecl_log(CECL_LOG_WARN, -1, "%s is not used: %s", path, why);
    return handle;
}

static ceclResult_t open_setting(const char *setting, int flags, void **handle)
{
    char path[PATH_MAX];
    const char *why = cecl_file_other_kind(setting); /* a pipe has no useful realpath */
    if (!why && !realpath(setting, path))
        why = strerror(errno);
    *handle = why ? NULL : open_nccl(path, flags, &why);
    return *handle ? ceclSuccess
                   : cecl_fail(ceclSystemError, "CECL_NCCL_PATH=%s: %s", setting, why);
}

/* Tries `folders`, separated by colons. Skips empty and relative ones. */
static void *try_folders(const char *folders, int flags)
{
    char path[PATH_MAX];
    void *handle = NULL;
    for (const char *next = folders; *next && !handle; next += *next == ':') {
        const int length = (int)strcspn(next, ":");
        if (*next == '/' &&
            snprintf(path, sizeof(path), "%.*s/" CECL_NCCL_SONAME, length, next) < PATH_MAX)
            handle = try_path(path, flags);
        next += length;
    }
    return handle;
}

/* ---- NCCL's wheel, which PyTorch installs: found from the path of a library that is loaded */

struct wheel {
    const char *beside; /* only libraries whose names begin with this are considered */
    char path[PATH_MAX];
};

/* For dl_iterate_phdr: returns 1 if the wheel lies beside the library that `info` describes. */
static int look_beside(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    struct wheel *wheel = argument;
    char folder[PATH_MAX];
    if (info->dlpi_name[0] != '/' ||
        strncmp(cecl_name_in(info->dlpi_name), wheel->beside, strlen(wheel->beside)) != 0)
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

/* Opens the file only after the walk through the libraries, because the loader is locked during the walk. */
static void *try_beside(const char *libraries, int flags)
{
    struct wheel wheel = {.beside = libraries};
    return dl_iterate_phdr(look_beside, &wheel) == 1 ? try_path(wheel.path, flags) : NULL;
}

ceclResult_t cecl_find_nccl(int flags, const char *purpose, void **handle)
{
    const char *setting = cecl_setting_text(CECL_SET_NCCL_PATH), *why;
    const char *folders = getenv("LD_LIBRARY_PATH");
    if (setting)
        return open_setting(setting, flags, handle);
    if (!folders)
        folders = "";
    /* first beside PyTorch's libraries: other libraries may lie in another folder of packages, with another NCCL */
    if (!(*handle = try_beside("libtorch_cuda", flags)) && !(*handle = try_beside("", flags)) &&
        !(*handle = try_folders(folders, flags)) &&
        !(*handle = try_folders(CECL_NCCL_FOLDERS, flags)) &&
        !(*handle = open_nccl(CECL_NCCL_SONAME, flags, &why)))
        return cecl_fail(ceclSystemError,
                         "no NCCL was found %s. CECL_NCCL_PATH may name it. Looked for " WHEEL
                         " beside the libraries of this process, and for " CECL_NCCL_SONAME
                         " in %s and in LD_LIBRARY_PATH (%s)",
                         purpose, CECL_NCCL_FOLDERS, folders);
    return ceclSuccess;
}
