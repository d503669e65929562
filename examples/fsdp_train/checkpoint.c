/* Writes and reads a rank's file of a checkpoint. All ranks agree on whether it succeeded. */
#include "checkpoint.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint_file.h"

#define MAGIC 0x314b4354504b4346u /* also detects a file of the other byte order */

struct header {
    uint64_t magic, step, elements; /* elements: of one of the three arrays */
    struct identity identity;
};

struct latest {
    uint64_t magic, step, ranks;
};

static const struct {
    const char *name;
    size_t place;
} fields[] = {
    {"--layers", offsetof(struct identity, layers)},
    {"--width", offsetof(struct identity, width)},
    {"--heads", offsetof(struct identity, heads)},
    {"--sequence", offsetof(struct identity, sequence)},
    {"--batch", offsetof(struct identity, batch)},
    {"ranks", offsetof(struct identity, ranks)},
    {"rank", offsetof(struct identity, rank)},
    {"--seed", offsetof(struct identity, seed)},
    {"a --data of bytes", offsetof(struct identity, text_bytes)},
    {"a --data of hash", offsetof(struct identity, text_hash)},
};

static void shard_path(char *path, const char *directory, uint64_t step, const struct identity *i)
{
    snprintf(path, PATH_ROOM, "%s/step-%08llu-rank-%llu-of-%llu", directory,
             (unsigned long long)step, (unsigned long long)i->rank, (unsigned long long)i->ranks);
}

static void latest_path(char *path, const char *directory)
{
    snprintf(path, PATH_ROOM, "%s/latest", directory);
}

/* ---- a rank's arrays, copied through the host in parts */

enum { AT_ONCE = 1 << 20 }; /* elements */

static void write_array(struct sum_file *file, struct fsdp *f, const float *array, float *values)
{
    const size_t count = fsdp_shard_elements(f);
    for (size_t done = 0; done < count && !file->failed; done += AT_ONCE) {
        const size_t n = count - done < AT_ONCE ? count - done : AT_ONCE;
        if (!f->compute->read(f->compute, values, array + done, n * sizeof(*values)))
            sum_file_refuse(file, "the shard could not be read from the device");
        sum_file_write(file, values, n * sizeof(*values));
    }
}

static void read_array(struct sum_file *file, struct fsdp *f, float *array, float *values)
{
    const size_t count = fsdp_shard_elements(f);
    for (size_t done = 0; done < count && !file->failed; done += AT_ONCE) {
        const size_t n = count - done < AT_ONCE ? count - done : AT_ONCE;
        if (sum_file_read(file, values, n * sizeof(*values)))
            f->compute->write(f->compute, array + done, values, n * sizeof(*values));
    }
}

/* ---- saving */

static bool save_shard(struct fsdp *f, const char *path, const struct identity *identity,
                       uint64_t step)
{
    const struct header header = {MAGIC, step, fsdp_shard_elements(f), *identity};
    float *values = malloc(AT_ONCE * sizeof(*values));
    struct sum_file file;
    sum_file_create(&file, path);
    if (!values)
        sum_file_refuse(&file, "no memory to write it through");
    sum_file_write(&file, &header, sizeof(header));
    write_array(&file, f, f->parameters, values);
    write_array(&file, f, f->first, values);
    write_array(&file, f, f->second, values);
    free(values);
    return sum_file_end(&file);
}

static bool save_latest(const char *directory, const struct identity *identity, uint64_t step)
{
    const struct latest latest = {MAGIC, step, identity->ranks};
    char path[PATH_ROOM];
    struct sum_file file;
    latest_path(path, directory);
    sum_file_create(&file, path);
    sum_file_write(&file, &latest, sizeof(latest));
    return sum_file_end(&file);
}

static bool read_latest(const char *directory, struct latest *latest)
{
    char path[PATH_ROOM];
    struct sum_file file;
    latest_path(path, directory);
    sum_file_open(&file, path);
    if (sum_file_read(&file, latest, sizeof(*latest)) && latest->magic != MAGIC)
        sum_file_refuse(&file, "no checkpoint of this program");
    return sum_file_end(&file);
}

static bool exists(const char *directory)
{
    char path[PATH_ROOM];
    struct stat status;
    latest_path(path, directory);
    return stat(path, &status) == 0;
}

bool checkpoint_save(struct fsdp *f, const char *directory, const struct identity *identity,
                     uint64_t step)
{
    struct latest before = {0};
    char path[PATH_ROOM], old[PATH_ROOM];
    if (mkdir(directory, 0777) != 0 && errno != EEXIST) {
        fprintf(stderr, "fsdp_train: --checkpoint %s: %s\n", directory, strerror(errno));
        return all_agree(false);
    }
    const bool replaces = exists(directory) && read_latest(directory, &before);
    shard_path(path, directory, step, identity);
    if (!all_agree(save_shard(f, path, identity, step)))
        return false;
    if (!all_agree(identity->rank != 0 || save_latest(directory, identity, step)))
        return false;
    /* `latest` no longer names the old file */
    shard_path(old, directory, before.step, identity);
    if (replaces && before.step != step && before.ranks == identity->ranks)
        unlink(old);
    return true;
}

/* ---- loading */

static bool fits(struct sum_file *file, const struct header *h, const struct identity *mine,
                 uint64_t step, size_t elements)
{
    char words[160];
    if (h->magic != MAGIC) {
        sum_file_refuse(file, "no checkpoint of this program, or of another version of it");
        return false;
    }
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        uint64_t found, expected;
        memcpy(&found, (const char *)&h->identity + fields[i].place, sizeof(found));
        memcpy(&expected, (const char *)mine + fields[i].place, sizeof(expected));
        if (found != expected) {
            snprintf(words, sizeof(words), "made with %s %llu; this training has %llu",
                     fields[i].name, (unsigned long long)found, (unsigned long long)expected);
            sum_file_refuse(file, words);
            return false;
        }
    }
    if (h->step != step || h->elements != elements)
        sum_file_refuse(file, "damaged: it has another step or size than expected");
    return !file->failed;
}

static bool load_shard(struct fsdp *f, const char *path, const struct identity *identity,
                       uint64_t step)
{
    struct header header;
    struct sum_file file;
    float *values = malloc(AT_ONCE * sizeof(*values));
    sum_file_open(&file, path);
    if (!values)
        sum_file_refuse(&file, "no memory to read it through");
    if (sum_file_read(&file, &header, sizeof(header)) &&
        fits(&file, &header, identity, step, fsdp_shard_elements(f))) {
        read_array(&file, f, f->parameters, values);
        read_array(&file, f, f->first, values);
        read_array(&file, f, f->second, values);
    }
    free(values);
    return sum_file_end(&file) && f->compute->wait(f->compute);
}

bool checkpoint_load(struct fsdp *f, const char *directory, const struct identity *identity,
                     uint64_t *step)
{
    struct latest latest = {0};
    char path[PATH_ROOM];
    bool mine = read_latest(directory, &latest);
    if (mine && latest.ranks != identity->ranks) {
        if (identity->rank == 0)
            fprintf(stderr,
                    "fsdp_train: checkpoint %s: made by %llu ranks; as many expected, here "
                    "are %llu\n",
                    directory, (unsigned long long)latest.ranks,
                    (unsigned long long)identity->ranks);
        mine = false;
    }
    shard_path(path, directory, latest.step, identity);
    if (!all_agree(mine) || !all_agree(load_shard(f, path, identity, latest.step)))
        return false;
    *step = latest.step;
    return true;
}
