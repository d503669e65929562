#ifndef CECL_TESTS_DECIMAL_COMMA_H
#define CECL_TESTS_DECIMAL_COMMA_H

#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* Switches to a locale with a decimal comma. False: this system has none. */
static inline bool take_decimal_comma(void)
{
    char folder[] = "/tmp/cecl_locale_XXXXXX", command[256];
    bool is = mkdtemp(folder) != NULL;
    snprintf(command, sizeof(command),
             "localedef --no-archive -i de_DE -f UTF-8 %s/comma >/dev/null 2>&1", folder);
    is = is && system(command) == 0 && setenv("LOCPATH", folder, 1) == 0 &&
         setlocale(LC_ALL, "comma") != NULL;
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command) == 0 && is;
}

#endif
