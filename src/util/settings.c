/* Parses the environment's settings as the table in settings.h says. */
#include "util/settings.h"

#include <ctype.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "util/log.h"

const struct cecl_setting cecl_settings[CECL_SETTING_COUNT] = {
#define CECL_SETTING_ROW(id, name, kind, ranks, fallback, otherwise, range, doc) \
    {name, CECL_SETTING_##kind, CECL_SETTING_##ranks, fallback, otherwise, range, doc},
    CECL_SETTINGS(CECL_SETTING_ROW)
#undef CECL_SETTING_ROW
};

/* The position of `text` among the choices of `range`, ignoring case; -1 if `text` is not one of them. */
static int64_t choice_of(const char *range, const char *text)
{
    size_t length = strlen(text);
    int64_t position = 0;
    for (const char *choice = range; *choice; position++) {
        size_t width = strcspn(choice, "|");
        if (width == length && strncasecmp(choice, text, width) == 0)
            return position;
        choice += width + (choice[width] == '|');
    }
    return -1;
}

/* Parses a number with an optional binary suffix. *end is the first character after number and suffix. Returns false if
 * there is no number or the number overflows. */
static bool number_of(const char *text, bool suffixes, int64_t *value, const char **end)
{
    if (!isdigit((unsigned char)*text))
        return false;
    char *stop;
    errno = 0;
    long long number = strtoll(text, &stop, 10);
    if (errno != 0)
        return false;
    static const char units[] = "KMGT";
    const char *unit = suffixes && *stop ? strchr(units, toupper((unsigned char)*stop)) : NULL;
    const int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    *end = stop + (unit != NULL);
    if (number > (INT64_MAX >> shift))
        return false;
    *value = (int64_t)number << shift;
    return true;
}

static bool number_in(const char *range, bool suffixes, const char *text, int64_t *value)
{
    int64_t low, high;
    const char *end;
    return number_of(text, suffixes, value, &end) && *end == '\0' &&
           number_of(range, suffixes, &low, &end) && strncmp(end, "..", 2) == 0 &&
           number_of(end + 2, suffixes, &high, &end) && *value >= low && *value <= high;
}

/* Parses a word or a number. `range` has the words first and the numbers last. False: `text` is neither. */
static bool ordinal_of(const char *range, const char *text, int64_t *value)
{
    const char *numbers = strrchr(range, '|') + 1;
    if (number_in(numbers, false, text, value))
        return true;
    const int64_t position = choice_of(range, text);
    *value = -1 - position;
    return position >= 0 && strcmp(text, numbers) != 0;
}

static bool value_of(const struct cecl_setting *setting, const char *text, int64_t *value)
{
    switch (setting->kind) {
    case CECL_SETTING_CHOICE: *value = choice_of(setting->range, text); return *value >= 0;
    case CECL_SETTING_ORDINAL: return ordinal_of(setting->range, text, value);
    case CECL_SETTING_INT: return number_in(setting->range, false, text, value);
    case CECL_SETTING_BYTES: return number_in(setting->range, true, text, value);
    case CECL_SETTING_TEXT: break;
    }
    return false;
}

ceclResult_t cecl_setting_parse(enum cecl_setting_id id, const char *text, int64_t *value)
{
    static const char *const expected[] = {
        [CECL_SETTING_INT] = "a number in",
        [CECL_SETTING_BYTES] = "bytes with optional K, M, G, T in",
        [CECL_SETTING_CHOICE] = "one of",
        [CECL_SETTING_ORDINAL] = "one of",
        [CECL_SETTING_TEXT] = "",
    };
    const struct cecl_setting *setting = &cecl_settings[id];
    int64_t parsed;
    if (!value_of(setting, text, &parsed))
        return cecl_fail(ceclInvalidArgument, "%s=%s: %s %s expected", setting->name, text,
                         expected[setting->kind], setting->range);
    *value = parsed;
    return ceclSuccess;
}

ceclResult_t cecl_setting_read(enum cecl_setting_id id, int64_t *value)
{
    const char *text = getenv(cecl_settings[id].name);
    const bool is_set = text && *text;
    if (!is_set)
        text = cecl_settings[id].fallback;
    return is_set || strcmp(text, "-") != 0 ? cecl_setting_parse(id, text, value) : ceclSuccess;
}

const char *cecl_setting_text(enum cecl_setting_id id)
{
    const char *text = getenv(cecl_settings[id].name);
    return text && *text ? text : NULL;
}

const char *cecl_setting_default(enum cecl_setting_id id)
{
    const struct cecl_setting *setting = &cecl_settings[id];
    return strcmp(setting->fallback, "-") == 0 ? setting->otherwise : setting->fallback;
}

/* ---- variables that begin with CECL_ but are not settings. A warning names them, because a misspelt setting would
 * silently have no effect. */

#define PREFIX "CECL_"
#define PREFIX_LENGTH (sizeof(PREFIX) - 1)
static const char *const other_names[] = {CECL_OTHER_NAMES};

bool cecl_setting_is_known(const char *name)
{
    for (int id = 0; id < CECL_SETTING_COUNT; id++)
        if (strcmp(name, cecl_settings[id].name) == 0)
            return true;
    for (size_t i = 0; i < sizeof(other_names) / sizeof(other_names[0]); i++) {
        const size_t length = strlen(other_names[i]);
        const bool is_family = other_names[i][length - 1] == '_';
        if (is_family ? strncmp(name, other_names[i], length) == 0
                      : strcmp(name, other_names[i]) == 0)
            return true;
    }
    return false;
}

/* Looks at one `variable`, "NAME=VALUE". An empty value counts as not set. */
static void look_at(const char *variable)
{
    char name[128];
    const size_t length = strcspn(variable, "=");
    if (strncmp(variable, PREFIX, PREFIX_LENGTH) != 0 || length >= sizeof(name) ||
        variable[length] == '\0' || variable[length + 1] == '\0')
        return;
    memcpy(name, variable, length);
    name[length] = '\0';
    if (cecl_setting_is_known(name))
        return;
    cecl_log(CECL_LOG_WARN, -1,
             "%s has no effect: there is no such setting (docs/env.md lists them all)", name);
}

void cecl_settings_warn(void)
{
    static atomic_flag done = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&done))
        return;
    for (char **variable = environ; variable && *variable; variable++)
        look_at(*variable);
}
