/* Writes a file under another name before it is renamed, and checksums it. */
#include "checkpoint_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <string.h>
#include <unistd.h>

#include "text.h"

void sum_file_refuse(struct sum_file *f, const char *why)
{
    if (!f->failed)
        fprintf(stderr, "fsdp_train: checkpoint %s: %s\n", f->temporary[0] ? f->temporary : f->path,
                why);
    f->failed = true;
}

static void begin(struct sum_file *f, const char *path)
{
    *f = (struct sum_file){.hash = HASH_START};
    if (snprintf(f->path, sizeof(f->path), "%s", path) >= (int)sizeof(f->path))
        sum_file_refuse(f, "the name is too long");
}

void sum_file_create(struct sum_file *f, const char *path)
{
    begin(f, path);
    snprintf(f->temporary, sizeof(f->temporary), "%s.new", f->path);
    if (!f->failed && !(f->file = fopen(f->temporary, "wb")))
        sum_file_refuse(f, strerror(errno));
}

void sum_file_open(struct sum_file *f, const char *path)
{
    begin(f, path);
    if (!f->failed && !(f->file = fopen(f->path, "rb")))
        sum_file_refuse(f, strerror(errno));
}

void sum_file_write(struct sum_file *f, const void *bytes, size_t count)
{
    if (f->failed)
        return;
    f->hash = hash_bytes(f->hash, bytes, count);
    if (fwrite(bytes, 1, count, f->file) != count)
        sum_file_refuse(f, strerror(errno));
}

bool sum_file_read(struct sum_file *f, void *bytes, size_t count)
{
    if (!f->failed && fread(bytes, 1, count, f->file) != count)
        sum_file_refuse(f, ferror(f->file) ? strerror(errno) : "cut short: it ends too early");
    if (!f->failed)
        f->hash = hash_bytes(f->hash, bytes, count);
    return !f->failed;
}

/* A new name survives a crash only when the directory is synced too. */
static bool sync_directory(const char *path)
{
    char copy[PATH_ROOM];
    snprintf(copy, sizeof(copy), "%s", path);
    const int directory = open(dirname(copy), O_RDONLY | O_DIRECTORY);
    const bool fine = directory >= 0 && fsync(directory) == 0;
    if (directory >= 0)
        close(directory);
    return fine;
}

static void end_writing(struct sum_file *f)
{
    const uint64_t hash = f->hash;
    sum_file_write(f, &hash, sizeof(hash));
    if (!f->failed && (fflush(f->file) != 0 || fsync(fileno(f->file)) != 0))
        sum_file_refuse(f, strerror(errno));
    if (f->file && fclose(f->file) != 0)
        sum_file_refuse(f, strerror(errno));
    if (!f->failed && (rename(f->temporary, f->path) != 0 || !sync_directory(f->path)))
        sum_file_refuse(f, strerror(errno));
    if (f->failed && f->file)
        unlink(f->temporary);
}

static void end_reading(struct sum_file *f)
{
    const uint64_t expected = f->hash;
    uint64_t found = 0;
    if (sum_file_read(f, &found, sizeof(found)) && found != expected)
        sum_file_refuse(f, "damaged: its checksum is wrong");
    if (!f->failed && fgetc(f->file) != EOF)
        sum_file_refuse(f, "damaged: more follows than belongs to it");
    if (f->file)
        fclose(f->file);
}

bool sum_file_end(struct sum_file *f)
{
    if (f->temporary[0])
        end_writing(f);
    else
        end_reading(f);
    f->file = NULL;
    return !f->failed;
}
