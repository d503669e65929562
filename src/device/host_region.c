/* Memory that the program allocated itself, on the host device. A shared mapping of a file can be shared while this
 * process holds the file open; all other memory is private. A use of memory that is not there would end the process by
 * a signal, so each call checks the memory that it uses. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "device/host.h"
#include "util/fds.h"
#include "util/siphash.h"

/* ---- one piece of memory */

/* All lines of one shared mapping have the same id, even if the kernel has split the mapping: the id depends on the
 * address at which the file's first byte would lie. Each line of other memory has an id of its own. */
static uint64_t id_of(const struct host_mapping *mapping)
{
    static const uint8_t key[16] = {0}; /* ids only have to differ, so no secret is needed */
    const uint64_t facts[] = {(uint64_t)mapping->major << 32 | mapping->minor, mapping->inode,
                              mapping->start - mapping->offset, mapping->shared,
                              mapping->shared ? 0 : mapping->start};
    const uint64_t id = cecl_siphash(key, facts, sizeof(facts));
    return id ? id : 1;
}

/* A whole shared mapping, or a line (of /proc/self/maps) of other memory. A shared mapping may have holes: unmapped
 * ranges, or memory without access rights. Other memory between its lines ends the run. */
struct run {
    uint64_t at;               /* an address in the mapping */
    struct host_mapping first; /* the mapping's first line */
    uint64_t end;              /* 0: nothing is mapped at `at` */
    bool mapped, readable;     /* of the byte at `at` */
};

static bool take_for_run(void *context, const struct host_mapping *mapping)
{
    struct run *run = context;
    const bool holds = mapping->start <= run->at && run->at < mapping->end,
               goes_on = mapping->shared && run->end > 0 && id_of(&run->first) == id_of(mapping),
               is_hole = !mapping->readable && !mapping->writable && !holds;
    if (!goes_on && is_hole)
        return true;
    if (!goes_on && (run->end > run->at || mapping->start > run->at))
        return false;
    if (!goes_on)
        run->first = *mapping;
    run->mapped = run->mapped || holds;
    run->readable = run->readable || (holds && mapping->readable);
    run->end = mapping->end;
    return true;
}

static ceclResult_t find_run(uint64_t at, struct run *run)
{
    *run = (struct run){.at = at};
    CECL_TRY(host_maps_read(0, take_for_run, run)); /* from 0: the mapping may begin below `at` */
    run->end = run->mapped ? run->end : 0;
    return ceclSuccess;
}

#define WRITE_SEALS (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)

/* Whether peers may map a file for reading and writing. A file sealed against writing may have an older mapping for
 * writing, but allows no new one. memfd_secret counts as private, because its pages are locked memory of each process
 * that maps them. */
static bool may_be_mapped(int fd)
{
    struct statfs system;
    const int seals = fcntl(fd, F_GET_SEALS); /* -1: files of this kind have none */
    return (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR && (seals < 0 || !(seals & WRITE_SEALS)) &&
           (fstatfs(fd, &system) != 0 || system.f_type != SECRETMEM_MAGIC);
}

/* Whether peers can map the mapping's file through `fd`. On file systems that give a file another
 * device number in stat than in maps (btrfs), no descriptor matches. */
static bool opens(int fd, const struct host_mapping *mapping)
{
    struct stat info;
    return fstat(fd, &info) == 0 && info.st_ino == mapping->inode &&
           major(info.st_dev) == mapping->major && minor(info.st_dev) == mapping->minor &&
           may_be_mapped(fd);
}

/* A descriptor of this process for the mapping's file; *fd is -1 if there is none. */
static ceclResult_t descriptor_of(const struct host_mapping *mapping, int *fd)
{
    const struct dirent *entry;
    *fd = -1;
    if (!mapping->shared || mapping->inode == 0)
        return ceclSuccess;
    DIR *folder = opendir("/proc/self/fd");
    if (!folder)
        return cecl_fail(ceclSystemError, "opendir /proc/self/fd: %s", strerror(errno));
    while (*fd < 0 && (entry = readdir(folder)))
        if (entry->d_name[0] != '.' && opens(atoi(entry->d_name), mapping))
            *fd = atoi(entry->d_name);
    closedir(folder);
    return ceclSuccess;
}

ceclResult_t host_region_find(struct cecl_device *dev, const void *ptr, struct cecl_region *region)
{
    struct run run;
    int fd;
    CECL_TRY(find_run((uintptr_t)ptr, &run));
    if (run.end == 0 || !run.readable)
        return cecl_fail(ceclInvalidArgument,
                         "buffer %p: no memory of this process that can be read", ptr);
    CECL_TRY(descriptor_of(&run.first, &fd));
    *region = (struct cecl_region){.base = run.first.start,
                                   .bytes = run.end - run.first.start,
                                   .home = run.first.start,
                                   .home_bytes = run.end - run.first.start,
                                   .id = id_of(&run.first),
                                   .kind = fd < 0 ? CECL_REGION_NONE : CECL_REGION_FILE};
    return ceclSuccess;
}

/* ---- what a call uses */

/* What is known so far of the bytes that a call uses. */
struct survey {
    const struct cecl_use *use;
    uint64_t at; /* the used bytes below this address are there */
    /* the id of the used bytes below `at`; 0: there are none, or they belong to several mappings */
    uint64_t id;
    const char *trouble;
};

/* Why a call cannot use the part of a mapping that ends at `end`; NULL: it can. If a file is mapped, reads the part's
 * last byte by a system call, which fails if the file is shorter. */
static const char *trouble_of(const struct cecl_use *use, const struct host_mapping *mapping,
                              uint64_t end)
{
    if (!mapping->readable)
        return "no memory of this process that can be read";
    if (use->written && !mapping->writable)
        return "no memory of this process that can be written";
    if (mapping->inode != 0 && !host_ends_readable((const void *)(uintptr_t)(end - 1), 1))
        return "the file that is mapped here is too short";
    return NULL;
}

/* Adds to the survey what a mapping says of the used bytes. Returns whether the survey needs further mappings. */
static bool look_on(struct survey *survey, const struct host_mapping *mapping)
{
    const uint64_t end = mapping->end < survey->use->high ? mapping->end : survey->use->high;
    if (survey->at >= survey->use->high || survey->trouble)
        return false;
    if (mapping->end <= survey->at)
        return true;
    survey->trouble = mapping->start > survey->at ? "no memory of this process"
                                                  : trouble_of(survey->use, mapping, end);
    if (survey->trouble)
        return false;
    const uint64_t id = id_of(mapping);
    survey->id = survey->at == survey->use->low || survey->id == id ? id : 0;
    survey->at = end;
    return end < survey->use->high;
}

/* All that one reading of /proc/self/maps finds for a call. */
struct surveys {
    struct survey one[CECL_USES];
    size_t count;
};

static bool take_for_surveys(void *context, const struct host_mapping *mapping)
{
    struct surveys *surveys = context;
    bool more = false;
    for (size_t i = 0; i < surveys->count; i++)
        more = look_on(&surveys->one[i], mapping) || more;
    return more;
}

static ceclResult_t survey(const struct cecl_use *uses, size_t count, struct surveys *surveys)
{
    uint64_t low = UINT64_MAX;
    surveys->count = count;
    for (size_t i = 0; i < count; i++) {
        surveys->one[i] = (struct survey){.use = &uses[i], .at = uses[i].low};
        low = uses[i].low < low ? uses[i].low : low;
    }
    CECL_TRY(host_maps_read(low, take_for_surveys, surveys));
    for (size_t i = 0; i < count; i++) {
        const struct survey *one = &surveys->one[i];
        const struct cecl_use *use = one->use;
        const uint64_t begin = (uintptr_t)use->buffer;
        if (one->at < use->high)
            return cecl_fail(ceclInvalidArgument, "%s %p: %s, at byte %" PRIu64 " of %" PRIu64,
                             use->name, use->buffer,
                             one->trouble ? one->trouble : "no memory of this process",
                             one->at - begin, use->high - begin);
    }
    return ceclSuccess;
}

ceclResult_t host_check_uses(struct cecl_device *dev, const struct cecl_use *uses, size_t count)
{
    struct surveys surveys;
    const ceclResult_t result = survey(uses, count, &surveys);
    /* ceclSystemError: the check itself failed, perhaps for lack of a descriptor; then the memory counts as usable */
    return result == ceclSystemError ? ceclSuccess : result;
}

ceclResult_t host_region_id(struct cecl_device *dev, const void *ptr, const struct cecl_use *use,
                            uint64_t *id)
{
    struct surveys surveys;
    struct run run;
    if (use) {
        CECL_TRY(survey(use, 1, &surveys));
        *id = surveys.one[0].id;
        return ceclSuccess;
    }
    CECL_TRY(find_run((uintptr_t)ptr, &run));
    *id = run.end == 0 ? 0 : id_of(&run.first);
    return ceclSuccess;
}

/* ---- sharing */

static ceclResult_t no_longer(const struct cecl_region *region)
{
    return cecl_fail(ceclInvalidUsage,
                     "memory at %#llx: private, unmapped since it was found, or its file was "
                     "closed; a shared mapping of an open file is expected",
                     (unsigned long long)region->base);
}

ceclResult_t host_region_export(struct cecl_device *dev, const struct cecl_region *region,
                                struct cecl_region_export *exported)
{
    struct run run;
    int fd, copy = -1;
    CECL_TRY(find_run(region->base, &run));
    if (region->kind != CECL_REGION_FILE || run.end < region->base + region->bytes ||
        id_of(&run.first) != region->id)
        return no_longer(region);
    /* Between descriptor_of and fcntl another thread may close the descriptor, and open another file under the same
     * number. The loop then repeats both calls. */
    do {
        if (copy >= 0)
            cecl_fds_close(copy);
        CECL_TRY(descriptor_of(&run.first, &fd));
        copy = fd < 0 ? -1 : CECL_FD(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    } while (fd >= 0 && (copy < 0 ? errno == EBADF : !opens(copy, &run.first)));
    if (fd < 0)
        return no_longer(region);
    if (copy < 0)
        return cecl_fail(ceclSystemError, "no descriptor to share memory with: %s",
                         strerror(errno));
    *exported =
        (struct cecl_region_export){.kind = CECL_REGION_FILE,
                                    .ordinal = dev->ordinal,
                                    .process = cecl_fork_process(),
                                    .base = region->base,
                                    .bytes = region->bytes,
                                    .id = region->id,
                                    .offset = run.first.offset + region->base - run.first.start,
                                    .fd = copy};
    return ceclSuccess;
}

ceclResult_t host_region_import(struct cecl_device *dev, const struct cecl_region_export *exported,
                                void *at, void **addr)
{
    if (exported->kind != CECL_REGION_FILE)
        return cecl_fail(ceclInvalidUsage,
                         "a peer shares memory of kind %u; the host device expects kind %d, a file",
                         exported->kind, CECL_REGION_FILE);
    CECL_TRY(host_map(at, exported->bytes, exported->fd, (int64_t)exported->offset, " of a peer"));
    *addr = at;
    return ceclSuccess;
}

/* Nothing to do: region_import maps memory with its access rights. */
ceclResult_t host_region_access(struct cecl_device *dev, void *addr, size_t bytes)
{
    return ceclSuccess;
}

void host_region_close(struct cecl_device *dev, const struct cecl_region_export *exported,
                       void *addr)
{
    host_mem_unmap(dev, addr, exported->bytes);
}
