/* Whether a thread that waits for the program's other threads would wait for nobody. */
#ifndef CECL_UTIL_ALONE_H
#define CECL_UTIL_ALONE_H

#include <stdbool.h>

/* Whether the process has no other thread that could make the program's calls. The threads that this
 * library and CUDA keep make none. false where that cannot be found out. It reads /proc: tens of
 * microseconds. */
bool cecl_thread_is_alone(void);

#endif
