/* How a call is carried out, as the tuning table decides. Only choices are here: facts about the call are in call.h,
 * and the communicator's resources for the call in struct cecl_means. */
#ifndef CECL_PLAN_WAY_H
#define CECL_PLAN_WAY_H

#include <stdbool.h>
#include <stdint.h>

struct cecl_call;
struct cecl_tuning;

enum cecl_direction { CECL_PUSH, CECL_PULL };

/* The choices for one call. Equal on all ranks. */
struct cecl_way {
    bool small;          /* one exchange through slots, by one kernel if the device has kernels */
    uint32_t small_sms;  /* the most SMs that a small call's kernel takes */
    bool by_host;        /* the call goes through memory of the host */
    uint32_t splits_sms; /* how many SMs move rows if the splits are on the device */

    /* How copies move blocks. */
    struct {
        enum cecl_direction direction;
        bool no_sm;  /* no copies within one GPU, because these run on SMs */
        bool beside; /* a local copy goes on the side lane, at the same time as the pushes */
        uint64_t
            /* one more peer returns a piece for every so many bytes of the own block */
            piece_worth;
        /* a call with only one block sends it in this many rounds, in pieces that peers pass on; 0: whole */
        uint64_t spread;
    } move;

    /* How SMs reduce blocks. */
    struct {
        /* bytes that each rank reduces; the last ranks may reduce fewer bytes or none */
        uint64_t share;
        bool read_at_peers; /* SMs read the inputs in the peers' memory */
        bool urgent;        /* kernels get SMs before other kernels that wait for SMs */
        bool sms_send;      /* SMs write all results to the peers */
        /* SMs write this many bytes at the end of a share to all peers, copy engines push the rest; 0: none */
        uint64_t sms_end;
        uint64_t chunk; /* bytes of a share in one chunk */
        /* the last chunk is halved into chunks of at least this many bytes; 0: it is not halved */
        uint64_t halved;
        uint64_t one_shot; /* all-reduces of at most this size: every rank reduces everything */
        /* a barrier comes between the last reduction and the copies of results, because receivers may make these
         * copies */
        bool meet_first;
        uint32_t max_sms;  /* the most SMs of a kernel */
        uint64_t bulk_min; /* kernels read sources of at least this many bytes by bulk copies */
    } reduce;
};

/* Whether SMs write results to the peers: all results, or the results at the end of each share. */
static inline bool cecl_way_kernels_send(const struct cecl_way *way)
{
    return way->reduce.sms_send || way->reduce.sms_end > 0;
}

/* What a call may use of the communicator. Equal on all ranks. */
struct cecl_means {
    const struct cecl_tuning *tuning; /* the thresholds in force, for functions that choose a way */
    uint64_t staging_offset;          /* where the call's part of staging begins, on each rank */
    uint64_t staging_bytes;
    /* the table of calls by splits: where it lies, after the staging of other calls, and its size */
    uint64_t table_offset, table_bytes;
    /* where the slots of small calls begin in staging */
    uint64_t slots_offset;
    uint64_t slot_bytes; /* bytes of one slot; 0: there are no slots */
    /* how many bytes a rank may put into memory of the host at a time, which is half of its part;
     * 0: it has no part */
    uint64_t host_bytes;
    /* 0 or 1: which half of the slots, or of the rank's part of host memory, the call uses. Calls alternate
     * between the halves */
    uint8_t half;
    /* Whether ranks share a GPU, so that copies between them stay within it. */
    bool shares_gpu;
    /* Whether kernels of the peers can read every rank's input. */
    bool inputs_readable;
    /* Some ranks are outside (cecl_call_is_outside), and others are not; all ranks know which. */
    bool some_outside;
    /* A rank came late to the call, so ranks that came earlier do not know where the late rank's buffers lie; see
     * route.c. */
    bool late;
};

/* In a reduction through staging, one chunk arrives while SMs reduce another one. */
#define CECL_CHUNKS_IN_FLIGHT 2u
#define CECL_CHUNK_ALIGN 256u

#define CECL_SMALL_RANKS 16 /* the most ranks with which a call may be small */
/* slots also hold flags, between the data, so they take up to this many times the bytes of the data */
#define CECL_SLOT_FACTOR 2

/* -- choose.c: one function for each family of calls chooses by thresholds how a call is carried
 * out. A choice depends on the call, on the number of ranks, and on the communicator's means. It
 * uses only facts that are equal on all ranks. -- */

/* Decides whether the call is small, by a rule for all families, and then calls the function of the call's
 * family. */
void cecl_choose(const struct cecl_call *call, const struct cecl_means *means,
                 struct cecl_way *way);

/* Whether the call is by splits on the device or, if not captured, small or through memory of the host. No copy of such
 * a call touches a peer's buffer, so ranks need not tell each other where their buffers lie. Runs at every call. */
bool cecl_chooses_own_buffers(const struct cecl_call *call, const struct cecl_means *means);

/* cecl_lowerings names these. */
typedef void cecl_choose_fn(const struct cecl_call *call, const struct cecl_means *means,
                            struct cecl_way *way);
cecl_choose_fn cecl_choose_gathered;
cecl_choose_fn cecl_choose_exchanged;
cecl_choose_fn cecl_choose_per_rank;
cecl_choose_fn cecl_choose_reduction;
cecl_choose_fn cecl_choose_carry;
cecl_choose_fn cecl_choose_splits;

#endif
