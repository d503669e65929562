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
    char temporary[PATH_ROOM + 8]; /* empty when the file is read */
    uint64_t hash;                 /* of all bytes so far */
    bool failed;                   /* and a message was written to stderr */
};

/* Calls after a failed one do nothing. sum_file_end returns whether all calls succeeded. */
void sum_file_create(struct sum_file *f, const char *path);
void sum_file_open(struct sum_file *f, const char *path);
void sum_file_write(struct sum_file *f, const void *bytes, size_t count);
/* Returns false, and reports that the file is cut short, if the file has fewer bytes. */
bool sum_file_read(struct sum_file *f, void *bytes, size_t count);
/* For a file that is written: adds the checksum, syncs, renames. For a file that is read: compares
 * the checksum, and checks that nothing follows it. */
bool sum_file_end(struct sum_file *f);
/* Reports what is wrong with the file. */
void sum_file_refuse(struct sum_file *f, const char *why);

#endif
