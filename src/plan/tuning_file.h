/* Reads and writes a file of thresholds, as CECL_TUNING names it. The file is text:
 *
 *     cecl-tuning 1
 *     # name                      ranks  device  value
 *     small.all_reduce.max_bytes  2      cuda    512KiB   # text behind # is ignored
 *     reduction.reading_sms       *      any     12
 *
 * ranks: 2, 3-8, 6-* (6 and more) or *. device: any, cuda or host. value: a whole number, for bytes with an
 * optional KiB, MiB or GiB, or `never`. If several rows fit, the first one applies. */
#ifndef CECL_PLAN_TUNING_FILE_H
#define CECL_PLAN_TUNING_FILE_H

#include "plan/tuning.h"
#include "util/error.h"

#define CECL_TUNING_HEADER "cecl-tuning 1"
#define CECL_TUNING_TEXT 160 /* room for the text of a row or a value */

/* Reads rows into `file`, which cecl_tuning_forget frees. If the file is refused, `file` is empty, and the
 * message of ceclInvalidArgument names the file and the line, and says what was found and expected. */
ceclResult_t cecl_tuning_read(const char *path, struct cecl_tuning_file *file);
/* Does the same with text in memory. `name`: the file's name, for messages. */
ceclResult_t cecl_tuning_parse(const char *name, const char *text, size_t bytes,
                               struct cecl_tuning_file *file);
void cecl_tuning_forget(struct cecl_tuning_file *file);

/* Write parts of a row in the form of a tuning file. */
void cecl_tuning_value_text(enum cecl_threshold which, uint64_t value, char text[CECL_TUNING_TEXT]);
void cecl_tuning_ranks_text(const struct cecl_tuning_row *row, char text[CECL_TUNING_TEXT]);
const char *cecl_tuning_device_text(enum cecl_tuning_device device);
const char *cecl_tuning_unit_text(enum cecl_tuning_unit unit);
/* Writes a row as a line of a file, without the end of line. */
void cecl_tuning_row_text(const struct cecl_tuning_row *row, char text[CECL_TUNING_TEXT]);

#endif
