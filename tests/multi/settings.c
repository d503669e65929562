/* Random settings; see settings.h. */
#include "settings.h"

#include "random_call.h"

/* NULL: the variable is not set. */
static const struct {
    const char *name, *values[4];
} settings[] = {
    {"CECL_CHECK", {NULL, NULL, NULL, "1"}},
    {"CECL_FLAGS", {NULL, NULL, "auto", "host"}},
    {"CECL_SEGMENT_BYTES", {NULL, "4K", "64K", "16M"}},
    {"CECL_STAGING_BYTES", {NULL, "4K", "16K", "1M"}},
    {"CECL_URGENT", {NULL, NULL, "0", "1"}},
};
#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

void settings_draw(uint64_t *x)
{
    for (size_t i = 0; i < SETTINGS; i++)
        multi_setenv(settings[i].name, settings[i].values[random_next(x) % 4]);
}

void settings_clear(void)
{
    for (size_t i = 0; i < SETTINGS; i++)
        multi_setenv(settings[i].name, NULL);
}
