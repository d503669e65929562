/* Launches that are kept because their programs may run again. A launch is found by its calls with effect,
 * and by what ranks told each other about these calls. A hash of the calls chooses one of several small
 * sets; in a full set the launches are replaced in turn. */
#ifndef CECL_LAUNCH_KEPT_H
#define CECL_LAUNCH_KEPT_H

#include "launch/launch.h"

/* Returns a kept launch that has the same calls as `launch`, and about which ranks told each other the
 * same. NULL: there is no such launch. The peers' memory that the kept program uses stays open while the
 * call is made. */
struct cecl_launch *cecl_kept_find(const struct cecl_launch *launch);
/* Keeps a launch that has a program. May drop another kept launch. */
void cecl_kept_add(struct cecl_launch *launch);

/* Sets the launch's hash, once its calls are complete. Call it before the other functions. */
void cecl_kept_hash(struct cecl_launch *launch);
/* Whether the buffers of these calls were checked, and no memory was freed since then. */
bool cecl_kept_has_checked(const struct cecl_launch *launch);
/* Notes that the buffers were checked, for this launch and for kept launches with equal calls. */
void cecl_kept_checked(struct cecl_launch *launch);

#endif
