/* cecl_zerosm: one case, from making its communicators to checking its last byte.
 *
 * One thread makes the calls of all ranks, so a call that waited for a peer's call would never return. Therefore all
 * memory is in the first segment, CECL_CHECK is off, and each call is made on all ranks before the next one. Calls
 * have so few copies that no queue of the driver gets full. */
#include "zerosm.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu.h"
#include "hold_sms.h"
#include "zerosm_ops.h"
#include "zerosm_split.h"

/* Odd: an all-to-all in place takes the last result as its input, so after an even number of calls the buffer would be
 * as if nothing had moved. */
#define CALLS 3
#define AFTERWARDS_MS 5000 /* time for calls that have not ended while SMs were held */
/* bytes besides staging and buffers: flags and their values, slots, and carry_bytes (ce/engine.c) */
#define SEGMENT_ROOM (40 << 20)
/* in ms. SMs are held for a shorter time, so this limit ends only a call that hangs */
#define COLLECTIVE_TIMEOUT "10000"

/* A case in progress. Index g is GPU g. */
struct stage {
    const struct zerosm_case *c;
    int gpus;
    int ranks;                 /* of each communicator */
    int rank[ZEROSM_MAX_GPUS]; /* the rank of each GPU */
    unsigned seed;
    struct zerosm_part parts[ZEROSM_PARTS];
    int nparts;
    size_t all;                                                  /* bytes of all ranks' blocks */
    ceclComm_t comms[ZEROSM_MAX_GPUS], parents[ZEROSM_MAX_GPUS]; /* `parents`: if the case splits */
    /* for calls that are not on the legacy stream, for filling and for checking */
    ceclStream_t streams[ZEROSM_MAX_GPUS];
    unsigned char *recv[ZEROSM_MAX_GPUS], *send[ZEROSM_MAX_GPUS];
    unsigned char *want, *got; /* on the host */
    struct zerosm_outcome *out;
};

/* ---- messages */

/* Records what went wrong, unless an earlier cause is recorded. Returns false. */
__attribute__((format(printf, 2, 3))) static bool tell(struct stage *s, const char *format, ...)
{
    va_list args;
    if (s->out->why[0])
        return false;
    va_start(args, format);
    vsnprintf(s->out->why, sizeof(s->out->why), format, args);
    va_end(args);
    return false;
}

static bool called(struct stage *s, int g, ceclResult_t result, const char *call)
{
    return result == ceclSuccess || tell(s, "GPU %d: %s: %s", g, call, ceclGetLastError(NULL));
}

static bool set_device(struct stage *s, int g)
{
    return cecl_driver_set_device(gpu_get()->cu, g) == ceclSuccess ||
           tell(s, "GPU %d: %s", g, ceclGetLastError(NULL));
}

/* ---- communicators and memory */

static void set_bytes(const char *name, size_t bytes)
{
    char text[32];
    snprintf(text, sizeof(text), "%zu", bytes);
    setenv(name, text, 1);
}

/* Sets the settings, which ceclCommInitAll takes only from the environment. Other variables of the caller,
 * such as CECL_URGENT, stay in force. */
static void set_environment(const struct stage *s)
{
    setenv("CECL_DEVICE", "cuda", 1);
    setenv("CECL_CHECK", "0", 1);
    setenv("CECL_TIMEOUT_MS", COLLECTIVE_TIMEOUT, 1);
    setenv("CECL_SM_POLICY", s->c->policy, 1);
    setenv("CECL_DIRECTION", s->c->direction, 1);
    setenv("CECL_FLAGS", s->c->flags, 1);
    set_bytes("CECL_STAGING_BYTES", s->c->staging);
    set_bytes("CECL_SEGMENT_BYTES", s->c->staging + 2 * s->all + SEGMENT_ROOM);
    unsetenv("CECL_POOL_BYTES");
}

static bool take_buffer(struct stage *s, int g, unsigned char **buffer)
{
    void *taken = NULL;
    if (!set_device(s, g))
        return false;
    const struct memory_failure failure =
        memory_on_gpus[s->c->memory].take(s->comms[g], s->all, &taken);
    *buffer = taken;
    return !failure.call || tell(s, "GPU %d: %s: %s", g, failure.call, failure.why);
}

/* Frees the buffers, unless they are memory of ceclMemAlloc, which is freed with its communicator. */
static void give_buffers(struct stage *s, int g)
{
    unsigned char *buffers[] = {s->recv[g], s->send[g]};
    for (int i = 0; i < 2 && buffers[i] && s->c->memory != MEMORY_POOL; i++) {
        set_device(s, g);
        memory_on_gpus[s->c->memory].give(NULL, s->all, buffers[i]);
    }
}

static bool open_rank(struct stage *s, int g)
{
    return called(s, g, ceclStreamCreate(s->comms[g], &s->streams[g]), "ceclStreamCreate") &&
           take_buffer(s, g, &s->recv[g]) && take_buffer(s, g, &s->send[g]);
}

static bool open_comms(struct stage *s)
{
    ceclComm_t *made = s->c->split ? s->parents : s->comms;
    if (ceclCommInitAll(made, s->gpus, NULL) != ceclSuccess)
        return tell(s, "ceclCommInitAll: %s", ceclGetLastError(NULL));
    return !s->c->split ||
           zerosm_split(s->parents, s->gpus, s->comms, s->out->why, sizeof(s->out->why));
}

static bool open_all(struct stage *s)
{
    set_environment(s);
    s->want = malloc(s->all);
    s->got = malloc(s->all);
    if (!s->want || !s->got)
        return tell(s, "no host memory for 2 x %zu bytes", s->all);
    if (!open_comms(s))
        return false;
    for (int g = 0; g < s->gpus; g++)
        if (!open_rank(s, g))
            return false;
    return true;
}

static void close_comms(struct stage *s, const ceclComm_t *comms, bool fine)
{
    for (int g = 0; g < s->gpus; g++)
        if (comms[g] && fine)
            called(s, g, ceclCommDestroy(comms[g]), "ceclCommDestroy");
        else if (comms[g])
            ceclCommAbort(comms[g]);
}

/* Ends the communicators, and with them their streams and memory. After a failure they are aborted, because ranks may
 * wait for each other. */
static void close_all(struct stage *s, bool fine)
{
    close_comms(s, s->comms, fine);
    close_comms(s, s->parents, fine);
    for (int g = 0; g < s->gpus; g++)
        give_buffers(s, g);
    free(s->want);
    free(s->got);
}

/* ---- bytes */

/* Byte i of rank r's input. */
static inline unsigned char byte_of(unsigned seed, int r, size_t i)
{
    uint32_t x = (uint32_t)i * 0x9e3779b1u ^ ((uint32_t)r * 0x85ebca6bu + seed * 0xc2b2ae35u);
    x = (x ^ x >> 15) * 0x2c1b3c6du;
    return (unsigned char)(x >> 20);
}

/* Byte i of rank r's input for one operation of the case. */
static inline unsigned char input_byte(const struct stage *s, int part, int r, size_t i)
{
    return byte_of(s->seed + (unsigned)part * 977, r, i);
}

static void put_input(const struct stage *s, int part, int r, size_t from, size_t bytes,
                      unsigned char *out)
{
    for (size_t i = 0; i < bytes; i++)
        out[i] = input_byte(s, part, r, from + i);
}

/* Writes the input that lies in recvbuff. */
static void lay_input(const struct stage *s, int part, int g, unsigned char *out)
{
    const struct zerosm_part *p = &s->parts[part];
    const int me = s->rank[g];
    if (zerosm_input_is_recv(p, me))
        put_input(s, part, me, 0, zerosm_input_bytes(p, me), out + zerosm_input_at(p, me));
}

static void lay_blocks(const struct stage *s, int part, int g, unsigned char *out,
                       unsigned char mask)
{
    const struct zerosm_part *p = &s->parts[part];
    for (int r = 0; r < s->ranks; r++) {
        const struct zerosm_block block = zerosm_block(p, r, s->rank[g]);
        const size_t width = zerosm_width(&block);
        for (size_t row = 0; row < zerosm_rows(&block); row++) {
            unsigned char *at = out + p->at + block.wanted_at + row * block.wanted_pitch;
            const size_t from = block.sent_at + row * block.sent_pitch;
            const bool adds = p->op == ZEROSM_REDUCE_SCATTER && r > 0;
            for (size_t i = 0; i < width; i++) {
                const unsigned char byte = input_byte(s, part, r, from + i);
                at[i] = adds ? (unsigned char)(at[i] + byte) : byte ^ mask;
            }
        }
    }
}

/* Computes what GPU g must have at the end. Bytes outside all blocks stay as they are. */
static void expect(const struct stage *s, int g)
{
    memset(s->want, 0x5A, s->all);
    for (int i = 0; i < s->nparts; i++) {
        lay_input(s, i, g, s->want);
        lay_blocks(s, i, g, s->want, 0);
    }
}

static bool copy(struct stage *s, int g, void *dst, const void *src, size_t bytes)
{
    return called(s, g, ceclMemcpyAsync(s->comms[g], dst, src, bytes, s->streams[g]),
                  "ceclMemcpyAsync") &&
           called(s, g, ceclStreamSynchronize(s->comms[g], s->streams[g]), "ceclStreamSynchronize");
}

/* Fills both buffers. An output byte gets a wrong value, unless it is also input. */
static bool fill(struct stage *s, int g)
{
    const int me = s->rank[g];
    memset(s->got, 0x5A, s->all);
    for (int i = 0; i < s->nparts; i++) {
        lay_blocks(s, i, g, s->got, 0xFF);
        lay_input(s, i, g, s->got);
    }
    if (!copy(s, g, s->recv[g], s->got, s->all))
        return false;
    memset(s->got, 0x5A, s->all);
    for (int i = 0; i < s->nparts; i++)
        if (!zerosm_input_is_recv(&s->parts[i], me))
            put_input(s, i, me, 0, zerosm_input_bytes(&s->parts[i], me),
                      s->got + zerosm_input_at(&s->parts[i], me));
    return copy(s, g, s->send[g], s->got, s->all);
}

static bool fill_all(struct stage *s)
{
    for (int g = 0; g < s->gpus; g++)
        if (!fill(s, g))
            return false;
    return true;
}

static bool check(struct stage *s, int g)
{
    size_t first = s->all, wrong = 0;
    if (!copy(s, g, s->got, s->recv[g], s->all)) /* this also reports a failed communicator */
        return false;
    expect(s, g);
    for (size_t i = s->all; i-- > 0;)
        if (s->got[i] != s->want[i]) {
            first = i;
            wrong++;
        }
    return wrong == 0 ||
           tell(s, "GPU %d: %zu of %zu bytes are wrong, the first at %zu", g, wrong, s->all, first);
}

static bool check_all(struct stage *s)
{
    for (int g = 0; g < s->gpus; g++)
        if (!check(s, g))
            return false;
    return true;
}

/* ---- calls */

static bool call_parts(struct stage *s, int g)
{
    const ceclStream_t stream = s->c->legacy ? NULL : s->streams[g];
    bool fine = true;
    for (int i = 0; i < s->nparts && fine; i++)
        fine = called(
            s, g,
            zerosm_call(&s->parts[i], s->rank[g], s->send[g], s->recv[g], s->comms[g], stream),
            "the collective");
    return fine;
}

static bool explain_one(struct stage *s, int g, ceclExplanation_t *e)
{
    const bool fine = called(s, g, ceclGroupStart(), "ceclGroupStart") && call_parts(s, g);
    return called(s, g, ceclGroupExplain(s->comms[g], e), "ceclGroupExplain") && fine;
}

/* Explains the calls on all ranks. This also makes their plans, so the calls only have to enqueue. */
static bool explain_all(struct stage *s)
{
    const int expected = strcmp(s->c->policy, "never") == 0;
    for (int g = s->gpus; g-- > 0;) {
        ceclExplanation_t e = {.zeroSm = -1};
        if (!explain_one(s, g, &e))
            return false;
        if (e.zeroSm != expected)
            return tell(s, "GPU %d: ceclGroupExplain says zeroSm = %d, %d is expected: %s", g,
                        e.zeroSm, expected, e.reason);
        snprintf(s->out->path, sizeof(s->out->path), "%s", e.path);
    }
    return true;
}

static bool call_one(struct stage *s, int g)
{
    const bool groups = s->nparts > 1;
    if (groups && !called(s, g, ceclGroupStart(), "ceclGroupStart"))
        return false;
    const bool fine = call_parts(s, g);
    return groups ? called(s, g, ceclGroupEnd(), "ceclGroupEnd") && fine : fine;
}

/* Makes one call on all ranks. If the case has no late ranks, the calls form a group, in which no rank can be late. */
static bool call_all_once(struct stage *s)
{
    bool fine = s->c->late || called(s, 0, ceclGroupStart(), "ceclGroupStart");
    for (int g = 0; g < s->gpus && fine; g++)
        fine = call_one(s, g);
    return (s->c->late || called(s, 0, ceclGroupEnd(), "ceclGroupEnd")) && fine;
}

static bool call_all(struct stage *s)
{
    bool fine = true;
    for (int i = 0; i < CALLS && fine; i++)
        fine = call_all_once(s);
    return fine;
}

/* ---- waiting */

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* Whether the stream of GPU g's calls has ended. */
static bool ended(struct stage *s, int g)
{
    /* a query of the legacy stream asks about the current GPU's */
    if (!set_device(s, g))
        return false;
    const CUresult state = gpu_get()->cu->cuStreamQuery(s->c->legacy ? NULL : s->streams[g]);
    return state == CUDA_SUCCESS || (state != CUDA_ERROR_NOT_READY &&
                                     tell(s, "GPU %d: cuStreamQuery: %s", g, gpu_words(state)));
}

static bool all_ended(struct stage *s)
{
    for (int g = 0; g < s->gpus; g++)
        if (!ended(s, g))
            return false;
    return true;
}

/* Whether all streams end within `ms`. Returns early if a query fails, and records the error. */
static bool ended_within(struct stage *s, int ms)
{
    const struct timespec pause = {.tv_nsec = 100000};
    const double deadline = now_ms() + ms;
    bool yes = all_ended(s);
    while (!yes && !s->out->why[0] && now_ms() < deadline) {
        nanosleep(&pause, NULL);
        yes = all_ended(s);
    }
    return yes;
}

/* ---- while SMs are held */

static bool hold_all(struct stage *s, struct hold_sms **holds)
{
    for (int g = 0; g < s->gpus; g++) {
        holds[g] = hold_sms_start_on(g, NULL);
        if (!holds[g])
            return tell(s, "GPU %d: its SMs could not be held", g);
    }
    return true;
}

/* Releases the SMs. Returns whether all were held until now. */
static bool let_go(struct stage *s, struct hold_sms **holds)
{
    bool held = true;
    for (int g = 0; g < s->gpus; g++)
        held = hold_sms_stop(holds[g]) && held;
    return held;
}

/* Makes the calls while SMs are held. Meanwhile nothing returns early, and no memory is allocated or freed. */
static bool run_held(struct stage *s, int patience_ms)
{
    struct hold_sms *holds[ZEROSM_MAX_GPUS] = {NULL};
    const bool begun = hold_all(s, holds);
    const double start = now_ms();
    const bool finished = begun && call_all(s) && ended_within(s, patience_ms);
    s->out->ms = now_ms() - start;
    const bool held = let_go(s, holds);
    if (s->out->why[0])
        return false;
    s->out->finished = finished;
    return held || tell(s, "the SMs were not held throughout, which proves nothing");
}

/* A call that may use SMs is made once before they are held: loading its kernels later might wait for the SMs. A
 * call that may use no SM has no such warm-up. */
static bool load_kernels(struct stage *s)
{
    if (strcmp(s->c->policy, "never") == 0)
        return true;
    if (!call_all(s))
        return false;
    return ended_within(s, AFTERWARDS_MS) ||
           tell(s, "not finished after %d ms, with no SM held", AFTERWARDS_MS);
}

static bool carry_out(struct stage *s, int patience_ms)
{
    if (!explain_all(s) || !load_kernels(s) || !fill_all(s) || !run_held(s, patience_ms))
        return false;
    if (!s->out->finished && !ended_within(s, AFTERWARDS_MS))
        return tell(s, "not finished in %d ms while every SM was held, nor in %d ms after",
                    patience_ms, AFTERWARDS_MS);
    return check_all(s);
}

bool zerosm_run(const struct zerosm_case *c, int gpus, unsigned seed, int patience_ms,
                struct zerosm_outcome *out)
{
    const int ranks = c->split ? zerosm_split_ranks(gpus) : gpus;
    struct stage s = {.c = c,
                      .gpus = gpus,
                      .ranks = ranks,
                      .seed = seed,
                      .all = c->bytes * (size_t)ranks,
                      .out = out};
    for (int g = 0; g < gpus; g++)
        s.rank[g] = c->split ? zerosm_split_rank(gpus, g) : g;
    *out = (struct zerosm_outcome){0};
    s.nparts = zerosm_parts(c, ranks, s.parts);
    close_all(&s, open_all(&s) && carry_out(&s, patience_ms));
    return !out->why[0];
}

bool zerosm_hold_each_once(int gpus, int *gpu)
{
    for (*gpu = 0; *gpu < gpus; (*gpu)++)
        if (!hold_sms_stop(hold_sms_start_on(*gpu, NULL)))
            return false;
    return true;
}
