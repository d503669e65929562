/* What multi-rank tests share. An MPI process is a rank. The programs also run on GPUs, so only ceclMemcpyAsync touches
 * device memory. Random data is a hash of its position. Plain loops compute the expected results. */
#ifndef CECL_TEST_MULTI_H
#define CECL_TEST_MULTI_H

#include "../prompt.h"
#include "../with_cmocka.h"
#include "../world/bytes.h"

#include <cecl/cecl_mpi.h>

extern int multi_rank, multi_nranks;

/* Runs the program's tests on all ranks; the main of main.c does only this. Only rank 0's output is shown, unless
 * another rank fails. A test that hangs ends the job. Returns the exit code, equal on all ranks. */
int multi_main(int argc, char **argv);

/* Makes a communicator of all ranks, or fails the test. `config` may be NULL. */
ceclComm_t multi_comm(const ceclConfig_t *config);
ceclComm_t multi_comm_by_id(const ceclConfig_t *config);
/* As multi_comm, with this variable in the environment, which is unset afterwards. */
ceclComm_t multi_comm_under(const char *name, const char *value, const ceclConfig_t *config);
/* Defines a test with a communicator `comm` of all ranks, ended after the test. `made` makes it. */
#define TEST_WITH(made, name) \
    static void name##_with(void **state, ceclComm_t comm); \
    TEST(name) \
    { \
        ceclComm_t comm = made; \
        name##_with(state, comm); \
        multi_ok(NULL, ceclCommDestroy(comm)); \
    } \
    static void name##_with(void **state, ceclComm_t comm)
#define TEST_WITH_COMM(name) TEST_WITH(multi_comm(NULL), name)
/* Collective. Sets the time limit of waits for calls on `comm`, also of those that have begun. Call it after all that
 * may take longer than `ms` on a busy machine. */
void multi_limit(ceclComm_t comm, int ms);
/* Broadcasts rank 0's bytes to all ranks; NULL: MPI does it. Tests whose ranks die run without MPI and set this. */
extern void (*multi_spread)(void *bytes, size_t count);
/* The default configuration, with the GPU chosen by rank and a time limit of 60 s. */
ceclConfig_t multi_config(void);
/* Returns the same unique id on all ranks; rank 0 gets it. */
ceclUniqueId multi_one_id(void);
bool multi_on_gpus(ceclComm_t comm);
/* Whether ranks share one GPU (CECL_SHARE_GPU=1): copies between ranks then need SMs. */
bool multi_shares_gpu(ceclComm_t comm);

/* Fails the test and shows the message unless the result is ceclSuccess. */
#define multi_ok(comm, expr) \
    multi_expect((comm), (expr), ceclSuccess, NULL, #expr, __FILE__, __LINE__)
/* Checks that the call fails with `result` and a message that contains `words`. */
#define multi_refused(comm, expr, result, words) \
    multi_expect((comm), (expr), (result), (words), #expr, __FILE__, __LINE__)
void multi_expect(ceclComm_t comm, ceclResult_t got, ceclResult_t want, const char *words,
                  const char *expr, const char *file, int line);

/* Memory of the communicator's pool; a stream of the communicator. */
void *multi_alloc(ceclComm_t comm, size_t bytes);
ceclStream_t multi_stream(ceclComm_t comm);

/* The next random number, of 31 bits. Ranks that start with the same seed draw the same numbers. */
static inline uint64_t multi_draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}
static inline uint64_t multi_draw_below(uint64_t *state, uint64_t below)
{
    return multi_draw(state) % below;
}
/* The ranks after and before this one in a ring. */
static inline int multi_next(void)
{
    return (multi_rank + 1) % multi_nranks;
}
static inline int multi_last(void)
{
    return (multi_rank + multi_nranks - 1) % multi_nranks;
}
/* Copies from host to device, or back, and waits for the copy. */
void multi_put(ceclComm_t comm, void *device, const void *host, size_t bytes);
void multi_get(ceclComm_t comm, void *host, const void *device, size_t bytes);
/* As multi_get, after all that `stream` has to do; the communicator may fail meanwhile. Returns the first error. */
ceclResult_t multi_fetch(ceclComm_t comm, ceclStream_t stream, void *host, const void *device,
                         size_t bytes);
/* Fills device memory with the input of a rank, or with a guard byte. */
void multi_fill_device(ceclComm_t comm, void *device, uint64_t seed, int rank, size_t bytes);
#define MULTI_GUARD 0xa5
void multi_guard(ceclComm_t comm, void *device, size_t bytes);
/* Checks that device memory begins with `bytes` bytes of rank `from`'s input, and has guard bytes up to `all`. */
void multi_check_device(ceclComm_t comm, const void *device, uint64_t seed, int from, size_t bytes,
                        size_t all);

/* Checks that `comm` has these ranks of the world, in this order (NULL: all ranks), and that calls on it are right. */
void multi_works(ceclComm_t comm, const int *members, int count);
/* Makes a communicator of all ranks, which works, and destroys it. */
void multi_cycle(const ceclConfig_t *config);

/* How many of `all` rounds to run: on the host device test_share(all), on GPUs all. */
int multi_share(int all);
void multi_setenv(const char *name, const char *value); /* NULL: unset */
/* Sets CECL_TUNING to a file with these rows, one file for each rank. NULL unsets CECL_TUNING. */
void multi_tuning(const char *rows);

/* Sets options of this rank's later calls. CECL_UNDEF: the communicator's. */
void multi_options(ceclComm_t comm, int policy, int direction, int max_sms);
int multi_how_many(bool so); /* Number of ranks for which the value is true. Collective. */
double multi_seconds(void);  /* monotonic time */
void multi_pause_ms(long ms);
/* Returns the asynchronous error once there is one, or ceclSuccess after `seconds`. */
ceclResult_t multi_async_within(ceclComm_t comm, double seconds);
/* Checks that the communicator fails soon, with a message that contains `words`. */
void multi_fails(ceclComm_t comm, const char *words);

#endif
