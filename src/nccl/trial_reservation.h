/* Only one communicator of a process has a trial at a time, because trials would measure each other's turns. The first
 * communicator that asks gets the reservation. If its calls begin no new period (trial.h) for a minute, the next one
 * that asks gets the reservation: programs use some communicators only at the start, and never end them. If the trial
 * that lost the reservation then goes on, two trials run at once, which only makes their times less exact.
 *
 * This file knows no clock and no lock. Times are in ns. */
#ifndef CECL_NCCL_TRIAL_RESERVATION_H
#define CECL_NCCL_TRIAL_RESERVATION_H

#include <stdbool.h>
#include <stdint.h>

#define CECL_RESERVATION_IDLE_NS INT64_C(60000000000)

/* Starts zeroed. */
struct cecl_reservation {
    uint64_t id; /* names the communicator */
    int holders; /* how many of the communicator's ranks in this process hold the reservation */
    int64_t used_ns;
};

/* Returns whether communicator `id` has the reservation now. If it has, cecl_reservation_leave must follow. */
static inline bool cecl_reservation_take(struct cecl_reservation *its, uint64_t id, int64_t now_ns)
{
    const bool is_same = its->id == id;
    if (its->holders > 0 && !is_same && now_ns - its->used_ns < CECL_RESERVATION_IDLE_NS)
        return false;
    *its = (struct cecl_reservation){id, is_same ? its->holders + 1 : 1, now_ns};
    return true;
}

/* Notes that the trial of a rank that holds the reservation has reached a boundary. */
static inline void cecl_reservation_use(struct cecl_reservation *its, uint64_t id, int64_t now_ns)
{
    if (its->id == id)
        its->used_ns = now_ns;
}

/* Gives the reservation back. No effect if the reservation was lost. */
static inline void cecl_reservation_leave(struct cecl_reservation *its, uint64_t id)
{
    its->holders -= its->id == id && its->holders > 0;
}

#endif
