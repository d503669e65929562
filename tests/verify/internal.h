/* What the verifier's files share. */
#ifndef CECL_VERIFY_INTERNAL_H
#define CECL_VERIFY_INTERNAL_H

#include "plan/block.h"
#include "verify/verify.h"

/* Where byte `at` of the tiles for rank `to` lies in sendbuff; `at` counts as if the tiles were dense. */
static inline uint64_t verify_tile_byte(const struct cecl_call *call, int to, uint64_t at)
{
    const uint64_t bytes = call->view.shape.width * cecl_tile_rows(call);
    return cecl_tile_begin(call, to, at / bytes) +
           cecl_offset_within(call, call->view.shape.send_pitch, at % bytes);
}

/* An access to some bytes of one rank's area. */
struct verify_access {
    uint64_t low, high; /* bytes [low, high) */
    uint32_t actor;     /* who makes the access */
    uint32_t event;     /* the number of that actor's event, from 1 on */
    bool write;
};

struct verify_accesses {
    struct verify_access *list;
    size_t count, capacity;
};

/* How far a rank has come in its plans. */
struct verify_rank {
    int launch; /* the rank's current launch; nlaunches: it has finished the last launch */
    bool begun; /* `launch` has begun: the user's turn that precedes it is over */
    bool done;
    uint32_t *turns; /* [launches + 1] the event of the user's turn before each launch */
};

/* How far an actor, which is one lane of a rank, has come. Event 0 means none. */
struct verify_actor {
    uint32_t step;    /* the next step of the launch's plan */
    uint32_t nevents; /* events so far */
    uint32_t before;  /* events so far when the launch began */
};

struct verify_origin {
    int launch;
    uint32_t step; /* UINT32_MAX: the user's turn before the launch */
};

/* An event of an actor; event 0: none. */
struct verify_mark {
    uint32_t actor, event;
};

/* The event that gave a word one of its values, and whether a wait has taken the value. */
struct verify_signal {
    struct verify_mark by;
    bool awaited;
};

/* A word: its highest value so far, the last event that signalled it, and the last event that reset it. */
struct verify_word {
    uint64_t highest;
    struct verify_mark by, reset;
};

/* A rank's word with a set of bits in its lower half (bits.c); and how often a peer has waited for one of the bits. */
#define VERIFY_BITS 16
struct verify_bits {
    uint32_t word, number;
    struct verify_mark by; /* the last signal */
    struct {
        uint32_t raised; /* how often the bit was set */
        struct verify_mark by, cleared;
    } bit[VERIFY_BITS];
};
struct verify_taken {
    uint32_t count;
    struct verify_mark last;
};

struct verifier {
    const struct cecl_verify_program
        *program; /* its `launches` are NULL if all ranks make the calls and nothing else */
    const struct cecl_plan *plans;
    int ncalls, nranks;
    int nlanes;           /* 1 if no plan has a side lane */
    int nactors;          /* nranks * nlanes */
    uint32_t ncounters;   /* how many counters a plan may name */
    uint32_t nparts;      /* the most parts of a plan */
    int nareas;           /* the areas of calls: CECL_AREA_COUNT * nparts */
    int nmemories;        /* nareas, plus one for each message */
    uint64_t *area_bytes; /* [nmemories] */
    /* how far apart the tags of two parts are: bytes of the largest area of user data */
    uint64_t input_bytes;
    /* [ncalls + 1][nranks][CECL_PHASED]: the values of flags before each call */
    uint64_t *base;
    uint64_t most_phases;          /* the largest value of a counter in all calls */
    uint32_t max_events;           /* the most events of any actor; also the stride of clocks */
    uint32_t *clocks;              /* [actor][event][nactors] */
    struct verify_origin *origins; /* [actor][event] */
    struct verify_signal *signals; /* [holder][writer][counter][value] */
    struct verify_word *words;     /* [holder][writer][counter] */
    struct verify_bits *bits;      /* [writer] */
    struct verify_taken *taken;    /* [writer][reader][VERIFY_BITS] */
    uint64_t draws;                /* random state for the order in which lanes go on; 0: in turn */
    uint32_t **tags; /* [nmemories][rank][byte]: the tag of the source byte that is there */
    /* [nmemories][rank][byte]: how often the byte was written. Counts only in RECV areas and messages' memories */
    uint32_t **writes;
    struct verify_accesses *accesses; /* [area][rank] */
    struct verify_rank *ranks;
    struct verify_actor *actors;
    /* `fault` names the first wrong byte; if a race has caused it, the race is reported instead */
    bool wrong_data;
    char fault[CECL_MESSAGE_BYTES];
};

static inline const struct cecl_plan *verify_plan(const struct verifier *v, int call, int rank)
{
    return &v->plans[call * v->nranks + rank];
}

static inline int verify_nlaunches(const struct verifier *v, int rank)
{
    return v->program ? v->program->nlaunches[rank] : v->ncalls;
}

static inline struct cecl_verify_launch verify_launch(const struct verifier *v, int rank, int at)
{
    struct cecl_verify_launch launch = {.call = at};
    if (v->program)
        launch = v->program->launches[rank][at];
    if (launch.call >= 0)
        launch.plan = verify_plan(v, launch.call, rank);
    return launch;
}

static inline int verify_actor(const struct verifier *v, int rank, int lane)
{
    return rank * v->nlanes + lane;
}

static inline uint64_t *verify_base(const struct verifier *v, int call, int rank)
{
    return &v->base[((size_t)call * (size_t)v->nranks + (size_t)rank) * CECL_PHASED];
}

static inline uint32_t *verify_clock(const struct verifier *v, int actor, uint32_t event)
{
    return &v->clocks[((size_t)actor * v->max_events + event) * (size_t)v->nactors];
}

/* Whether the last event of an actor comes after a mark. */
static inline bool verify_is_after(const struct verifier *v, int actor,
                                   const struct verify_mark *mark)
{
    return mark->event == 0 ||
           verify_clock(v, actor, v->actors[actor].nevents)[mark->actor] >= mark->event;
}

static inline struct verify_origin *verify_origin(const struct verifier *v, int actor,
                                                  uint32_t event)
{
    return &v->origins[(size_t)actor * v->max_events + event];
}

static inline uint32_t verify_step_copies(const struct cecl_step *step)
{
    return step->kind == CECL_STEP_COPY ? step->count : step->kind == CECL_STEP_POST;
}

/* The tag of two bytes, reduced in this order. */
static inline uint32_t verify_combine(uint32_t first, uint32_t second)
{
    return (first ^ (first >> 15)) * 0x9e3779b1u + second;
}

/* The tag of the result of a reduction over all ranks. */
static inline uint32_t verify_reduced(uint32_t tag)
{
    return tag * 0x85ebca6bu + 1;
}

static inline uint32_t *verify_tags(const struct verifier *v, int area, int rank)
{
    return &v->tags[area][(size_t)rank * v->area_bytes[area]];
}

static inline uint32_t *verify_writes(const struct verifier *v, int area, int rank)
{
    return &v->writes[area][(size_t)rank * v->area_bytes[area]];
}

/* The same part of the same call on another rank. */
static inline const struct cecl_part *
verify_part_at(const struct verifier *v, const struct cecl_plan *plan, uint32_t part, int rank)
{
    const int call = (int)(plan - v->plans) / v->nranks;
    return cecl_plan_part(verify_plan(v, call, rank), part);
}

/* The end of a call's input, and the end of its recvbuff. */
uint64_t verify_send_bytes(const struct cecl_call *call);
uint64_t verify_recv_bytes(const struct cecl_call *call);
/* How many bytes a reduction writes. If its results are twice as large as inputs, byte i is made of input bytes i / 2. */
static inline uint64_t verify_result_bytes(const struct cecl_plan *plan,
                                           const struct cecl_reduce *reduce)
{
    return cecl_call_result_bytes(&cecl_plan_part(plan, reduce->part)->call, reduce->bytes);
}

/* The area of a call's input, and the pitch of the input's rows. */
static inline enum cecl_area verify_input_area(const struct cecl_call *call)
{
    return cecl_call_is_one_buffer(call) ? CECL_AREA_RECV : CECL_AREA_SEND;
}
static inline uint64_t verify_input_pitch(const struct cecl_call *call)
{
    return verify_input_area(call) == CECL_AREA_RECV ? call->view.shape.recv_pitch
                                                     : call->view.shape.send_pitch;
}

/* Where a source of a reduction lies. A rank names its peers' inputs by the area of its own input, because it does not
 * know which peers are in place. */
static inline struct cecl_place verify_source(const struct verifier *v,
                                              const struct cecl_plan *plan,
                                              const struct cecl_place *named)
{
    const uint32_t part = named->area / CECL_AREA_COUNT, kind = named->area % CECL_AREA_COUNT;
    struct cecl_place source = *named;
    if (named->rank < v->nranks && part < cecl_plan_parts(plan) &&
        kind == verify_input_area(&cecl_plan_part(plan, part)->call))
        source.area = (uint16_t)cecl_area_of(
            verify_input_area(&verify_part_at(v, plan, part, named->rank)->call), part);
    return source;
}

/* form.c: checks that each plan stays within its areas and phases. All other code relies on that. */
ceclResult_t verify_form(const struct verifier *v);
/* messages.c: the same check for plans of messages. */
ceclResult_t verify_messages_form(const struct verifier *v);
/* messages.c: the source and the destination of a copy in a plan of messages. */
struct cecl_copy verify_message_copy(const struct verifier *v,
                                     const struct cecl_verify_launch *launch,
                                     const struct cecl_copy *copy);
/* messages.c: as verify_output and verify_renew, for the messages of a launch. */
ceclResult_t verify_messages_output(const struct verifier *v,
                                    const struct cecl_verify_launch *launch, int rank);
void verify_messages_renew(const struct verifier *v, const struct cecl_verify_launch *launch,
                           int rank);
/* run.c: walks all plans in an order that the flags allow. On the way it makes the clocks, and moves the data. */
ceclResult_t verify_run(struct verifier *v);
/* run.c: verify_event adds an event (of `step`; UINT32_MAX: of the user's turn) after an actor's last one, and returns
 * its clock. verify_note records an access by the actor's last event. verify_join orders a clock after an event. */
uint32_t *verify_event(struct verifier *v, int actor, uint32_t step);
ceclResult_t verify_note(struct verifier *v, const struct cecl_place *place, uint64_t low,
                         uint64_t bytes, int actor, bool write);
void verify_join(const struct verifier *v, uint32_t *clock, int actor, uint32_t event);
/* Whether a counter only informs the rank's own host, and no stream waits for it. (Calls on other streams wait for
 * LINE; but here all launches of a rank are on one stream.) */
static inline bool verify_is_own(uint32_t counter)
{
    return counter == CECL_COUNTER_BEGUN || counter == CECL_COUNTER_REPLAY ||
           counter == CECL_COUNTER_LINE || counter == CECL_COUNTER_WAITS;
}

/* Whether a counter is one of the two words of captured calls. */
static inline bool verify_is_bits(uint32_t counter)
{
    return counter == CECL_COUNTER_TURN || counter == CECL_COUNTER_CALL;
}

/* bits.c: carries out signals and waits of words that are sets of bits. *stuck: the bit is not set yet. */
void verify_bits_begin(struct verifier *v);
ceclResult_t verify_signal_bits(struct verifier *v, int rank, const struct cecl_step *step,
                                uint32_t at);
ceclResult_t verify_wait_bit(struct verifier *v, int rank, const struct cecl_step *step,
                             uint32_t at, bool *stuck);

/* run.c: checks that every signal of a counter without phases had a wait. */
ceclResult_t verify_awaited(const struct verifier *v);
/* splits.c: carries out a step of a call by splits on the device; returns where its table ends in staging; checks the
 * form of such a step; checks the call's output on a rank. */
ceclResult_t verify_splits(struct verifier *v, int call, int rank, const struct cecl_step *step);
uint64_t verify_splits_staging(const struct cecl_plan *plan);
ceclResult_t verify_splits_form(const struct verifier *v, const struct cecl_plan *plan,
                                const struct cecl_step *step);
ceclResult_t verify_splits_output(const struct verifier *v, int call, int rank);
/* data.c: the tag of byte `offset` of a rank's input to a part of a call. Tag 0 stands for no byte. */
uint32_t verify_tag(const struct verifier *v, int call, uint32_t part, int rank, uint64_t offset);
/* data.c: checks that a byte of the output was written the expected number of times, and resets its count. */
ceclResult_t verify_writes_of(const struct verifier *v, int call, uint32_t part, int rank,
                              uint64_t at, uint32_t expected);
/* data.c: checks a call's output on a rank, and resets its counts of writes. verify_renew gives it new input, and an
 * output without valid tags. */
ceclResult_t verify_output(const struct verifier *v, int call, int rank);
void verify_renew(const struct verifier *v, int call, int rank);
/* race.c: a rank may end a call that has a barrier only after the turns of all ranks' users before that call. */
ceclResult_t verify_barrier(const struct verifier *v, int call, int rank);
/* race.c: any two accesses to the same byte must have an order if one of them is a write. */
ceclResult_t verify_races(const struct verifier *v);

#define VERIFY_FAULT(...) cecl_fail(ceclInternalError, __VA_ARGS__)

#endif
