/* Settings, names of variables, and files of thresholds, as arbitrary text: each is accepted, or refused by a message
 * that names it. In the environment a text means the same. An accepted file, printed and read again, is unchanged. */
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

static void check_setting(enum cecl_setting_id id, const char *text)
{
    const struct cecl_setting *setting = &cecl_settings[id];
    const int64_t untouched = -77;
    char variable[1000]; /* for putenv: the C library keeps the memory of setenv */
    int64_t value = untouched, of_environment = untouched;
    const ceclResult_t result = cecl_setting_parse(id, text, &value);
    const bool is_good = result == ceclSuccess;
    REQUIRE(is_good || (result == ceclInvalidArgument && value == untouched &&
                        strstr(cecl_message(), setting->name)),
            "%s=%s: result %d, value %lld, \"%s\"", setting->name, text, (int)result,
            (long long)value, cecl_message());
    snprintf(variable, sizeof(variable), "%s=%s", setting->name, text);
    putenv(variable);
    const ceclResult_t read = cecl_setting_read(id, &of_environment);
    const char *words = cecl_setting_text(id);
    REQUIRE(*text ? words && strcmp(words, text) == 0 : !words, "%s=%s is read as %s",
            setting->name, text, words ? words : "nothing");
    unsetenv(setting->name);
    if (*text == '\0') /* an empty value means unset */
        REQUIRE(read == ceclSuccess, "%s has no default", setting->name);
    else
        REQUIRE(read == result && (!is_good || of_environment == value), "%s=%s in the environment",
                setting->name, text);
}

/* The name of a setting must be known. */
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
    check_name(exact);
    free(exact);
}

static void compare_rows(const struct cecl_tuning_file *a, const struct cecl_tuning_file *b)
{
    REQUIRE(a->nrows == b->nrows, "%zu rows, %zu expected", a->nrows, b->nrows);
    for (size_t i = 0; i < a->nrows; i++) {
        const struct cecl_tuning_row *x = &a->rows[i], *y = &b->rows[i];
        REQUIRE(x->which == y->which && x->first == y->first && x->last == y->last &&
                    x->device == y->device && x->value == y->value,
                "row %zu differs", i);
    }
}

/* The value in force must be that of the first row that fits. */
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

static void check_printed(const struct cecl_tuning_file *file)
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
    compare_rows(&again, file);
    cecl_tuning_forget(&again);
    free(text);
}

static void fuzz_file(struct input *in)
{
    struct cecl_tuning_file file;
    const int nranks = 1 + (int)take_below(in, 8);
    const size_t bytes = in->left;
    char *text = copy_of(in->at, bytes);
    const ceclResult_t result = cecl_tuning_parse("a file", text, bytes, &file);
    if (result == ceclSuccess) {
        check_resolved(&file, nranks);
        check_printed(&file);
    } else {
        REQUIRE(result == ceclInvalidArgument, "result %d: %s", (int)result, cecl_message());
        REQUIRE(!file.rows && file.nrows == 0, "a refused file leaves rows");
        REQUIRE(strstr(cecl_message(), "a file:"), "no line is named: %s", cecl_message());
    }
    cecl_tuning_forget(&file);
    free(text);
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
