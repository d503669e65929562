/* Sets the library's environment variables at random, for tests. */
#ifndef CECL_TEST_SETTINGS_H
#define CECL_TEST_SETTINGS_H

#include <stdint.h>

/* Draws the settings of communicators that are made later. Each setting often has its default. */
void settings_draw(uint64_t *x);
/* Unsets all of these variables. */
void settings_clear(void);

#endif
