/* Reads and writes a file of thresholds, as CECL_TUNING names it. The file is text:
 *
 *     cecl-tuning 1
 *     # name                      ranks  device  value
 *     small.all_reduce.max_bytes  2      cuda    512KiB   # what stands behind # is not read
 *     reduction.reading_sms       *      any     12
 *
 * ranks: 2, 3-8, 6-* (6 and more) or *. device: any, cuda or host. value: a whole number, in bytes
 * with KiB, MiB or GiB if wanted, or `never`. If several rows fit, the first is in force. */
#ifndef CECL_TUNE_FILE_H
#define CECL_TUNE_FILE_H

#include "tune/table.h"
#include "util/error.h"

#define CECL_TUNING_HEADER "cecl-tuning 1"
#define CECL_TUNING_TEXT 160 /* the most bytes that a row or a value takes */

/* Reads rows into `file`, which cecl_tuning_forget frees. If the file is refused, no row is kept.
 * ceclInvalidArgument: the message names file and line, what was found, and what was expected. */
ceclResult_t cecl_tuning_read(const char *path, struct cecl_tuning_file *file);
/* Does the same with text in memory. `name`: the file's name, for messages. */
ceclResult_t cecl_tuning_parse(const char *name, const char *text, size_t bytes,
                               struct cecl_tuning_file *file);
void cecl_tuning_forget(struct cecl_tuning_file *file);

/* Writes a value as a tuning file has it, in words that people can read. */
void cecl_tuning_value_text(enum cecl_threshold which, uint64_t value, char text[CECL_TUNING_TEXT]);
void cecl_tuning_ranks_text(const struct cecl_tuning_row *row, char text[CECL_TUNING_TEXT]);
const char *cecl_tuning_device_text(enum cecl_tuning_device device);
const char *cecl_tuning_unit_text(enum cecl_tuning_unit unit);
/* A line of a file, without the end of line. */
void cecl_tuning_row_text(const struct cecl_tuning_row *row, char text[CECL_TUNING_TEXT]);

#endif
