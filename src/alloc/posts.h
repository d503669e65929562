/* Posts: the two ranks of a message (ceclSend and ceclRecv) tell each other where their buffers
 * lie. This file knows no device and no call, only memory that all ranks of a communicator share.
 *
 * Messages from one rank to another have numbers, 1, 2, and so on, which are equal on both ranks. The shared memory has
 * a ring of slots for each ordered pair of ranks, and a message has one slot:
 *
 *     arrivals | the sender's post | the receiver's post
 *
 * A rank writes its post, and then flips its bit of the word `arrivals` by one atomic operation. So one rank comes
 * first, and the second one reads the first one's post. The first rank does not wait, unless a graph captures the
 * message: then it also reads the second one's post.
 *
 * A slot is used again once both ranks have finished its message. A rank finishes a message once it has arrived and has
 * read the post that it needs.
 *
 * A peer may write anything into the shared memory, or die. Then a rank reads a wrong place, or finds no free slot. No
 * rank reads an index or a size from the shared memory.
 *
 * docs/models/pairs.pml is the model of this protocol. Threads: one at a time for each struct cecl_posts. */
#ifndef CECL_ALLOC_POSTS_H
#define CECL_ALLOC_POSTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/error.h"

/* A communicator of more ranks than this has no rings, because each pair of ranks takes memory for its rings. */
#define CECL_POSTS_RANKS 64

/* What a rank does in a message. The peer has the other role. */
enum cecl_role { CECL_SENDER, CECL_RECEIVER, CECL_ROLES };
static inline enum cecl_role cecl_role_other(enum cecl_role role)
{
    return role == CECL_SENDER ? CECL_RECEIVER : CECL_SENDER;
}

/* A rank's post for one message. The caller defines what the words mean. */
struct cecl_post {
    uint64_t window, offset;
    uint64_t bytes;
    uint64_t version;
    /* the number of the group that has the message; a rank's later groups have higher numbers. For a captured group:
     * its ticket (cecl_posts_ticket) */
    uint64_t group;
    /* not 0: a graph captures the message, so the first rank also reads the second one's post */
    uint64_t captured;
};

/* A rank's view of the shared memory. */
struct cecl_posts {
    char *shared;
    int rank, nranks;
    uint32_t nslots;   /* slots of each ring, a power of two; 0: there are no rings */
    size_t ring_bytes; /* bytes from one ring to the next */
    /* [CECL_ROLES][nranks] the number of the last message with each peer */
    uint64_t *numbers;
};

/* Bytes of the memory that ranks share; 0: there are too many ranks for rings. The memory must be zeroed, and begin at
 * a cache line. */
size_t cecl_posts_bytes(int nranks);

/* Sets up this rank's view of the shared memory.
 *
 * nslots  equal on all ranks. 0: the number of ranks decides. Tests may give a smaller power of two. */
ceclResult_t cecl_posts_open(struct cecl_posts *posts, void *shared, int rank, int nranks,
                             uint32_t nslots);
void cecl_posts_close(struct cecl_posts *posts);

/* Whether there are free slots for this rank's next `count` messages with a peer in this role. If not, the peer must
 * first finish earlier messages. */
bool cecl_posts_room(const struct cecl_posts *posts, enum cecl_role role, int peer, uint32_t count);

/* Whether the peer has posted its end of a message that this rank will post in this role. `ahead` is 1 for the next
 * message, 2 for the one after it. cecl_posts_room must return true for `ahead` messages. */
bool cecl_posts_came(const struct cecl_posts *posts, enum cecl_role role, int peer, uint32_t ahead);

/* Returns the next ticket, which is higher than all tickets that ranks got before. */
uint64_t cecl_posts_ticket(const struct cecl_posts *posts);

/* Posts the next message in this role with a peer. cecl_posts_room must have returned true. A captured
 * message keeps its slot until cecl_posts_finish.
 *
 * number  [out] the message's number.
 * theirs  [out] the peer's post, if it came first.
 *
 * Returns whether the peer came first. */
bool cecl_posts_put(struct cecl_posts *posts, enum cecl_role role, int peer,
                    const struct cecl_post *mine, uint64_t *number, struct cecl_post *theirs);

/* Whether the peer has posted its end of captured message `number`, which this rank has posted. If so, reads the peer's
 * post. */
bool cecl_posts_met(const struct cecl_posts *posts, enum cecl_role role, int peer, uint64_t number,
                    struct cecl_post *theirs);
/* Gives back the slots of all captured messages that this rank has posted in this role with a peer. */
void cecl_posts_finish(const struct cecl_posts *posts, enum cecl_role role, int peer);

#endif
