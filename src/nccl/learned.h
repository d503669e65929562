/* The file that CECL_NCCL_LEARNED names, in this process: it is read once, at the first
 * communicator under CECL_NCCL=auto, and a row is added when a trial has decided
 * (learned_file.h). */
#ifndef CECL_NCCL_LEARNED_H
#define CECL_NCCL_LEARNED_H

#include "nccl/learned_file.h"

/* What the file has for one setup. Never freed. */
struct cecl_nccl_known {
    struct cecl_nccl_known *next;
    struct cecl_nccl_setup setup;
    bool has_verdicts; /* when the file was read */
    struct cecl_nccl_gain *gains;
    size_t ngains;
    /* a hash of the gains, which ranks use only if all have the same hash. 0: there are no gains */
    uint64_t hash;
};

/* What the file has for a communicator. NULL: no file is named, or it cannot be used, which is
 * printed.
 *
 * ordinal  which GPU; -1: the host device
 * speaks print what does not fit, once in a process */
const struct cecl_nccl_known *cecl_nccl_learned_of(int ordinal, int nranks, bool speaks);

/* The verdict on a period. False: there is none. */
bool cecl_nccl_learned_recall(const struct cecl_nccl_known *known, uint64_t subject,
                              struct cecl_nccl_verdict *verdict);

/* Keeps a verdict; its setup need not be filled in. If the file already has that way for the
 * period, nothing is written, so that a long run does not fill the file. */
void cecl_nccl_learned_keep(const struct cecl_nccl_known *known, struct cecl_nccl_verdict verdict);

/* The file's name. */
const char *cecl_nccl_learned_name(void);

#endif
