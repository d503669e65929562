/* One rank's life in a case, and what the processes of a case share. */
#ifndef CECL_TESTS_FAULT_LIFE_H
#define CECL_TESTS_FAULT_LIFE_H

#include <cecl/cecl.h>
#include <pthread.h>
#include <sys/types.h>

#include "../forked.h"
#include "../prompt.h"
#include "../world/life.h"
#include "cases.h"

#define POOL_BYTES (256ll << 20)
#define WARM_ID 2 /* the id of a communicator that ranks make before the case's communicator */
#define IDS 3     /* id 0: the case's communicator; 1: the survivors'; 2: WARM_ID */

struct report {
    struct told told;
    _Atomic int begun; /* attempts that the rank has begun */
    char heard[512];   /* the message of the error by which the rank learned of the fault */
    double took;       /* seconds from the fault to that error */
};

struct meeting {
    struct venue venue;
    struct id {
        _Atomic int ready; /* 1: the id is ready; -1: no id will come */
        ceclUniqueId id;
    } ids[IDS];
    int timeout_ms;       /* for faults that peers only find by a time limit */
    _Atomic int left;     /* how many ranks have gone on without the faulty rank */
    _Atomic int released; /* the ranks without a fault are done, so the faulty one may go on */
    _Atomic int fault_began;
    double fault_at;
    _Atomic int child; /* a process that the faulty rank left behind */
    struct report reports[MOST_RANKS];
};

/* Memory that a rank maps itself and that peers can open. */
struct memory {
    int fd;
    void *ptr;
    size_t bytes;
};

struct life {
    AS_PLAYER;
    const struct fault_case *c;
    struct meeting *meeting;
    struct report *report;
    bool is_faulty;
    enum op op;           /* the call that attempts make now */
    bool gets_wrong;      /* from now on, the rank makes another call than its peers */
    bool is_over;         /* the communicator is finalized or destroyed: no attempt can follow */
    _Atomic bool is_back; /* was stopped or stayed away, and goes on after the others */
    pthread_t thread;
    bool has_thread;
    struct memory kept[2]; /* registered memory; kept until the communicator has ended */
    int nkept;
    ceclComm_t warm; /* a communicator of this rank alone, which keeps its GPU open */
};

/* Whether ranks use GPUs (CECL_TEST_DEVICE=cuda) instead of the host device. */
bool life_on_gpus(void);
/* Copy ints to and from device memory, and wait. */
ceclResult_t life_put(ceclComm_t comm, int *device, const int *host, size_t count);
ceclResult_t life_get(ceclComm_t comm, int *host, const int *device, size_t count);

_Noreturn void life_run(const struct fault_case *c, struct meeting *meeting, int rank);

/* ---- join.c: how the ranks of a case come together */

/* Sets the time limit for all later joins of this process. */
void join_set_limits(int init_timeout_ms);
ceclConfig_t join_config(const struct fault_case *c, int timeout_ms);
/* Joins by the id with this number. Id 0 is made by the rank that the case names, another one by rank 0. */
ceclResult_t join_by_id(struct life *life, int which, int nranks, int rank,
                        const ceclConfig_t *config, ceclComm_t *comm);
ceclResult_t join_first(struct life *life);

/* ---- attempt.c: the calls of a case, and checks of all their results */

/* Makes the call of life->op once, on new inputs, and waits. After a success, the process ends if a byte is wrong, or
 * if the faulty rank did not make the call. */
ceclResult_t attempt_make(struct life *life);
/* Closes the memory that a failed attempt kept open, after the communicator has ended. */
void attempt_clean(struct life *life);

/* ---- misdeed.c: makes the faulty rank commit its fault at its point */

/* Called at each point of an attempt where a fault may come. On the faulty rank, commits the case's fault if this is
 * its point and attempt. Returns if the rank goes on with the attempt. */
void misdeed_at(struct life *life, enum when when);
/* Starts the thread that commits the fault after a random time, if the case has an AMID fault. */
void misdeed_prepare(struct life *life);
/* Waits for the end of that thread, if there is one. */
void misdeed_forget(struct life *life);

/* ---- aftermath.c: what a case checks after the fault */

/* The time limit of communicators in which a rank keeps others waiting; each further try of a case doubles it. Ranks
 * that share a GPU take longer to join. */
#define TIMEOUT_MS (life_on_gpus() ? 2000 : 600)
#define LONG_TIMEOUT_MS 60000 /* of all others, where waits must end earlier, by evidence */

/* Fails if all ranks should have learned of the fault by now. */
void aftermath_check_time(struct life *life);
/* Checks the error of a call that has failed with `result`: the code, the time and the message. */
void aftermath_check_error(struct life *life, ceclResult_t result);
/* Between calls: if a rank can learn of the fault without a call, waits until this rank has, and checks the error. */
void aftermath_watch_idle(struct life *life);

/* How a life ends, by the rank's role. */
_Noreturn void aftermath_of_survivors(struct life *life);
_Noreturn void
aftermath_of_the_late(struct life *life);               /* for a rank that stayed away from calls */
_Noreturn void aftermath_of_leaving(struct life *life); /* for a rank that aborts or destroys */

#endif
