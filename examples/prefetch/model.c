/* The network's parameters and the text it reads. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prefetch.h"

size_t group_elements(const struct shape *s, int group)
{
    const size_t width = (size_t)s->width;
    if (group == 0)
        return (size_t)(SYMBOLS + SAMPLE) * width;
    return group <= s->layers ? width * width : width * SYMBOLS;
}

size_t shard_elements(const struct shape *s, int group)
{
    /* shards begin at multiples of 256 bytes */
    const size_t n = (size_t)s->nranks, unit = 256 / s->element;
    const size_t each = (group_elements(s, group) + n - 1) / n;
    return (each + unit - 1) / unit * unit;
}

float parameter(const struct shape *s, uint64_t seed, int group, size_t index)
{
    uint64_t x = seed + (uint64_t)group * 0x9e3779b97f4a7c15u + index * 0xd1b54a32d192ed03u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    if (index >= group_elements(s, group))
        return 0;                                                     /* padding */
    const float uniform = (float)(x >> 40) / (float)(1 << 24) - 0.5f; /* [-1/2, 1/2) */
    return uniform * (group == 0 ? 1.0f : 1.0f / sqrtf((float)s->width));
}

void logits_loss(const struct shape *s, const float *logits, const unsigned char *tokens,
                 double *sum, uint64_t *hash)
{
    *sum = 0;
    *hash = 0xcbf29ce484222325u;
    for (size_t b = 0; b < (size_t)s->batch; b++) {
        const float *l = logits + b * SYMBOLS;
        double most = l[0], total = 0;
        for (int i = 0; i < SYMBOLS; i++) {
            uint32_t bits;
            memcpy(&bits, &l[i], sizeof(bits));
            *hash = (*hash ^ bits) * 0x100000001b3u;
            most = l[i] > most ? l[i] : most;
        }
        for (int i = 0; i < SYMBOLS; i++)
            total += exp(l[i] - most);
        *sum += most + log(total) - l[tokens[b / SAMPLE * (SAMPLE + 1) + b % SAMPLE + 1]];
    }
}

unsigned char *text_load(const char *path, size_t least, size_t *count)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        fprintf(stderr, "prefetch: --data %s: %s\n", path, strerror(errno));
        return NULL;
    }
    unsigned char *text = NULL;
    size_t used = 0, room = 0, got = 1;
    while (got > 0) {
        if (used == room) {
            unsigned char *more = realloc(text, room = room ? 2 * room : 1 << 16);
            if (!more)
                break;
            text = more;
        }
        used += got = fread(text + used, 1, room - used, file);
    }
    const bool failed = ferror(file) || got > 0;
    fclose(file);
    if (failed || used < least) {
        fprintf(
            stderr,
            "prefetch: --data %s: %s%zu bytes; %zu at least are needed for a batch of every rank\n",
            path, failed ? "reading failed after " : "", used, least);
        free(text);
        return NULL;
    }
    *count = used;
    return text;
}
