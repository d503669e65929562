/* Ranks tell each other where the buffers of a call lie.
 *
 * Each rank publishes the places of its buffers in words that all ranks of the host share
 * (alloc/places.h), and reads those of its peers. It does not wait long for a late peer. Calls that
 * touch no buffer of a peer, such as small calls, are not told. */
#ifndef CECL_COMM_TELL_H
#define CECL_COMM_TELL_H

#include "alloc/places.h"
#include "ce/engine.h"

/* What a communicator needs to tell, and to be told. */
struct cecl_teller {
    struct cecl_places places;
    struct cecl_places_group group; /* the calls that are told now */
    bool is_open;                   /* they are published, and their outcome is not known yet */
    bool owes;                      /* they are published, and not enqueued yet */
    int64_t deadline;               /* of the waits for them */
    struct cecl_place_record *records;
    struct cecl_buffer *lent; /* this rank's inputs, or bounce buffers in their place */
    struct cecl_peer_buffer *buffers;
    uint64_t *send_at, *outside;
    uint32_t room; /* calls for which these five have room */
};

void cecl_teller_close(struct cecl_teller *teller);

/* Makes sure that the call's windows are of the memory that is there now, and registers memory that
 * no window holds, where the communicator does that. *changed: the call must be described again. */
ceclResult_t cecl_tell_settle(ceclComm_t comm, const struct cecl_call *call, bool *changed);

/* Makes room to publish so many calls. It is asked for before ranks agree that nobody refuses. */
ceclResult_t cecl_tell_reserve(ceclComm_t comm, uint32_t count);
/* Publishes this rank's places of calls that are carried out as one. After that the calls must be
 * carried out, or the communicator fails: peers rely on them. A call that is not told has the
 * result success. */
ceclResult_t cecl_tell_publish(ceclComm_t comm, const struct cecl_call *calls, uint32_t count);
/* Learns what peers published of the same calls. *told is valid until the next call. */
ceclResult_t cecl_tell_learn(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                             struct cecl_told *told);

/* The calls that were published will not be carried out, because of an error whose message is
 * recorded: the communicator fails. No effect where nothing was published. Returns the
 * communicator's error, or this one. */
ceclResult_t cecl_tell_break(ceclComm_t comm, ceclResult_t result);

/* Whether this communicator's waits for peers go on: it has not failed, and it is in time. */
bool cecl_tell_goes_on(void *comm);

/* What this rank would tell, for explaining calls: as if all ranks' buffers lay as this one's. */
struct cecl_told cecl_tell_alone(const struct cecl_call *calls, uint32_t count);

#endif
