/* Settings, names of variables, and files of thresholds, as arbitrary text. A second reader of
 * plain loops decides what must be accepted, and with which value. An accepted file is also
 * printed and read again. */
#include <strings.h>

#include "input.h"
#include "plan/tuning.h"
#include "util/settings.h"

/* A copy that ends with its last byte, so that the address sanitizer detects reads beyond it. */
static char *copy_of(const uint8_t *data, size_t bytes)
{
    char *copy = malloc(bytes + (bytes == 0));
    REQUIRE(copy, "no memory");
    if (bytes > 0)
        memcpy(copy, data, bytes);
    return copy;
}

/* ---- the second reader: numbers */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Computes the number of `length` digits, times a unit. False: the number is too large. */
static bool number_of(const char *at, size_t length, uint64_t unit, uint64_t *value)
{
    *value = 0;
    for (size_t i = 0; i < length; i++)
        if (__builtin_mul_overflow(*value, UINT64_C(10), value) ||
            __builtin_add_overflow(*value, (uint64_t)(at[i] - '0'), value))
            return false;
    return !__builtin_mul_overflow(*value, unit, value);
}

static size_t digits_of(const char *at, size_t length)
{
    size_t digits = 0;
    while (digits < length && is_digit(at[digits]))
        digits++;
    return digits;
}

/* ---- settings */

/* Reads a number with a suffix, if suffixes are allowed. False: not a number. */
static bool read_number(const char *text, size_t length, bool suffixes, uint64_t *value)
{
    static const char letters[] = "KMGTkmgt";
    const size_t digits = digits_of(text, length);
    uint64_t unit = 1;
    if (suffixes && digits + 1 == length)
        for (int i = 0; i < 8; i++)
            if (text[digits] == letters[i])
                unit = UINT64_C(1) << 10 * (i % 4 + 1);
    if (digits == 0 || digits + (unit > 1) != length)
        return false;
    return number_of(text, digits, unit, value) && *value <= INT64_MAX;
}

static bool read_in_range(const char *range, const char *text, bool suffixes, int64_t *result)
{
    const char *dots = strstr(range, "..");
    uint64_t low, high, value;
    REQUIRE(read_number(range, (size_t)(dots - range), true, &low) &&
                read_number(dots + 2, strlen(dots + 2), true, &high),
            "a range: %s", range);
    if (!read_number(text, strlen(text), suffixes, &value) || value < low || value > high)
        return false;
    *result = (int64_t)value;
    return true;
}

/* The position of `text` among the first `most` words of a range; -1: not found. */
static int64_t find_word(const char *range, const char *text, int most)
{
    char words[256];
    snprintf(words, sizeof(words), "%s", range);
    char *next = words;
    for (int i = 0; i < most && next; i++) {
        const char *word = strsep(&next, "|");
        if (strcasecmp(word, text) == 0)
            return i;
    }
    return -1;
}

static int bars_of(const char *range)
{
    int bars = 0;
    for (; *range; range++)
        bars += *range == '|';
    return bars;
}

static bool read_setting(const struct cecl_setting *setting, const char *text, int64_t *value)
{
    const char *range = setting->range;
    switch (setting->kind) {
    case CECL_SETTING_INT: return read_in_range(range, text, false, value);
    case CECL_SETTING_BYTES: return read_in_range(range, text, true, value);
    case CECL_SETTING_CHOICE:
        *value = find_word(range, text, bars_of(range) + 1);
        return *value >= 0;
    case CECL_SETTING_ORDINAL:
        if (read_in_range(strrchr(range, '|') + 1, text, false, value))
            return true;
        *value = -1 - find_word(range, text, bars_of(range));
        return *value < 0;
    case CECL_SETTING_TEXT: break;
    }
    return false;
}

static void check_setting(enum cecl_setting_id id, const char *text)
{
    const struct cecl_setting *setting = &cecl_settings[id];
    const int64_t untouched = -77;
    int64_t value = untouched, expected = untouched;
    const bool is_good = read_setting(setting, text, &expected);
    const ceclResult_t result = cecl_setting_parse(id, text, &value);
    REQUIRE(result == (is_good ? ceclSuccess : ceclInvalidArgument), "%s=%s: result %d",
            setting->name, text, (int)result);
    REQUIRE(value == (is_good ? expected : untouched), "%s=%s: value %lld", setting->name, text,
            (long long)value);
    REQUIRE(is_good || strstr(cecl_message(), setting->name), "%s=%s: the message is \"%s\"",
            setting->name, text, cecl_message());
}

/* Reads the same setting from the environment, where an empty value means unset. */
static void check_environment(enum cecl_setting_id id, const char *text)
{
    const struct cecl_setting *setting = &cecl_settings[id];
    char variable[1000]; /* the C library would keep the memory of each setenv */
    int64_t value = 0, expected = 0;
    bool is_set;
    snprintf(variable, sizeof(variable), "%s=%s", setting->name, text);
    putenv(variable);
    const ceclResult_t result = cecl_setting_read(id, &value, &is_set);
    const char *words = cecl_setting_text(id);
    REQUIRE(*text ? words && strcmp(words, text) == 0 : !words, "%s=%s is read as %s",
            setting->name, text, words ? words : "nothing");
    unsetenv(setting->name);
    if (*text == '\0')
        text = setting->fallback;
    if (strcmp(text, "-") == 0)
        REQUIRE(result == ceclSuccess && !is_set, "%s: set to -", setting->name);
    else
        REQUIRE((result == ceclSuccess) == read_setting(setting, text, &expected) &&
                    (result != ceclSuccess || value == expected),
                "%s=%s in the environment", setting->name, text);
}

/* A setting's name is known. */
static void check_name(const char *name)
{
    bool is_setting = false;
    for (int i = 0; i < CECL_SETTING_COUNT; i++)
        is_setting = is_setting || strcmp(cecl_settings[i].name, name) == 0;
    REQUIRE(!is_setting || cecl_setting_is_known(name), "%s is not known", name);
}

static void fuzz_setting(struct input *in)
{
    const enum cecl_setting_id id = (enum cecl_setting_id)take_below(in, CECL_SETTING_COUNT);
    char text[600] = "";
    memcpy(text, in->at, in->left < sizeof(text) - 1 ? in->left : sizeof(text) - 1);
    char *exact = copy_of((uint8_t *)text, strlen(text) + 1);
    check_setting(id, exact);
    check_environment(id, exact);
    check_name(exact);
    free(exact);
}

/* ---- the second reader: files of thresholds */

#define ROWS_MOST 2000

struct rows {
    size_t count;
    struct cecl_tuning_row at[ROWS_MOST];
};

struct span {
    const char *at;
    size_t length;
};

static bool is_text(struct span word, const char *text)
{
    return word.length == strlen(text) && memcmp(word.at, text, word.length) == 0;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Splits a line into at most 5 words. */
static int words_of(struct span line, struct span words[5])
{
    int count = 0;
    bool inside = false;
    for (size_t i = 0; i < line.length; i++) {
        if (is_blank(line.at[i])) {
            inside = false;
            continue;
        }
        if (!inside && count == 5)
            break;
        if (!inside)
            words[count++] = (struct span){line.at + i, 0};
        inside = true;
        words[count - 1].length++;
    }
    return count;
}

static bool read_count(struct span word, uint64_t *count)
{
    return word.length > 0 && digits_of(word.at, word.length) == word.length &&
           number_of(word.at, word.length, 1, count) && *count >= 1 &&
           *count <= CECL_TUNING_RANKS_MAX;
}

static bool read_ranks(struct span word, struct cecl_tuning_row *row)
{
    uint64_t first = 1, last = CECL_TUNING_EVERY_RANK;
    const char *dash = memchr(word.at, '-', word.length);
    const size_t before = dash ? (size_t)(dash - word.at) : word.length;
    const struct span low = {word.at, before};
    const struct span high = {dash ? dash + 1 : "", dash ? word.length - before - 1 : 0};
    bool is_good = is_text(word, "*");
    if (!is_good && !dash) {
        is_good = read_count(low, &first);
        last = first;
    } else if (!is_good) {
        is_good = read_count(low, &first) &&
                  (is_text(high, "*") || (read_count(high, &last) && last >= first));
    }
    row->first = (uint16_t)first;
    row->last = (uint16_t)last;
    return is_good;
}

static bool read_device(struct span word, struct cecl_tuning_row *row)
{
    row->device = is_text(word, "cuda")   ? CECL_TUNING_CUDA
                  : is_text(word, "host") ? CECL_TUNING_HOST
                                          : CECL_TUNING_ANY;
    return row->device != CECL_TUNING_ANY || is_text(word, "any");
}

static bool read_value(struct span word, struct cecl_tuning_row *row)
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB"};
    const struct cecl_threshold_info *info = &cecl_thresholds[row->which];
    const size_t digits = digits_of(word.at, word.length);
    const struct span unit = {word.at + digits, word.length - digits};
    row->value = CECL_TUNING_NEVER;
    if (is_text(word, "never"))
        return info->most == CECL_TUNING_NEVER;
    for (int i = 0; i < (info->unit == CECL_TUNING_BYTES ? 4 : 1); i++)
        if (digits > 0 && is_text(unit, units[i]))
            return number_of(word.at, digits, UINT64_C(1) << 10 * i, &row->value) &&
                   row->value >= info->least && row->value <= info->most;
    return false;
}

static bool read_row(struct span words[5], int count, struct rows *rows)
{
    struct cecl_tuning_row *row = &rows->at[rows->count];
    int which = 0;
    while (which < CECL_TUNE_COUNT && !is_text(words[0], cecl_thresholds[which].name))
        which++;
    row->which = (enum cecl_threshold)which;
    if (count != 4 || which == CECL_TUNE_COUNT || !read_ranks(words[1], row) ||
        !read_device(words[2], row) || !read_value(words[3], row))
        return false;
    for (size_t i = 0; i < rows->count; i++)
        if (rows->at[i].which == row->which && rows->at[i].first == row->first &&
            rows->at[i].last == row->last && rows->at[i].device == row->device)
            return false;
    rows->count++;
    return true;
}

/* Whether a line is the header: nothing before it, and blanks or a comment after it. */
static bool is_header(struct span line)
{
    while (line.length > 0 && is_blank(line.at[line.length - 1]))
        line.length--;
    return is_text(line, CECL_TUNING_HEADER);
}

/* Reads a line. False: the file must be refused. */
static bool read_line(struct span line, bool *begun, struct rows *rows)
{
    struct span words[5];
    const char *comment = memchr(line.at, '#', line.length);
    if (comment)
        line.length = (size_t)(comment - line.at);
    const int count = words_of(line, words);
    if (count == 0)
        return true;
    if (*begun)
        return read_row(words, count, rows);
    *begun = is_header(line);
    return *begun;
}

static bool read_file(const char *text, size_t bytes, struct rows *rows)
{
    bool begun = false, is_good = true;
    for (size_t at = 0; at < bytes && is_good; at++) {
        const char *end = memchr(text + at, '\n', bytes - at);
        const size_t length = end ? (size_t)(end - text) - at : bytes - at;
        is_good = read_line((struct span){text + at, length}, &begun, rows);
        at += length;
    }
    return is_good && begun;
}

static void compare_rows(const struct cecl_tuning_file *file, const struct rows *rows)
{
    REQUIRE(file->nrows == rows->count, "%zu rows, %zu expected", file->nrows, rows->count);
    for (size_t i = 0; i < rows->count; i++) {
        const struct cecl_tuning_row *a = &file->rows[i], *b = &rows->at[i];
        REQUIRE(a->which == b->which && a->first == b->first && a->last == b->last &&
                    a->device == b->device && a->value == b->value,
                "row %zu differs", i);
    }
}

/* The value in force is that of the first row that fits. */
static void check_resolved(const struct cecl_tuning_file *file, int nranks)
{
    struct cecl_tuning tuning;
    for (int device = 0; device < CECL_TUNING_DEVICES; device++) {
        struct cecl_tuning expected = cecl_tuning_default((enum cecl_tuning_device)device, nranks);
        for (size_t i = file->nrows; i-- > 0;)
            if (file->rows[i].first <= nranks && nranks <= file->rows[i].last &&
                (file->rows[i].device == CECL_TUNING_ANY || (int)file->rows[i].device == device))
                expected.value[file->rows[i].which] = file->rows[i].value;
        cecl_tuning_resolve(file, (enum cecl_tuning_device)device, nranks, &tuning);
        REQUIRE(memcmp(&tuning, &expected, sizeof(tuning)) == 0, "values for %d ranks", nranks);
    }
}

/* Prints all rows, and reads them again. */
static void check_printed(const struct cecl_tuning_file *file, struct rows *rows)
{
    const size_t room = (file->nrows + 1) * (CECL_TUNING_TEXT + 1);
    char *text = malloc(room), line[CECL_TUNING_TEXT];
    REQUIRE(text, "no memory");
    size_t used = (size_t)snprintf(text, room, "%s\n", CECL_TUNING_HEADER);
    for (size_t i = 0; i < file->nrows; i++) {
        cecl_tuning_row_text(&file->rows[i], line);
        used += (size_t)snprintf(text + used, room - used, "%s\n", line);
    }
    struct cecl_tuning_file again;
    REQUIRE(cecl_tuning_parse("printed", text, used, &again) == ceclSuccess, "%s", cecl_message());
    compare_rows(&again, rows);
    cecl_tuning_forget(&again);
    free(text);
}

static void fuzz_file(struct input *in)
{
    static struct rows rows;
    struct cecl_tuning_file file;
    const int nranks = 1 + (int)take_below(in, 8);
    const size_t bytes = in->left;
    char *text = copy_of(in->at, bytes);
    rows.count = 0;
    const bool is_good = read_file(text, bytes, &rows);
    const ceclResult_t result = cecl_tuning_parse("a file", text, bytes, &file);
    REQUIRE(result == (is_good ? ceclSuccess : ceclInvalidArgument), "result %d: %s", (int)result,
            cecl_message());
    if (is_good) {
        compare_rows(&file, &rows);
        check_resolved(&file, nranks);
        check_printed(&file, &rows);
    } else {
        REQUIRE(!file.rows && file.nrows == 0, "a refused file leaves rows");
        REQUIRE(strstr(cecl_message(), "a file:"), "no line is named: %s", cecl_message());
    }
    cecl_tuning_forget(&file);
    free(text);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct input in = {data, bytes < 16384 ? bytes : 16384};
    if (take_below(&in, 2) == 0)
        fuzz_setting(&in);
    else
        fuzz_file(&in);
    return 0;
}
