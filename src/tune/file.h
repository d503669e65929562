/* A file of thresholds, as CECL_TUNING names it, read and written. Text:
 *
 *     cecl-tuning 1
 *     # name                      ranks  device  value
 *     small.all_reduce.max_bytes  2      cuda    512KiB   # what stands behind # is not read
 *     reduction.reading_sms       *      any     12
 *
 * ranks: 2, 3-8, 6-* (6 and more) or *; device: any, cuda or host; value: a whole number, of bytes
 * with KiB, MiB or GiB if wanted, or never. The first row that fits holds. */
#ifndef CECL_TUNE_FILE_H
#define CECL_TUNE_FILE_H

#include "tune/table.h"
#include "util/error.h"

#define CECL_TUNING_HEADER "cecl-tuning 1"
#define CECL_TUNING_TEXT 160 /* bytes that a row or a value takes at most */

/* Reads rows into `file`, which cecl_tuning_forget frees; nothing stays of a refused one.
 * ceclInvalidArgument names file and line, what was found and what was expected. */
ceclResult_t cecl_tuning_read(const char *path, struct cecl_tuning_file *file);
/* The same of text at hand. `name`: the file's, for messages. */
ceclResult_t cecl_tuning_parse(const char *name, const char *text, size_t bytes,
                               struct cecl_tuning_file *file);
void cecl_tuning_forget(struct cecl_tuning_file *file);

/* As a file has it, and for people. */
void cecl_tuning_value_text(enum cecl_threshold which, uint64_t value, char text[CECL_TUNING_TEXT]);
void cecl_tuning_ranks_text(const struct cecl_tuning_row *row, char text[CECL_TUNING_TEXT]);
const char *cecl_tuning_device_text(enum cecl_tuning_device device);
const char *cecl_tuning_unit_text(enum cecl_tuning_unit unit);
/* A line of a file, without its end. */
void cecl_tuning_row_text(const struct cecl_tuning_row *row, char text[CECL_TUNING_TEXT]);

#endif
