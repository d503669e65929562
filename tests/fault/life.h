/* One rank's life in a case, and what the processes of a case share. */
#ifndef CECL_TESTS_FAULT_LIFE_H
#define CECL_TESTS_FAULT_LIFE_H

#include <cecl/cecl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "cases.h"
#include "census.h"

#define POOL_BYTES (256ll << 20)
#define OOB_EXCHANGES 16
#define PART_BYTES 16384
#define WARM_ID 2 /* of a communicator before that of the case */
#define IDS 3     /* 0: of the case's communicator; 1: of the one of those who are left */

struct report {
    const char *_Atomic step; /* what the rank does now; a string constant */
    _Atomic int begun;        /* attempts that the rank has begun */
    _Atomic int done;         /* it has nothing left to do that needs the others */
    _Atomic int failed;
    double failed_at;
    char words[1536]; /* what was not as it should be */
    char heard[512];  /* the error by which it learned of the fault */
    double took;      /* seconds from the fault to that error */
};

/* Shared by the processes of a case. */
struct meeting {
    struct id {
        _Atomic int ready; /* 1: it is there; -1: there will be none */
        ceclUniqueId id;
    } ids[IDS];
    int timeout_ms;       /* where nothing but time tells of the fault */
    _Atomic int passed;   /* ranks that came to a meeting point, of all of them together */
    _Atomic int left;     /* ranks that go on without the faulty one */
    _Atomic int released; /* the ranks without fault are done */
    _Atomic int fault_began;
    double fault_at;
    _Atomic int child; /* a process that the faulty rank left */
    /* the exchange of callbacks: [round][rank] */
    _Atomic int brought[OOB_EXCHANGES][MOST_RANKS];
    char parts[OOB_EXCHANGES][MOST_RANKS][PART_BYTES];
    struct report reports[MOST_RANKS];
};

/* Memory of a rank's own that peers can open. */
struct memory {
    int fd;
    void *ptr;
    size_t bytes;
};

struct life {
    const struct fault_case *c;
    struct meeting *meeting;
    struct report *report;
    int me, n;
    bool is_faulty;
    enum op op; /* what the attempts are of now */
    ceclComm_t comm;
    int *in, *out;        /* symmetric memory of INTS ints each, of the device */
    int attempt;          /* the number of the current one */
    bool gets_wrong;      /* it makes another call than its peers, from now on */
    bool is_over;         /* the communicator is finalized or destroyed: no attempt can follow */
    _Atomic bool is_back; /* it was stopped, or kept away, and goes on after the others */
    pthread_t thread;
    bool has_thread;
    struct memory kept[2]; /* registered; kept until the communicator has ended */
    int nkept;
    int awaited; /* of meeting->passed */
    int oob_round;
    struct census start;
    ceclComm_t warm; /* on GPUs, of this rank alone: it keeps the GPU open */
};

/* Whether ranks are on GPUs: with CECL_TEST_DEVICE=cuda. Otherwise they are on the host device. */
bool life_on_gpus(void);
/* Copy ints to and from memory of the device, and wait for it. */
ceclResult_t life_put(ceclComm_t comm, int *device, const int *host, size_t count);
ceclResult_t life_get(ceclComm_t comm, int *host, const int *device, size_t count);

double now(void);
/* Records what is not as it should be, and ends the process. */
_Noreturn void life_fail(struct life *life, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
#define STEP(life, text) atomic_store(&(life)->report->step, text)

/* A whole life. Does not return. */
_Noreturn void life_run(const struct fault_case *c, struct meeting *meeting, int rank);

#endif
