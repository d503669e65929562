/* Prints thresholds and their values in the form that tuning_file.c reads. */
#include <inttypes.h>
#include <stdio.h>

#include "plan/tuning.h"

void cecl_tuning_value_text(enum cecl_threshold which, uint64_t value, char text[CECL_TUNING_TEXT])
{
    static const char *const suffixes[] = {"", "KiB", "MiB", "GiB"};
    int suffix = 0;
    if (value == CECL_TUNING_NEVER) {
        snprintf(text, CECL_TUNING_TEXT, "never");
        return;
    }
    const bool bytes = cecl_thresholds[which].unit == CECL_TUNING_BYTES;
    for (; bytes && suffix < 3 && value > 0 && value % 1024 == 0; suffix++)
        value /= 1024;
    snprintf(text, CECL_TUNING_TEXT, "%" PRIu64 "%s", value, suffixes[suffix]);
}

void cecl_tuning_ranks_text(const struct cecl_tuning_row *row, char text[CECL_TUNING_TEXT])
{
    const bool open = row->last == CECL_TUNING_EVERY_RANK;
    if (open && row->first == 1)
        snprintf(text, CECL_TUNING_TEXT, "*");
    else if (open)
        snprintf(text, CECL_TUNING_TEXT, "%d-*", row->first);
    else if (row->first == row->last)
        snprintf(text, CECL_TUNING_TEXT, "%d", row->first);
    else
        snprintf(text, CECL_TUNING_TEXT, "%d-%d", row->first, row->last);
}

const char *cecl_tuning_device_text(enum cecl_tuning_device device)
{
    return device == CECL_TUNING_CUDA ? "cuda" : device == CECL_TUNING_HOST ? "host" : "any";
}

const char *cecl_tuning_unit_text(enum cecl_tuning_unit unit)
{
    static const char *const words[] = {[CECL_TUNING_BYTES] = "bytes",
                                        [CECL_TUNING_SMS] = "SMs",
                                        [CECL_TUNING_CHUNKS] = "chunks",
                                        [CECL_TUNING_NANOSECONDS] = "ns"};
    return words[unit];
}

void cecl_tuning_row_text(const struct cecl_tuning_row *row, char text[CECL_TUNING_TEXT])
{
    char ranks[CECL_TUNING_TEXT], value[CECL_TUNING_TEXT];
    cecl_tuning_ranks_text(row, ranks);
    cecl_tuning_value_text(row->which, row->value, value);
    snprintf(text, CECL_TUNING_TEXT, "%-42s %-5.20s %-6s %.30s", cecl_thresholds[row->which].name,
             ranks, cecl_tuning_device_text(row->device), value);
}
