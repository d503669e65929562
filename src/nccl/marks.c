/* See marks.h. */
#include "nccl/marks.h"

#include "nccl/gpu.h"
#include "util/clock.h"
#include "util/log.h"

void cecl_nccl_marks_open(struct cecl_nccl_marks *marks, int ordinal)
{
    void *events[CECL_NCCL_MARKS] = {NULL};
    marks->ordinal = ordinal;
    if (ordinal >= 0 &&
        cecl_nccl_gpu_make_events(ordinal, events, CECL_NCCL_MARKS) != ceclSuccess) {
        cecl_log(CECL_LOG_WARN, -1, "no trials: %s", cecl_message());
        return;
    }
    for (uint32_t i = 0; i < CECL_NCCL_MARKS; i++)
        marks->ring[i].event = events[i];
}

void cecl_nccl_marks_close(struct cecl_nccl_marks *marks)
{
    void *events[CECL_NCCL_MARKS];
    for (uint32_t i = 0; i < CECL_NCCL_MARKS; i++)
        events[i] = marks->ring[i].event;
    if (marks->ordinal >= 0)
        cecl_nccl_gpu_free_events(marks->ordinal, events, CECL_NCCL_MARKS);
}

uint32_t cecl_nccl_marks_note(struct cecl_nccl_marks *marks, cudaStream_t stream)
{
    struct cecl_nccl_mark *here = &marks->ring[marks->count % CECL_NCCL_MARKS];
    here->ns = cecl_now_ns();
    here->is_noted = marks->ordinal < 0 || (here->event && cecl_nccl_gpu_note(here->event, stream));
    return marks->count++;
}

/* Returns false if the GPU has not reached the second mark. *ns is 0 if the time cannot be measured any more. */
static bool time_between(struct cecl_nccl_marks *marks, const struct cecl_nccl_time *time,
                         uint64_t *ns)
{
    const struct cecl_nccl_mark *from = &marks->ring[time->from % CECL_NCCL_MARKS],
                                *to = &marks->ring[time->to % CECL_NCCL_MARKS];
    *ns = 0;
    if (marks->count - time->from > CECL_NCCL_MARKS || !from->is_noted || !to->is_noted)
        return true;
    if (marks->ordinal >= 0)
        return cecl_nccl_gpu_elapsed(from->event, to->event, ns);
    *ns = (uint64_t)(to->ns - from->ns);
    return true;
}

void cecl_nccl_marks_publish(struct cecl_nccl_marks *marks, struct cecl_trial *trial)
{
    while (marks->npending > 0) {
        const struct cecl_nccl_time *first =
            &marks->pending[marks->first_pending % CECL_NCCL_MARKS];
        uint64_t ns;
        if (!time_between(marks, first, &ns))
            return;
        cecl_trial_publish(trial, first->trial, first->sample, ns);
        marks->first_pending++;
        marks->npending--;
    }
}

void cecl_nccl_marks_time(struct cecl_nccl_marks *marks, uint32_t from, uint32_t to, uint32_t trial,
                          int sample)
{
    if (marks->npending == CECL_NCCL_MARKS) { /* the oldest time's marks have been reused */
        marks->first_pending++;
        marks->npending--;
    }
    marks->pending[(marks->first_pending + marks->npending++) % CECL_NCCL_MARKS] =
        (struct cecl_nccl_time){from, to, trial, sample};
}
