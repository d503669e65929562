#include "census.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../open_descriptors.h"
#include "../threads_alive.h"

#define WAITS 3000 /* waits of 1 ms each */
/* Sanitizers make private mappings that are as large as a pool. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS_PRIVATE false
#else
#define COUNTS_PRIVATE true
#endif
/* Larger than a thread's stack and than malloc's mappings, smaller than a pool. */
#define LARGE_BYTES (96ul << 20)

/* Whether CUDA made the mapping: it reserves ranges of addresses without access rights, and maps into them. The number of
 * these mappings varies, so they do not count. */
static bool is_of_cuda(const struct census_mapping *m)
{
    const char *device = getenv("CECL_TEST_DEVICE");
    return device && strcmp(device, "cuda") == 0 && !m->file[0] && strcmp(m->rights, "---p") == 0;
}

static bool counts(const struct census_mapping *m)
{
    if (m->rights[3] == 's')
        return true;
    return COUNTS_PRIVATE && m->to - m->from >= LARGE_BYTES && !is_of_cuda(m);
}

static void list_mappings(struct census *out)
{
    char line[512];
    FILE *file = fopen("/proc/self/maps", "r");
    out->mappings = 0;
    while (file && fgets(line, sizeof(line), file)) {
        struct census_mapping m = {.file = ""};
        if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %39s", &m.from, &m.to, m.rights, m.file) < 3 ||
            !counts(&m))
            continue;
        if (out->mappings < CENSUS_MAPPINGS)
            out->list[out->mappings] = m;
        out->mappings++;
    }
    if (file)
        fclose(file);
}

void census_take(struct census *out)
{
    out->descriptors = open_descriptors();
    for (int fd = 0; fd < CENSUS_DESCRIPTORS; fd++)
        out->is_open[fd] = fcntl(fd, F_GETFD) >= 0;
    out->threads = threads_alive();
    list_mappings(out);
}

static bool is_new(const struct census *start, const struct census *left, int fd)
{
    return left->is_open[fd] && !start->is_open[fd];
}

bool census_is_back(const struct census *start, struct census *left)
{
    for (int i = 0; i < WAITS; i++) {
        census_take(left);
        if (left->descriptors <= start->descriptors && left->threads <= start->threads &&
            left->mappings <= start->mappings)
            return true;
        usleep(1000);
    }
    return false;
}

static int listed(const struct census *census)
{
    return census->mappings < CENSUS_MAPPINGS ? census->mappings : CENSUS_MAPPINGS;
}

static bool was_there(const struct census *start, const struct census_mapping *m)
{
    for (int i = 0; i < listed(start); i++) {
        if (start->list[i].from == m->from && start->list[i].to == m->to)
            return true;
    }
    return false;
}

/* Appends as much of the text as fits. */
__attribute__((format(printf, 3, 4))) static void append(char *words, size_t bytes,
                                                         const char *format, ...)
{
    const size_t length = strlen(words);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words + length, bytes - length, format, arguments);
    va_end(arguments);
}

/* Says what a descriptor refers to, for example "socket:[4711]". */
static void describe_descriptor(int fd, char *words, size_t bytes)
{
    char path[40], target[80] = "";
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (readlink(path, target, sizeof(target) - 1) < 0)
        snprintf(target, sizeof(target), "nothing");
    append(words, bytes, " %d %s;", fd, target);
}

void census_describe(const struct census *start, const struct census *left, char *words,
                     size_t bytes)
{
    char names[256];
    threads_name(names, sizeof(names));
    snprintf(words, bytes,
             "left are %d descriptors (%d before), %d threads (%d), %d large or shared mappings "
             "(%d); the threads are %s; new mappings:",
             left->descriptors, start->descriptors, left->threads, start->threads, left->mappings,
             start->mappings, names);
    for (int i = 0; i < listed(left); i++) {
        const struct census_mapping *m = &left->list[i];
        if (!was_there(start, m))
            append(words, bytes, " %lx-%lx %s %s;", m->from, m->to, m->rights, m->file);
    }
    append(words, bytes, " new descriptors:");
    for (int fd = 0; fd < CENSUS_DESCRIPTORS; fd++)
        if (is_new(start, left, fd))
            describe_descriptor(fd, words, bytes);
}
