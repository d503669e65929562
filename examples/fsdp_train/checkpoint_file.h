/* Files with a checksum that are replaced whole or not at all. */
#ifndef CECL_FSDP_CHECKPOINT_FILE_H
#define CECL_FSDP_CHECKPOINT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { PATH_ROOM = 4096 };

struct sum_file {
    FILE *file;
    char path[PATH_ROOM];
    char temporary[PATH_ROOM + 8]; /* empty: it is read */
    uint64_t hash;                 /* of all so far */
    bool failed;                   /* words were written to stderr */
};

/* Calls after one that failed do nothing; end tells whether all went well. */
void sum_file_create(struct sum_file *f, const char *path);
void sum_file_open(struct sum_file *f, const char *path);
void sum_file_write(struct sum_file *f, const void *bytes, size_t count);
/* False, with words that call it cut short, where there is less. */
bool sum_file_read(struct sum_file *f, void *bytes, size_t count);
/* Written: adds the checksum, syncs, renames. Read: compares the checksum; nothing may follow it. */
bool sum_file_end(struct sum_file *f);
/* Says what is wrong with the file. */
void sum_file_refuse(struct sum_file *f, const char *why);

#endif
