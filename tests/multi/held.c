#include "held.h"

#include <malloc.h>

#include "../open_descriptors.h"
#include "../threads_alive.h"
#include "memory.h"
#include "multi.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

/* Allowed growth. spare_beside_others: beside GPU drivers or sanitizers, which have mappings, threads and memory of
 * their own. In a long test a leak of one mapping per communicator exceeds both. */
static const struct held spare = {.mappings = 10, .resident_mib = 4};
static const struct held spare_beside_others = {
    .descriptors = 2, .threads = 4, .mappings = 200, .resident_mib = 128, .gpu_mib = 64};

static int count_descriptors(void)
{
    const int count = open_descriptors();
    assert_true(count >= 0);
    return count;
}

static int count_mappings(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    int lines = 0, byte;
    assert_non_null(file);
    while ((byte = fgetc(file)) != EOF)
        lines += byte == '\n';
    fclose(file);
    return lines;
}

/* Waits, because the library's threads close descriptors a little after peers drop memory. what: the name of the count. */
static void no_growth(int (*count)(void), int before, int slack, const char *what)
{
    for (int i = 0; count() > before + slack && i < 500; i++)
        usleep(10000);
    if (count() > before + slack)
        fail_msg("rank %d: %d %s, %d before", multi_rank, count(), what, before);
}

static int count_threads(void)
{
    const int count = threads_alive();
    assert_true(count > 0);
    return count;
}

/* 0 under sanitizers, which delay the release of freed memory. */
static int count_resident_mib(void)
{
    long pages = 0;
    malloc_trim(0);
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    const int found = fscanf(file, "%*s %ld", &pages);
    fclose(file);
    assert_int_equal(found, 1);
    return SANITIZED ? 0 : (int)(pages * (sysconf(_SC_PAGESIZE) >> 10) >> 10);
}

struct held held_now(void)
{
    return (struct held){.descriptors = count_descriptors(),
                         .threads = count_threads(),
                         .mappings = count_mappings(),
                         .resident_mib = count_resident_mib(),
                         .gpu_mib = memory_gpu_mib()};
}

void held_no_more(const struct held *before)
{
    const struct held *more = SANITIZED || before->gpu_mib > 0 ? &spare_beside_others : &spare;
    no_growth(count_descriptors, before->descriptors, more->descriptors, "descriptors");
    no_growth(count_threads, before->threads, more->threads, "threads");
    no_growth(count_mappings, before->mappings, more->mappings, "mappings");
    no_growth(count_resident_mib, before->resident_mib, more->resident_mib,
              "MiB of resident memory");
    no_growth(memory_gpu_mib, before->gpu_mib, more->gpu_mib, "MiB of the GPU");
}

static struct held before_test;

int held_before(void **state)
{
    multi_cycle(NULL);
    before_test = held_now();
    return 0;
}

int held_after(void **state)
{
    multi_cycle(NULL);
    held_no_more(&before_test);
    return 0;
}
