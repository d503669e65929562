/* A communicator as one rank has it: its parts, how it fails, and its threads. src/launch makes calls; src/api makes
 * and ends communicators. */
#ifndef CECL_COMM_COMM_H
#define CECL_COMM_COMM_H

#include <pthread.h>
#include <stdatomic.h>

#include "alloc/pool.h"
#include "alloc/posts.h"
#include "boot/meeting.h"
#include "boot/rank_list.h"
#include "ce/engine.h"
#include "comm/history.h"
#include "comm/progress.h"
#include "comm/waits.h"
#include "device/device.h"
#include "flags/flags.h"
#include "plan/tuning.h"
#include "util/handles.h"
#include "util/thread.h"

#define CECL_COMM_MAGIC 0x6365636cu

/* Settings, combined from configuration and environment. A negative size stands for the device's default. */
struct cecl_resolved {
    int32_t device;      /* ceclDevice_t */
    int32_t cuda_device; /* ordinal or CECL_CUDA_DEVICE_...; may differ between ranks */
    int32_t sm_policy;   /* ceclSmPolicy_t */
    int32_t direction;   /* CECL_DIRECTION's value */
    int32_t host_flags;  /* CECL_FLAGS=host */
    int32_t urgent;      /* 0 or 1 */
    int32_t max_sms;     /* 0: the tuning table decides */
    int32_t share_gpu;   /* CECL_SHARE_GPU's value */
    int32_t check;
    int32_t register_on_use; /* 0 or 1; may differ between ranks */
    int32_t nvtx;            /* 0 or 1; may differ between ranks */
    int32_t timeout_ms, init_timeout_ms;
    int32_t parent_host; /* for a child: the number of the rank's host in the parent; otherwise 0 */
    int32_t node_size;   /* CECL_NODE_SIZE's value; 0: not set */
    int64_t pool_bytes, segment_bytes, staging_bytes;
    int64_t tuning; /* a hash of the thresholds in force; ranks compare the hash */
};

/* The watchdog: a thread that notices when peers die, leave or do not come, and ends the waits for them. */
struct cecl_watch {
    pthread_t thread;
    bool running;
    _Atomic bool stop;
    pthread_mutex_t lock; /* held while a failed communicator is released */
    bool told, silenced;  /* told: peers were notified. silenced: flags were silenced */
    bool complained;      /* the user was warned that the driver holds up the release */
    /* since when waits last: of collectives (blind: while the driver does not answer), and of captured calls (turns) */
    struct cecl_clock flags, blind, turns;
    bool kernels_ended; /* no kernel of the program or of cecl waits for peers any more */
};

struct cecl_launcher;
struct cecl_net;

/* The communicator's second thread: see worker.c. */
struct cecl_worker {
    pthread_t thread;
    bool running;
    _Atomic bool stop;
    /* -- guarded by `lock` -- */
    pthread_mutex_t lock;
    pthread_cond_t news; /* signalled when there is an answer, or the thread has ended */
    bool ended;
    /* asked: how many questions so far. answered: the number of the last answered question */
    uint64_t asked, answered;
    ceclResult_t result; /* the last answer */
    char words[CECL_MESSAGE_BYTES];
    struct cecl_progress progress;
};

#define CECL_MOST_SMS 1024

/* The parts of the shared memory of a communicator's ranks. setup.c has their sizes. */
enum cecl_shared_part {
    CECL_SHARED_PLACES,  /* alloc/places.h: ranks tell each other where buffers lie */
    CECL_SHARED_HISTORY, /* comm/history.h: which calls each rank has made */
    CECL_SHARED_WAITS,   /* comm/waits.h: for which ranks each rank waits */
    CECL_SHARED_HOSTED,  /* alloc/hosted.h: flags and blocks in memory of the host */
    CECL_SHARED_POSTS,   /* alloc/posts.h: where the bytes of messages lie */
    CECL_SHARED_LENT,    /* for the program: ceclCommGetSharedMemory */
    CECL_SHARED_PARTS
};

#define CECL_NUMBERED_NAMES 256u

struct ceclComm {
    struct cecl_handle handle;
    _Atomic uint32_t magic;
    int rank, nranks;
    uint64_t id; /* equal on all ranks, and different for each communicator */
    struct cecl_resolved config;
    struct cecl_options options; /* for the next calls */
    struct cecl_tuning tuning;   /* the thresholds for this device and number of ranks */
    struct cecl_device *dev;
    struct cecl_net *net; /* NULL unless ranks are on several hosts and NCCL makes the calls */
    struct cecl_mesh *mesh;
    struct cecl_meetings meetings; /* for shrinks */
    struct cecl_shared shared;
    struct cecl_hosted hosted;
    int *parent_ranks; /* [nranks] the ranks' numbers in the parent; or NULL */
    struct cecl_pool pool;
    struct cecl_registry registry;
    struct cecl_windows windows;      /* windows of the pool and of the registry */
    ceclRegistration_t registrations; /* a list of the caller's registrations */
    struct cecl_engine engine;
    struct cecl_launcher *launcher; /* launch/launcher.h: what calls in flight need */
    struct cecl_history history;
    struct cecl_waits waits;
    struct cecl_watch watch;
    struct cecl_worker worker;
    /* set by a thread that is inside; threads read it before they enter */
    _Atomic bool finalized;
    int ranks_here;  /* ranks in this process, including this one */
    bool shares_gpu; /* some ranks share a GPU (CECL_SHARE_GPU=1) */
    /* on some rank, streams have fewer hardware queues than CUDA's default */
    bool few_queues;
    uint64_t process; /* the process that made the communicator: see util/fds.h */
    ceclComm_t next;  /* in end.c's list of communicators whose memory may still be in use */
    /* The program has pointers to memory of peers. A peer may wait for writes that the program makes through
     * these pointers, and no flag tells whether such writes have arrived. */
    _Atomic bool gave_pointers;
    struct {
        ceclComm_t next;
        bool is_idle;          /* when the process began to end, all calls were done */
        uint32_t word, calls;  /* at that time, word: the main lane's epoch; calls: `done` */
        uint64_t one_sided;    /* at that time: how many one-sided calls were made */
    } living;                  /* an entry of living.c's list */
    _Atomic uint32_t captured; /* captured calls whose graphs still exist */
    _Atomic(const char *) last_captured; /* the name of the call that was captured last, or NULL */
    /* names of the last collectives that graphs have captured, by number */
    _Atomic(const char *) names[CECL_NUMBERED_NAMES];
    _Atomic(const char *) last_call; /* the name of the call enqueued last, or NULL */
    _Atomic(const char *) inside;    /* the name of the call that a thread is inside, or NULL */
    bool has_ranges;                 /* calls are NVTX ranges */

    /* Guards writes of the asynchronous error. The error is set once; its message is written first. */
    pthread_mutex_t async_lock;
    _Atomic int async_result;
    char async_message[CECL_MESSAGE_BYTES];
    /* 0: the rows of all calls by splits have fitted so far. Otherwise bit 32 is set, and the low 32 bits are the value
     * that `done` has once the call whose rows did not fit has ended */
    _Atomic uint64_t trouble_seen;
};

/* -- config.c: combines defaults, configuration and environment -- */
/* Refuses a field of the caller's struct that is out of range; `of` is the name of the struct.
 * CECL_UNDEF is always in range. */
ceclResult_t cecl_config_check_field(const char *of, const char *field, int64_t value, int64_t low,
                                     int64_t high);
static inline struct cecl_options cecl_config_options(const struct cecl_resolved *config)
{
    return (struct cecl_options){(uint8_t)config->sm_policy, (uint8_t)config->direction,
                                 (uint16_t)config->max_sms};
}
ceclResult_t cecl_config_resolve(const ceclConfig_t *config, struct cecl_resolved *out);
/* The thresholds for `nranks` ranks on each device. Rows of the file that CECL_TUNING names replace built-in ones. */
ceclResult_t cecl_config_tuning(int nranks, struct cecl_tuning tunings[CECL_TUNING_DEVICES]);

/* fail.c */
/* If the communicator is over several hosts, refuses `what`, such as "windows". `instead`: what the program can do
 * instead. */
ceclResult_t cecl_comm_check_own(ceclComm_t comm, const char *what, const char *instead);
/* Refuses a handle that is NULL, that is no communicator, that was destroyed, or that a forked child inherited. */
ceclResult_t cecl_comm_check_handle(ceclComm_t comm);
/* Refuses what cecl_comm_check_handle refuses, and communicators that are finalized or failed. */
ceclResult_t cecl_comm_check(ceclComm_t comm);
/* Reads what peers have reported so far. Returns the asynchronous error, or success. On success, all data of peers that
 * arrived before this function was called is valid. */
ceclResult_t cecl_comm_hear(ceclComm_t comm);
/* Notes the name of the call that is enqueued now. While work is pending, error messages name the latest call: calls
 * end in order, so the latest one is pending. */
static inline void cecl_comm_called(ceclComm_t comm, const char *name)
{
    atomic_store_explicit(&comm->last_call, name, memory_order_relaxed);
}
static inline const char *cecl_comm_last_call(ceclComm_t comm)
{
    const char *name = atomic_load_explicit(&comm->last_call, memory_order_relaxed);
    return name ? name : "no call";
}
/* The name of the pending work, if there is any. */
const char *cecl_comm_pending(ceclComm_t comm);
/* Records the refusal of call `name`: another thread is inside call `other` on the same communicator. */
ceclResult_t cecl_comm_refuse_second(ceclComm_t comm, const char *name, const char *other);
/* Enters a call. One thread at a time may be inside; a second thread is refused before it touches any state of calls.
 * Each enter needs a leave. Functions that any thread may call beside a call do not enter. */
static inline ceclResult_t cecl_comm_enter(ceclComm_t comm, const char *name)
{
    const char *other = NULL;
    return atomic_compare_exchange_strong_explicit(&comm->inside, &other, name,
                                                   memory_order_acquire, memory_order_relaxed)
               ? ceclSuccess
               : cecl_comm_refuse_second(comm, name, other);
}
static inline void cecl_comm_leave(ceclComm_t comm)
{
    atomic_store_explicit(&comm->inside, NULL, memory_order_release);
}
/* Enters, and leaves at the end of the block. */
#define CECL_INSIDE(comm, name) \
    CECL_TRY(cecl_comm_enter(comm, name)); \
    __attribute__((cleanup(cecl_comm_leave_it), unused)) const ceclComm_t cecl_entered_ = (comm)
static inline void cecl_comm_leave_it(const ceclComm_t *comm)
{
    cecl_comm_leave(*comm);
}
/* Leaves, and returns the call's result. */
static inline ceclResult_t cecl_comm_left(ceclComm_t comm, ceclResult_t result)
{
    cecl_comm_leave(comm);
    return result;
}
/* This function and the next one record the message that ranks make different calls, and return ceclInvalidUsage. This
 * one is for two ranks that differ in a known field of call `name`. */
ceclResult_t cecl_comm_differ_in(const char *name, const char *field, int rank, const char *value,
                                 int other, const char *others);
/* This one is for a rank `other` that makes a different call than this rank. If the facts of both calls differ, the
 * message says how. Facts may be NULL. */
ceclResult_t cecl_comm_differ(ceclComm_t comm, const char *name, int other,
                              const struct cecl_facts *mine, const struct cecl_facts *theirs);
/* The end of a message about ranks that make different calls: how to find the difference. Empty if CECL_CHECK is set
 * already. */
static inline const char *cecl_comm_hint(ceclComm_t comm)
{
    return comm->config.check ? "" : "; CECL_CHECK=1 names the difference";
}
/* Fails the communicator with `result` and the last message. Returns the communicator's error: an earlier one, if the
 * communicator had failed before. */
ceclResult_t cecl_comm_break(ceclComm_t comm, ceclResult_t result);
/* Sets the asynchronous error after a peer has gone. The recorded message must say how the peer ended. */
void cecl_comm_lost_peer(ceclComm_t comm, ceclResult_t result);
/* Returns true, and sets the asynchronous error, if a peer has died, or has told why it gave up. Callers ask before
 * they blame a rank, because a peer that has just given up may look late. */
bool cecl_comm_knows_why(ceclComm_t comm);
/* The format of a message about a rank that has left. The first argument of the format is the rank's number. */
#define CECL_COMM_HAS_LEFT(what) \
    "rank %d has left, and " what ": its process or its communicator ended"
/* The part of a message that names the ranks at fault. A late rank may itself wait for another rank, and then that rank
 * is at fault. A stopped rank publishes no new waits, so waits count only if they were published within the last
 * CECL_WATCH_LATE_MS, and within half of the time limit. */
const char *cecl_comm_to_blame(ceclComm_t comm, struct cecl_rank_set late,
                               struct cecl_rank_list *who);
/* Compares the calls that this rank and its peers have made. A difference fails the communicator. */
void cecl_comm_compare_calls(ceclComm_t comm);
/* Fails the communicator if the kernel of a small call gave up, or if rows of an ended call did not fit. Returns the
 * asynchronous error, or success. */
ceclResult_t cecl_comm_hear_kernels(ceclComm_t comm);
/* Whether no work of this communicator is pending. On one host a launched graph is pending until its last captured call
 * has ended. The caller must be inside the communicator, or be ending it. */
bool cecl_comm_is_done(ceclComm_t comm);
/* Takes the `result` of an exchange over the mesh or over the line to the root. If the exchange was cut off, no further
 * exchange is possible: fails the communicator, and returns its error. Otherwise returns `result`. */
ceclResult_t cecl_comm_exchanged(ceclComm_t comm, ceclResult_t result);
/* If `result` is a timeout and the process has several ranks, adds `cure` to the message: what to do if one thread
 * makes the calls of several ranks, which then cannot wait for each other. */
ceclResult_t cecl_comm_add_cure(ceclComm_t comm, ceclResult_t result, const char *cure);
/* Sets the asynchronous error, unless one is already set. */
void cecl_comm_set_async(ceclComm_t comm, ceclResult_t result, const char *message);
/* Returns success, or the asynchronous error, whose message becomes this thread's last one. */
ceclResult_t cecl_comm_async(ceclComm_t comm);
/* Returns `result`, except if it is ceclRemoteError and the communicator has failed: then returns the communicator's
 * error. That may be the cause, because peers that know of a failure no longer receive what this rank sends. */
ceclResult_t cecl_comm_cause(ceclComm_t comm, ceclResult_t result);

/* watch.c */
#define CECL_WATCH_TICK_MS 500 /* the longest time between two looks of the watchdog */
/* How long the watchdog waits for an answer of the worker, at most twice in each look. The driver answers within
 * microseconds, unless it is held up. */
#define CECL_WATCH_ANSWER_MS 100
/* How late the watchdog may notice the end of a time limit, because it measures waits only when it looks. */
#define CECL_WATCH_LATE_MS (2 * (CECL_WATCH_TICK_MS + 2 * CECL_WATCH_ANSWER_MS))
/* The kernel of a small call gives up at most CECL_WATCH_LATE_MS after the time limit, and the watchdog notices that at
 * its next look. */
_Static_assert(CECL_WATCH_LATE_MS + CECL_WATCH_TICK_MS < CECL_MESH_WORD_MS,
               "a rank waits for reports until ranks that know more have sent theirs");
/* The watchdog reports a failure at most this many ms after the time limit. */
#define CECL_WATCH_SLACK_MS (CECL_WATCH_LATE_MS + CECL_MESH_WORD_MS)
ceclResult_t cecl_watch_start(ceclComm_t comm);
void cecl_watch_stop(ceclComm_t comm);
/* Notifies the peers that the communicator has failed, and then ends all waits on this rank. Call it
 * repeatedly, because a late signal of a peer may set a flag back. */
void cecl_watch_release(ceclComm_t comm);
#define CECL_WATCH_RELEASE_MS 5 /* the time between two calls of cecl_watch_release */
/* Waits until no work of this communicator is pending. Returns ceclTimeout at `deadline`. */
ceclResult_t cecl_watch_drain(ceclComm_t comm, int64_t deadline);

/* look.c. One look at everything for which streams of this rank wait, for the watchdog alone. Finds the ranks for which
 * a stream waits, and publishes them (waits.h). Sets the asynchronous error if a wait has taken too long, or if a rank
 * for which a stream waits has left. The time limit of a wait begins when the stream reaches the wait, and begins again
 * when the wait makes progress. now: in ms. */
void cecl_look(ceclComm_t comm, int64_t now);

/* -- replays.c: graphs that hold captured calls -- */

/* Returns a number for a launch of collectives that a graph captures. Ranks capture the same calls in the same order,
 * so the numbers are equal on all ranks. name: the name of the first call. */
uint32_t cecl_replays_number(ceclComm_t comm, const char *name);
/* The name of captured call `number`, which is equal on all ranks. */
const char *cecl_replays_name(ceclComm_t comm, uint32_t number);
/* Ends the waits of graphs that run. Call it repeatedly, because graphs may be launched at any time. */
void cecl_replays_release(ceclComm_t comm);
/* For a communicator that has ended while graphs hold its calls: starts a thread that ends the waits of these graphs
 * when they are launched. The communicator's memory stays mapped. Any thread may call this. */
void cecl_replays_keep(ceclComm_t comm);

/* worker.c */
ceclResult_t cecl_worker_start(ceclComm_t comm);
/* Ends the worker. Returns false if it is still in a driver call after 10 s. Then the communicator must not be freed,
 * because the worker touches it when the driver returns. */
bool cecl_worker_stop(ceclComm_t comm);
/* Asks the worker for the progress of the pending call, and whether graphs are pending. Returns the result of
 * cecl_flags_progress, or ceclInProgress if the driver does not answer within CECL_WATCH_ANSWER_MS. */
ceclResult_t cecl_worker_ask(ceclComm_t comm, struct cecl_progress *progress);

#endif
