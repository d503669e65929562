/* Counts descriptors, threads and mappings of this process. */
#include "census.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../open_descriptors.h"
#include "../threads_alive.h"

#define WAITS 3000 /* of 1 ms */
/* Sanitizers map as much of their own. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS_PRIVATE false
#else
#define COUNTS_PRIVATE true
#endif
/* Larger than a thread's stack and what malloc takes at a time, smaller than a pool. */
#define LARGE_BYTES (96ul << 20)

/* Those whose file's name begins with `prefix`. */
static int count_mappings(const char *prefix)
{
    char line[512];
    int count = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    while (file && fgets(line, sizeof(line), file)) {
        unsigned long from = 0, to = 0;
        char rights[8] = "", name[256] = "";
        if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %255s", &from, &to, rights, name) >= 3 &&
            strncmp(name, prefix, strlen(prefix)) == 0)
            count += rights[3] == 's' || (COUNTS_PRIVATE && to - from >= LARGE_BYTES);
    }
    if (file)
        fclose(file);
    return count;
}

struct census census_take(void)
{
    return (struct census){open_descriptors(), threads_alive(), count_mappings(""),
                           count_mappings("/dev/nvidia")};
}

bool census_is_back(const struct census *start, struct census *now)
{
    for (int i = 0; i < WAITS; i++) {
        *now = census_take();
        if (now->descriptors <= start->descriptors && now->threads <= start->threads &&
            now->mappings <= start->mappings)
            return true;
        usleep(1000);
    }
    return false;
}
