/* Launches that are kept because their programs may be run again. They are in sets of a few, whose
 * members are replaced in turn. The key is the calls with effect, and what ranks told of these
 * calls. */
#ifndef CECL_LAUNCH_KEPT_H
#define CECL_LAUNCH_KEPT_H

#include "launch/launch.h"

/* Returns the kept launch with the calls of `launch` and what was told of them, or NULL if there is
 * none that can be used. What its program uses of peers stays open while the call is made. */
struct cecl_launch *cecl_kept_find(const struct cecl_launch *launch);
/* Keeps a launch that has a program; another one may lose its place. */
void cecl_kept_add(struct cecl_launch *launch);

/* Sets the launch's hash; to be called before the others, once its calls are complete. */
void cecl_kept_hash(struct cecl_launch *launch);
/* Whether the buffers of these calls were checked, and no memory was freed since. */
bool cecl_kept_has_checked(const struct cecl_launch *launch);
/* Notes that they were checked, for the launch and the kept ones with equal calls. */
void cecl_kept_checked(struct cecl_launch *launch);

#endif
