/* What the multi-rank tests share. One MPI process a rank; the same programs run on the host device
 * and on GPUs, so device memory is
 * only touched by ceclMemcpyAsync. Random data comes from a hash of its place; expectations are
 * computed by plain loops. */
#ifndef CECL_TEST_MULTI_H
#define CECL_TEST_MULTI_H

/* cmocka wants these first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cecl/cecl_mpi.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

extern int multi_rank, multi_nranks;

/* Runs the tests on all ranks; only rank 0's output is shown unless another rank fails. Returns the
 * exit code, equal on all ranks. A
 * test that hangs ends the job after `seconds`. */
int multi_main(int argc, char **argv, const struct CMUnitTest *tests, size_t count,
               unsigned seconds);

/* A communicator of all ranks; fails the test if there is none. `config` may be NULL. */
ceclComm_t multi_comm(const ceclConfig_t *config);
ceclConfig_t multi_config(void); /* defaults, GPU by rank */
bool multi_on_gpus(ceclComm_t comm);

/* Checks a result and shows the words when it is another one. */
#define multi_ok(comm, expr)                                                                       \
    multi_expect((comm), (expr), ceclSuccess, NULL, #expr, __FILE__, __LINE__)
/* The call must fail with `result`, and its words must hold `words`. */
#define multi_refused(comm, expr, result, words)                                                   \
    multi_expect((comm), (expr), (result), (words), #expr, __FILE__, __LINE__)
void multi_expect(ceclComm_t comm, ceclResult_t got, ceclResult_t want, const char *words,
                  const char *expr, const char *file, int line);

/* Byte `index` of what rank `rank` contributes under `seed`. */
unsigned char multi_byte(uint64_t seed, int rank, size_t index);
void multi_fill(unsigned char *out, uint64_t seed, int rank, size_t bytes);
/* Host to device and back, waiting. */
void multi_put(ceclComm_t comm, void *device, const void *host, size_t bytes);
void multi_get(ceclComm_t comm, void *host, const void *device, size_t bytes);

/* One collective with fresh input and poisoned output, all bytes and the guards around them checked
 * on this rank. */
struct multi_case {
    ceclOp_t op;
    size_t count; /* elements */
    ceclDataType_t type;
    bool in_place;
    ceclStream_t stream;
    size_t shift; /* bytes into the allocations */
};
void multi_check(ceclComm_t comm, const struct multi_case *c, uint64_t seed);

/* A crowd: copies beside what is tested, which keep links and copy engines busy. All-gathers of `bytes`
 * a rank, of a communicator and on a stream of their own. Collective. */
struct multi_crowd {
    ceclComm_t comm;
    ceclStream_t stream;
    unsigned char *blocks; /* [ranks * bytes] */
    size_t bytes;
};
void multi_crowd_open(struct multi_crowd *crowd, size_t bytes);
void multi_crowd_come(const struct multi_crowd *crowd, int times); /* returns at once */
void multi_crowd_close(struct multi_crowd *crowd); /* when all has come: every block is there */

size_t multi_type_bytes(ceclDataType_t type);
void multi_setenv(const char *name, const char *value); /* NULL: unset */

int multi_descriptors(void); /* that this process has open */
double multi_seconds(void);  /* monotonic */

#endif
