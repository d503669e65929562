/* How a call goes: what the tuning table chose for it. Facts about the call are in call.h, and what the
 * communicator lends it is in struct cecl_means: choices and facts never share a field. */
#ifndef CECL_CALL_WAY_H
#define CECL_CALL_WAY_H

#include <stdbool.h>
#include <stdint.h>

struct cecl_tuning;

enum cecl_direction { CECL_PUSH, CECL_PULL };

/* All equal on all ranks. */
struct cecl_way {
    bool small;         /* one exchange through slots, by one kernel where the device has kernels */
    uint32_t small_sms; /* which takes at most so many SMs */

    /* How blocks are moved by copies. */
    struct {
        enum cecl_direction direction;
        bool no_sm;  /* nothing is copied within one GPU, unless a copy engine does it */
        bool beside; /* a local copy goes on the side lane, beside what is pushed */
        uint64_t
            piece_worth; /* ask one more peer to return a piece of the own block for so many bytes */
        /* Rounds in which the only block of a call goes in pieces that peers pass on; 0: it goes
         * whole. */
        uint64_t spread;
    } move;

    /* How blocks are reduced. */
    struct {
        uint64_t share; /* bytes that each rank reduces for all, the last ones less or nothing */
        bool read_at_peers; /* SMs read inputs at the peers */
        bool urgent;        /* kernels come before others that wait for an SM */
        bool sms_send;      /* SMs write what they reduced at the peers: all of it, */
        uint64_t sms_end;   /* or the last so many bytes of a share alone; 0: none */
        uint64_t chunk;     /* bytes of a share that go through staging at a time */
        uint64_t halved;    /* the last chunk is halved into parts of no less; 0: it is not */
        uint64_t one_shot;  /* up to so many bytes every rank reduces everything */
        uint32_t max_sms;   /* of a kernel */
        uint64_t bulk_min;  /* kernels read sources of so many bytes by bulk copies */
    } reduce;
};

/* What the communicator lends a call. Equal on all ranks. */
struct cecl_means {
    const struct cecl_tuning *tuning; /* the thresholds in force; for choosing a way alone */
    uint64_t staging_offset;          /* the call's share of staging, on each rank */
    uint64_t staging_bytes;
    uint64_t slots_offset; /* slots of small calls lie in staging, behind all shares */
    uint64_t slot_bytes;   /* of each; 0: there are none */
    uint8_t half;          /* 0 or 1: which slots; another one than the small call before had */
    /* A copy engine runs the copies within a GPU that this call would make: tried at init. */
    bool engine_copies_locally;
};

/* A reduction by staging: one chunk arrives while another is reduced. */
#define CECL_CHUNKS_IN_FLIGHT 2u
#define CECL_CHUNK_ALIGN 256u

#define CECL_SMALL_RANKS 16 /* small calls have at most so many */
#define CECL_SLOT_FACTOR 2  /* on a GPU flags stand between data; the shortest slots need this */

#endif
