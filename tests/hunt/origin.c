/* Compares wrong bytes with the data of all calls and messages of the run; see origin.h. */
#include "origin.h"

#include <stdio.h>

#define POISON 0x5A
#define NOTED 4096
#define MOST_INDEX (1u << 16) /* searched bytes of each block */
#define ENOUGH 6              /* that many equal bytes in a row are no coincidence */

/* The data that some ranks contributed to a call, or that a rank sent in a message. */
struct noted {
    uint64_t seed;
    char name[48];
    int nranks;
};
static struct noted noted[NOTED];
static int count;

static void add(uint64_t seed, int nranks, const char *name, const char *what, int index)
{
    struct noted *one = &noted[count % NOTED];
    *one = (struct noted){.seed = seed, .nranks = nranks};
    snprintf(one->name, sizeof(one->name), "%s %d of %s", what, index, name);
    count++;
}

void origin_note(const char *name)
{
    for (int i = 0; i < BURST_CALLS; i++)
        add(burst[i].random.call.seed, burst[i].random.call.nranks, name, "call", i);
    for (int i = 0; i < MAILS; i++)
        for (int j = 0; j < mails[i].count; j++)
            add(mails[i].messages[j].seed, mails[i].team->n, name, "message", j);
}

static bool is_from(const struct noted *one, int rank, size_t index, const unsigned char *got)
{
    size_t i = 0;
    while (i < ENOUGH && got[i] == multi_byte(one->seed, rank, index + i))
        i++;
    return i == ENOUGH;
}

static bool search(const struct noted *one, const unsigned char *got)
{
    for (int r = 0; r < one->nranks; r++)
        for (size_t index = 0; index < MOST_INDEX; index++)
            if (is_from(one, r, index, got)) {
                print_error("  they are byte %zu on of rank %d's part of %s\n", index, r,
                            one->name);
                return true;
            }
    return false;
}

void origin_tell(const unsigned char *got, size_t bytes, size_t first)
{
    const int known = count < NOTED ? count : NOTED;
    size_t poison = 0;
    bool found = false;
    while (first + poison < bytes && got[first + poison] == POISON)
        poison++;
    print_error("  bytes %zu on of %zu: %zu of poison, then", first, bytes, poison);
    for (size_t i = first + poison; i < bytes && i < first + poison + 16; i++)
        print_error(" %02x", got[i]);
    print_error("\n");
    for (int i = 0; i < known && first + poison + ENOUGH <= bytes; i++)
        found = search(&noted[i], got + first + poison) || found;
    if (!found)
        print_error("  they are the data of no call or message that this rank knows (a reduction's "
                    "result is none)\n");
}
