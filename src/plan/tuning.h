/* Thresholds: numbers that come from measurements or calculations. thresholds.h lists them with their evidence. A
 * communicator has a `struct cecl_tuning` with the values for its device and its number of ranks. This file does not
 * know what a threshold decides. */
#ifndef CECL_PLAN_TUNING_H
#define CECL_PLAN_TUNING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/error.h"

/* CECL_TUNE_..., one for each THRESHOLD in thresholds.h. */
enum cecl_threshold {
#define THRESHOLD(id, name, unit, least, most, decision) CECL_TUNE_##id,
#define MEASURED(id, first, last, device, value, evidence)
#define RECKONED(id, first, last, device, value, evidence)
#include "plan/thresholds.h"
#undef THRESHOLD
#undef MEASURED
#undef RECKONED
    CECL_TUNE_COUNT
};

enum cecl_tuning_device {
    CECL_TUNING_CUDA,
    CECL_TUNING_HOST,
    CECL_TUNING_DEVICES,
    CECL_TUNING_ANY = CECL_TUNING_DEVICES
};

enum cecl_tuning_unit {
    CECL_TUNING_BYTES,
    CECL_TUNING_SMS,
    CECL_TUNING_CHUNKS,
    CECL_TUNING_NANOSECONDS
};

#define CECL_TUNING_NEVER UINT64_MAX      /* a smallest size that no call reaches */
#define CECL_TUNING_EVERY_RANK UINT16_MAX /* in a row's `last`: no upper limit */
#define CECL_TUNING_RANKS_MAX 1024        /* the largest rank count that a file may name */

struct cecl_threshold_info {
    const char *name;
    enum cecl_tuning_unit unit;
    uint64_t least, most; /* the smallest and the largest allowed value */
    const char *decision; /* what the threshold decides, in a sentence */
};
extern const struct cecl_threshold_info cecl_thresholds[CECL_TUNE_COUNT];

/* A value for some rank counts, and for one device or all devices. */
struct cecl_tuning_row {
    enum cecl_threshold which;
    uint16_t first, last; /* rank counts */
    enum cecl_tuning_device device;
    uint64_t value;
    const char *evidence; /* NULL: the row is from a file */
    bool measured;        /* false: the value follows from a calculation */
    int line;             /* line number in its file; 0: built in */
};
/* The built-in rows. Rows of one threshold are adjacent. */
extern const struct cecl_tuning_row cecl_tuning_rows[];
extern const size_t cecl_tuning_nrows;

/* The rows of the file that CECL_TUNING names. They have precedence over the built-in rows. */
struct cecl_tuning_file {
    struct cecl_tuning_row *rows; /* NULL: no rows */
    size_t nrows;
};

/* Whether a row is for this device and number of ranks. */
static inline bool cecl_tuning_fits(const struct cecl_tuning_row *row,
                                    enum cecl_tuning_device device, int nranks)
{
    return nranks >= row->first && (row->last == CECL_TUNING_EVERY_RANK || nranks <= row->last) &&
           (row->device == CECL_TUNING_ANY || row->device == device);
}

/* The row that applies: the first row of the file that fits, or else the first built-in row that fits. */
const struct cecl_tuning_row *cecl_tuning_row_of(const struct cecl_tuning_file *file,
                                                 enum cecl_threshold which,
                                                 enum cecl_tuning_device device, int nranks);

/* All values for one device and number of ranks. */
struct cecl_tuning {
    uint64_t value[CECL_TUNE_COUNT];
};

/* Fills in all values. `file` has rows with precedence over the built-in ones, or is NULL. */
void cecl_tuning_resolve(const struct cecl_tuning_file *file, enum cecl_tuning_device device,
                         int nranks, struct cecl_tuning *tuning);

struct cecl_tuning cecl_tuning_default(enum cecl_tuning_device device, int nranks);

/* A hash of the values, which ranks compare. Never negative. */
int64_t cecl_tuning_hash(const struct cecl_tuning *tunings, size_t count);

/* All code reads thresholds through this function. */
static inline uint64_t cecl_tuning_get(const struct cecl_tuning *tuning, enum cecl_threshold which)
{
    return tuning->value[which];
}

/* The most bytes that a small call sends to a peer. A slot must have room for them. */
uint64_t cecl_tuning_largest_small(const struct cecl_tuning *tuning);

/* Reads and writes a file of thresholds, as CECL_TUNING names it. The file is text:
 *
 *     cecl-tuning 1
 *     # name                      ranks  device  value
 *     small.all_reduce.max_bytes  2      cuda    512KiB   # text behind # is ignored
 *     reduction.reading_sms       *      any     12
 *
 * ranks: 2, 3-8, 6-* (6 and more) or *. device: any, cuda or host. value: a whole number, which for bytes may end in
 * KiB, MiB or GiB, or `never`. If several rows fit, the first one applies. */

#define CECL_TUNING_HEADER "cecl-tuning 1"
#define CECL_TUNING_TEXT 160 /* room for the text of a row or a value */

/* Reads rows into `file`, which cecl_tuning_forget frees. If the file is refused, `file` is empty, and the
 * message of ceclInvalidArgument names the file and the line, and says what was found and expected. */
ceclResult_t cecl_tuning_read(const char *path, struct cecl_tuning_file *file);
/* Like cecl_tuning_read, but reads text in memory. `name` is the file's name, for messages. */
ceclResult_t cecl_tuning_parse(const char *name, const char *text, size_t bytes,
                               struct cecl_tuning_file *file);
void cecl_tuning_forget(struct cecl_tuning_file *file);

/* The next functions give texts of a row's values. */
void cecl_tuning_value_text(enum cecl_threshold which, uint64_t value, char text[CECL_TUNING_TEXT]);
void cecl_tuning_ranks_text(const struct cecl_tuning_row *row, char text[CECL_TUNING_TEXT]);
const char *cecl_tuning_device_text(enum cecl_tuning_device device);
const char *cecl_tuning_unit_text(enum cecl_tuning_unit unit);
/* Writes a row as a line of a file, without the end of line. */
void cecl_tuning_row_text(const struct cecl_tuning_row *row, char text[CECL_TUNING_TEXT]);

#endif
