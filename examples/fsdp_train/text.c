/* Loads the text, and hashes bytes. */
#include "text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "random.h"

/* Hashes eight bytes at a time, because shards have gigabytes. Each step is a bijection of the
 * state, so one changed word always changes the hash. */
uint64_t hash_bytes(uint64_t from, const void *bytes, size_t count)
{
    const unsigned char *p = bytes;
    uint64_t hash = from, word;
    for (; count >= sizeof(word); count -= sizeof(word), p += sizeof(word)) {
        memcpy(&word, p, sizeof(word));
        hash = (hash ^ word) * 0x9fb21c651e98df25u;
        hash ^= hash >> 29;
    }
    /* the last word has the number of bytes left, so that a 0 more or less changes the hash */
    word = count;
    for (size_t i = 0; i < count; i++)
        word = word << 8 | p[i];
    return scramble(hash ^ word);
}

static bool refuse(const char *path, const char *why)
{
    fprintf(stderr, "fsdp_train: --data %s: %s\n", path, why);
    return false;
}

/* Asks for the file's size first, because a training text must be a plain file. */
static bool read_all(struct text *t, FILE *file, const char *path, size_t least)
{
    struct stat status;
    char words[128];
    if (fstat(fileno(file), &status) != 0 || !S_ISREG(status.st_mode))
        return refuse(path, "a plain file expected");
    t->count = (size_t)status.st_size;
    if (t->count < least) {
        snprintf(words, sizeof(words),
                 "%zu bytes; %zu at least expected, for one batch of all ranks", t->count, least);
        return refuse(path, words);
    }
    t->bytes = malloc(t->count);
    if (!t->bytes)
        return refuse(path, "no memory for it");
    if (fread(t->bytes, 1, t->count, file) != t->count)
        return refuse(path, ferror(file) ? strerror(errno) : "it became shorter while it was read");
    t->hash = hash_bytes(HASH_START, t->bytes, t->count);
    return true;
}

bool text_load(struct text *t, const char *path, size_t least)
{
    FILE *file = fopen(path, "rb");
    *t = (struct text){0};
    if (!file)
        return refuse(path, strerror(errno));
    const bool fine = read_all(t, file, path, least);
    fclose(file);
    if (!fine)
        text_free(t);
    return fine;
}

void text_free(struct text *t)
{
    free(t->bytes);
    *t = (struct text){0};
}
