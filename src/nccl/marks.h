/* Times within a program's streams. A mark is a place in a stream whose time is noted: on a GPU by an
 * event of a fixed ring, on the host device by the clock. GPUs are behind their hosts, so a time is
 * published once the GPU has come that far. */
#ifndef CECL_NCCL_MARKS_H
#define CECL_NCCL_MARKS_H

#include <stdbool.h>
#include <stdint.h>

#include "learn/trial.h"
#include "nccl/abi.h"

/* So many marks may lie between the host and the GPU. Older ones are lost. A trial has two for each of 60
 * calls, or one for each of 60 periods, so its times are not lost even if the GPU has not begun with it. */
#define CECL_NCCL_MARKS 128u
_Static_assert(CECL_NCCL_MARKS >= 2 * (CECL_TRIAL_COUNTED + 1) * CECL_TRIAL_TURNS,
               "a trial's marks");

struct cecl_nccl_marks {
    int ordinal; /* which GPU; -1: the host device */
    struct cecl_nccl_mark {
        void *event; /* on the host device NULL */
        int64_t ns;  /* its time there */
        bool is_noted;
    } ring[CECL_NCCL_MARKS];
    uint32_t count; /* marks so far; they are numbered from 0 */
    /* Times that are to be published. Each has two marks, so there are never more of them than marks. */
    struct cecl_nccl_time {
        uint32_t from, to; /* its marks */
        uint32_t trial;
        int slot;
    } pending[CECL_NCCL_MARKS];
    uint32_t first_pending, npending;
};

/* Makes the events. If that fails, a line says so, and all times of this rank count as lost; calls go on. */
void cecl_nccl_marks_open(struct cecl_nccl_marks *marks, int ordinal);
void cecl_nccl_marks_close(struct cecl_nccl_marks *marks);

/* Notes the time when `stream` comes here. Returns the mark's number. */
uint32_t cecl_nccl_marks_note(struct cecl_nccl_marks *marks, cudaStream_t stream);

/* The time from mark `from` to mark `to` is that of a slot of trial number `trial`. */
void cecl_nccl_marks_time(struct cecl_nccl_marks *marks, uint32_t from, uint32_t to, uint32_t trial,
                          int slot);

/* Publishes the times that are known by now. */
void cecl_nccl_marks_publish(struct cecl_nccl_marks *marks, struct cecl_trial *trial);

#endif
