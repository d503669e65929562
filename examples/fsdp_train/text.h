/* The text that the network learns, all of it in memory. */
#ifndef CECL_FSDP_TEXT_H
#define CECL_FSDP_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
    unsigned char *bytes;
    size_t count;
    uint64_t hash; /* identifies the text of a checkpoint */
};

/* The text must have at least `least` bytes. Returns false with a message on stderr. */
bool text_load(struct text *t, const char *path, size_t least);
void text_free(struct text *t);

/* A hash of bytes. `from` is the hash of the bytes before them, or HASH_START. */
#define HASH_START 0xcbf29ce484222325u
uint64_t hash_bytes(uint64_t from, const void *bytes, size_t count);

#endif
