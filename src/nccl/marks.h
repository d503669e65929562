/* Measures times in a program's streams. A mark notes when a stream reaches a point: on a GPU by an event from a ring,
 * on the host device by the clock. A time is the difference of two marks. A GPU may be behind its host, so a time is
 * published only after the GPU has reached the second mark. */
#ifndef CECL_NCCL_MARKS_H
#define CECL_NCCL_MARKS_H

#include <stdbool.h>
#include <stdint.h>

#include "nccl/abi.h"
#include "nccl/trial.h"

/* If a host is more than this many marks ahead of its GPU, the oldest marks are lost. A trial of whole steps has 60
 * periods, with a mark each. So its times are not lost even if the host has enqueued the whole trial before the GPU
 * begins. */
#define CECL_NCCL_MARKS 128u
_Static_assert(CECL_NCCL_MARKS >= (CECL_TRIAL_COUNTED + 1) * CECL_TRIAL_TURNS, "a trial's marks");

struct cecl_nccl_marks {
    int ordinal; /* which GPU; -1: the host device */
    struct cecl_nccl_mark {
        void *event; /* NULL on the host device */
        int64_t ns;  /* the mark's time on the host device */
        bool is_noted;
    } ring[CECL_NCCL_MARKS];
    uint32_t count; /* number of marks so far; they are numbered from 0 */
    /* Times that are not published yet. */
    struct cecl_nccl_time {
        uint32_t from, to; /* the time's marks */
        uint32_t trial;
        int sample;
    } pending[CECL_NCCL_MARKS];
    uint32_t first_pending, npending;
};

/* Makes the events. If CUDA refuses them, prints a warning, and all times of this rank count as not measured. */
void cecl_nccl_marks_open(struct cecl_nccl_marks *marks, int ordinal);
void cecl_nccl_marks_close(struct cecl_nccl_marks *marks);

/* Notes the time at which `stream` reaches this point. Returns the mark's number. */
uint32_t cecl_nccl_marks_note(struct cecl_nccl_marks *marks, cudaStream_t stream);

/* Adds a time that is to be published: from mark `from` to mark `to`, for a sample of trial number `trial`. */
void cecl_nccl_marks_time(struct cecl_nccl_marks *marks, uint32_t from, uint32_t to, uint32_t trial,
                          int sample);

/* Publishes the times that are known now, in the order in which they were added. */
void cecl_nccl_marks_publish(struct cecl_nccl_marks *marks, struct cecl_trial *trial);

#endif
