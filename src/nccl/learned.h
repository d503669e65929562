/* The file that CECL_NCCL_LEARNED names. A process reads it once, when it makes its first communicator
 * under CECL_NCCL=auto, and adds a row for each verdict of a trial (learned_file.h). */
#ifndef CECL_NCCL_LEARNED_H
#define CECL_NCCL_LEARNED_H

#include "nccl/learned_file.h"

/* What the file has for one setup. Never freed. */
struct cecl_nccl_known {
    struct cecl_nccl_known *next;
    struct cecl_nccl_setup setup;
    bool has_verdicts; /* whether the file had verdicts when it was read */
    struct cecl_nccl_gain *gains;
    size_t ngains;
    /* a hash of the gains. Ranks use gains only if all have the same hash. 0: there are no gains */
    uint64_t hash;
};

/* What the file has for a communicator. NULL: no file is named, or the file cannot be used, which was
 * printed.
 *
 * ordinal  which GPU; -1: the host device
 * nodes    [nranks] the number of each rank's node. NULL: the ranks do not know their nodes yet. Then the result
 *          has what the file says for any nodes, to compare it with other ranks' files
 * speaks   if the file has no row for this setup, print why, once in a process */
const struct cecl_nccl_known *cecl_nccl_learned_of(int ordinal, int nranks, const int *nodes,
                                                   bool speaks);

/* Finds the verdict on a period or a class. False: there is none. */
bool cecl_nccl_learned_recall(const struct cecl_nccl_known *known, uint64_t subject,
                              struct cecl_nccl_verdict *verdict);

/* Adds a verdict, whose setup need not be filled in. Writes nothing if the file already has the same way
 * for the period, so that a long run does not fill the file. */
void cecl_nccl_learned_keep(const struct cecl_nccl_known *known, struct cecl_nccl_verdict verdict);

/* The file's name. */
const char *cecl_nccl_learned_name(void);

#endif
