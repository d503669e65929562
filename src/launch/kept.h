/* Launches that are kept because their programs may be run again. They are in small sets, whose
 * members are replaced in turn. The key is the calls with effect, and what ranks told each other of
 * these calls. */
#ifndef CECL_LAUNCH_KEPT_H
#define CECL_LAUNCH_KEPT_H

#include "launch/launch.h"

/* Returns a kept launch that has the same calls and was told the same as `launch`, or NULL if none
 * can be used. Peers' memory that its program uses stays open while the call is made. */
struct cecl_launch *cecl_kept_find(const struct cecl_launch *launch);
/* Keeps a launch that has a program. A launch that was kept before may lose its place. */
void cecl_kept_add(struct cecl_launch *launch);

/* Sets the launch's hash, once its calls are complete. To be called before the other functions. */
void cecl_kept_hash(struct cecl_launch *launch);
/* Whether the buffers of these calls were checked, and no memory was freed since. */
bool cecl_kept_has_checked(const struct cecl_launch *launch);
/* Notes that the buffers were checked, for the launch and for kept ones with equal calls. */
void cecl_kept_checked(struct cecl_launch *launch);

#endif
