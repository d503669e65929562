/* Warns of variables that begin with CECL_ but are no settings. Without a warning, a misspelt setting would
 * silently have no effect. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/log.h"
#include "util/settings.h"

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
