/* Finds the ranks in an error's message. */
#include "blame.h"

#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static void blame_rank(struct blame *blame, int rank, int faulty)
{
    if (rank == faulty)
        blame->names_faulty = true;
    else
        blame->wrongly = rank;
}

/* Reads a list such as "1, 2 and 3". Returns where it ends. */
static const char *read_list(const char *at, struct blame *blame, int faulty)
{
    while (isdigit((unsigned char)*at)) {
        char *end;
        blame_rank(blame, (int)strtol(at, &end, 10), faulty);
        at = end;
        if (strncmp(at, ", ", 2) == 0)
            at += 2;
        else if (strncmp(at, " and ", 5) == 0)
            at += 5;
    }
    return at;
}

/* Skips everything up to each "rank N gave up: ", because rank N only passes on a reason. If N is the
 * faulty rank, also skips the reason: it is that rank's own, and blames nobody else. */
static const char *skip_messengers(const char *words, struct blame *blame, int faulty)
{
    static const char gave_up[] = " gave up: ";
    const char *told;
    while ((told = strstr(words, gave_up))) {
        const char *number = told;
        while (number > words && isdigit((unsigned char)number[-1]))
            number--;
        blame->names_faulty = blame->names_faulty || atoi(number) == faulty;
        words = atoi(number) == faulty ? words + strlen(words) : told + strlen(gave_up);
    }
    return words;
}

/* Whether the rank at `at` is the one that reports, as the text before it shows. The one that reports is not at fault. */
static bool is_speaker(const char *words, const char *at)
{
    static const char *const before[] = {"pending on ", "last call of ", "as often as ",
                                         "a graph that "};
    for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++) {
        const size_t length = strlen(before[i]);
        if ((size_t)(at - words) >= length && memcmp(at - length, before[i], length) == 0)
            return true;
    }
    return false;
}

struct blame blame_of(const char *words, int faulty, bool made_id)
{
    struct blame blame = {.names_faulty = false, .wrongly = -1};
    const char *at = skip_messengers(words, &blame, faulty);
    if (made_id && (strstr(at, "made the unique id") || strstr(at, "the process that made it")))
        blame.names_faulty = true;
    while ((at = strstr(at, "rank"))) {
        const bool speaks = is_speaker(words, at);
        at += strlen("rank");
        if (speaks)
            continue;
        at += *at == 's';
        if (*at == ' ')
            at = read_list(at + 1, &blame, faulty);
    }
    return blame;
}
