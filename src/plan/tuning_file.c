/* Reads a file of thresholds. An invalid line is refused, and the message has its number. */
#include "plan/tuning.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/file.h"
#include "util/grow.h"

#define MOST_BYTES ((size_t)1 << 20) /* the most bytes of a file */
#define WORDS 4                      /* words of a row: name, ranks, device, value */
#define SHOWN 60 /* a message shows at most this many bytes of an invalid word */

struct word {
    const char *at;
    size_t length;
};

struct reader {
    const char *name; /* the file's name */
    int line;
    bool begun; /* the header was read */
    struct cecl_tuning_file *file;
    size_t room; /* room for this many rows in `file` */
};

/* Refuses the current line. The message says what was found and what was expected. */
static ceclResult_t refuse(const struct reader *reader, struct word found, const char *expected)
{
    char shown[SHOWN + 1];
    const size_t length = found.length < SHOWN ? found.length : SHOWN;
    for (size_t i = 0; i < length; i++)
        shown[i] = (char)(isprint((unsigned char)found.at[i]) ? found.at[i] : '?');
    shown[length] = '\0';
    return cecl_fail(ceclInvalidArgument, "CECL_TUNING: %.150s:%d: \"%s\": %s expected",
                     reader->name, reader->line, shown, expected);
}

static bool is_word(struct word word, const char *text)
{
    return word.length == strlen(text) && memcmp(word.at, text, word.length) == 0;
}

/* ---- words of a line */

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Splits a line into words. Returns their number, or WORDS + 1 if the line has more than WORDS. */
static int split(const char *at, size_t length, struct word words[WORDS + 1])
{
    const char *const end = at + length;
    int count = 0;
    while (count <= WORDS) {
        while (at < end && is_space(*at))
            at++;
        if (at == end)
            break;
        words[count] = (struct word){.at = at};
        while (at < end && !is_space(*at))
            at++;
        words[count].length = (size_t)(at - words[count].at);
        count++;
    }
    return count;
}

/* ---- parts of a row */

/* Reads the digits at the beginning of `word`, and removes them from it. Returns false if there are no
 * digits, or if the number overflows. */
static bool take_number(struct word *word, uint64_t *value)
{
    const char *const begin = word->at;
    *value = 0;
    while (word->length > 0 && isdigit((unsigned char)*word->at)) {
        const uint64_t digit = (uint64_t)(*word->at - '0');
        if (*value > (UINT64_MAX - digit) / 10)
            return false;
        *value = *value * 10 + digit;
        word->at++;
        word->length--;
    }
    return word->at != begin;
}

static ceclResult_t parse_name(const struct reader *reader, struct word word,
                               enum cecl_threshold *which)
{
    for (int t = 0; t < CECL_TUNE_COUNT; t++)
        if (is_word(word, cecl_thresholds[t].name)) {
            *which = (enum cecl_threshold)t;
            return ceclSuccess;
        }
    return refuse(reader, word, "a threshold that cecl_info --tuning lists");
}

/* Reads ranks in one of the forms 2, 3-8, 6-* and *. */
static bool take_ranks(struct word word, uint64_t *first, uint64_t *last)
{
    *first = 1;
    *last = CECL_TUNING_EVERY_RANK;
    if (is_word(word, "*"))
        return true;
    if (!take_number(&word, first) || *first < 1 || *first > CECL_TUNING_RANKS_MAX)
        return false;
    if (word.length == 0) {
        *last = *first;
        return true;
    }
    if (*word.at != '-')
        return false;
    word.at++;
    word.length--;
    if (is_word(word, "*"))
        return true;
    return take_number(&word, last) && word.length == 0 && *last >= *first &&
           *last <= CECL_TUNING_RANKS_MAX;
}

static ceclResult_t parse_ranks(const struct reader *reader, struct word word,
                                struct cecl_tuning_row *row)
{
    uint64_t first, last;
    if (!take_ranks(word, &first, &last))
        return refuse(reader, word, "ranks as 2, 3-8, 6-* or *, 1 to 1024,");
    row->first = (uint16_t)first;
    row->last = (uint16_t)last;
    return ceclSuccess;
}

static ceclResult_t parse_device(const struct reader *reader, struct word word,
                                 struct cecl_tuning_row *row)
{
    for (int d = 0; d <= CECL_TUNING_ANY; d++)
        if (is_word(word, cecl_tuning_device_text((enum cecl_tuning_device)d))) {
            row->device = (enum cecl_tuning_device)d;
            return ceclSuccess;
        }
    return refuse(reader, word, "a device, any, cuda or host,");
}

static bool take_value(struct word word, bool bytes, uint64_t *value)
{
    static const char *const suffixes[] = {"", "KiB", "MiB", "GiB"};
    if (!take_number(&word, value))
        return false;
    for (int s = 0; s < (bytes ? 4 : 1); s++)
        if (is_word(word, suffixes[s]) && *value <= UINT64_MAX >> (10 * s)) {
            *value <<= 10 * s;
            return true;
        }
    return false;
}

static ceclResult_t parse_value(const struct reader *reader, struct word word,
                                struct cecl_tuning_row *row)
{
    const struct cecl_threshold_info *info = &cecl_thresholds[row->which];
    const bool bytes = info->unit == CECL_TUNING_BYTES, never = info->most == CECL_TUNING_NEVER;
    char least[CECL_TUNING_TEXT], most[CECL_TUNING_TEXT], expected[160];
    if (never && is_word(word, "never")) {
        row->value = CECL_TUNING_NEVER;
        return ceclSuccess;
    }
    if (take_value(word, bytes, &row->value) && row->value >= info->least &&
        row->value <= info->most)
        return ceclSuccess;
    cecl_tuning_value_text(row->which, info->least, least);
    cecl_tuning_value_text(row->which, info->most, most);
    snprintf(expected, sizeof(expected), "%s%.30s to %.30s%s,",
             bytes ? "bytes, with KiB, MiB or GiB if wanted, " : "a whole number, ", least,
             never ? "any" : most, never ? ", or never" : "");
    return refuse(reader, word, expected);
}

/* ---- rows */

static ceclResult_t check_new(const struct reader *reader, struct word name,
                              const struct cecl_tuning_row *row)
{
    char expected[80];
    for (size_t i = 0; i < reader->file->nrows; i++) {
        const struct cecl_tuning_row *other = &reader->file->rows[i];
        if (other->which != row->which || other->first != row->first || other->last != row->last ||
            other->device != row->device)
            continue;
        snprintf(expected, sizeof(expected),
                 "only one row for these ranks and this device (line %d has it)", other->line);
        return refuse(reader, name, expected);
    }
    return ceclSuccess;
}

static ceclResult_t add_row(struct reader *reader, const struct cecl_tuning_row *row)
{
    struct cecl_tuning_file *const file = reader->file;
    if (!CECL_HAS_ROOM(file->rows, file->nrows, reader->room))
        return cecl_fail(ceclOutOfMemory, "CECL_TUNING: no host memory for %zu rows",
                         file->nrows + 1);
    file->rows[file->nrows++] = *row;
    return ceclSuccess;
}

static ceclResult_t parse_row(struct reader *reader, const struct word words[WORDS])
{
    struct cecl_tuning_row row = {.line = reader->line};
    CECL_TRY(parse_name(reader, words[0], &row.which));
    CECL_TRY(parse_ranks(reader, words[1], &row));
    CECL_TRY(parse_device(reader, words[2], &row));
    CECL_TRY(parse_value(reader, words[3], &row));
    CECL_TRY(check_new(reader, words[0], &row));
    return add_row(reader, &row);
}

static ceclResult_t parse_line(struct reader *reader, struct word line)
{
    struct word words[WORDS + 1];
    const char *comment = memchr(line.at, '#', line.length);
    if (comment)
        line.length = (size_t)(comment - line.at);
    while (line.length > 0 && is_space(line.at[line.length - 1]))
        line.length--;
    const int count = split(line.at, line.length, words);
    if (count == 0)
        return ceclSuccess;
    if (!reader->begun) {
        reader->begun = is_word(line, CECL_TUNING_HEADER);
        return reader->begun ? ceclSuccess
                             : refuse(reader, line, "the first line " CECL_TUNING_HEADER);
    }
    if (count != WORDS)
        return refuse(reader, line, "four words, name, ranks, device and value,");
    return parse_row(reader, words);
}

static ceclResult_t parse_all(struct reader *reader, const char *text, size_t bytes)
{
    const char *const end = text + bytes;
    while (text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        if (!stop)
            stop = end;
        reader->line++;
        CECL_TRY(parse_line(reader, (struct word){text, (size_t)(stop - text)}));
        text = stop < end ? stop + 1 : end;
    }
    if (reader->begun)
        return ceclSuccess;
    reader->line++;
    return refuse(reader, (struct word){"", 0}, "the first line " CECL_TUNING_HEADER);
}

ceclResult_t cecl_tuning_parse(const char *name, const char *text, size_t bytes,
                               struct cecl_tuning_file *file)
{
    struct reader reader = {.name = name, .file = file};
    *file = (struct cecl_tuning_file){0};
    const ceclResult_t result = parse_all(&reader, text, bytes);
    if (result != ceclSuccess)
        cecl_tuning_forget(file);
    return result;
}

ceclResult_t cecl_tuning_read(const char *path, struct cecl_tuning_file *file)
{
    *file = (struct cecl_tuning_file){0};
    char *text = malloc(MOST_BYTES + 1);
    if (!text)
        return cecl_fail(ceclOutOfMemory, "CECL_TUNING=%.150s: no host memory to read it", path);
    const char *other = cecl_file_other_kind(path);
    FILE *in = other ? NULL : fopen(path, "re");
    errno = in ? 0 : errno;
    const size_t bytes = in ? fread(text, 1, MOST_BYTES + 1, in) : 0;
    const int error = !in || ferror(in) ? errno : 0;
    if (in)
        fclose(in);
    ceclResult_t result;
    if (other)
        result = cecl_fail(ceclInvalidArgument,
                           "CECL_TUNING=%.150s: %s: a file of thresholds expected", path, other);
    else if (error != 0)
        result = cecl_fail(error == EMFILE || error == ENFILE ? ceclSystemError
                           : error == ENOMEM                  ? ceclOutOfMemory
                                                              : ceclInvalidArgument,
                           "CECL_TUNING=%.150s: %s: a file of thresholds expected", path,
                           strerror(error));
    else if (bytes > MOST_BYTES)
        result =
            cecl_fail(ceclInvalidArgument,
                      "CECL_TUNING=%.150s: a file of at most %zu bytes expected", path, MOST_BYTES);
    else
        result = cecl_tuning_parse(path, text, bytes, file);
    free(text);
    return result;
}

void cecl_tuning_forget(struct cecl_tuning_file *file)
{
    free(file->rows);
    *file = (struct cecl_tuning_file){0};
}
