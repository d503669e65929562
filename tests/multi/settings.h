/* Settings of the library in the environment, drawn at random, for tests. */
#ifndef CECL_TEST_SETTINGS_H
#define CECL_TEST_SETTINGS_H

#include <stdint.h>

/* Sets what the communicators that are made from here on read. Each setting often has its default. */
void settings_draw(uint64_t *x);
/* Takes all of them out of the environment. */
void settings_clear(void);

#endif
