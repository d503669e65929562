#include "multi.h"

#include <time.h>

#include "../share.h"
#include "../try.h"
#include "../world/works.h"
#include "boot/mesh_internal.h"
#include "comm/comm.h"

#define MOST_SECONDS 280 /* below ctest's limit */

int multi_rank, multi_nranks;
void (*multi_spread)(void *bytes, size_t count);

static int saved_stdout = -1, saved_stderr = -1;
static FILE *quiet;

static void hush(void)
{
    if (multi_rank == 0 || !(quiet = tmpfile()))
        return;
    fflush(NULL);
    saved_stdout = dup(1);
    saved_stderr = dup(2);
    dup2(fileno(quiet), 1);
    dup2(fileno(quiet), 2);
}

static void speak(bool show)
{
    char line[512];
    if (!quiet)
        return;
    fflush(NULL);
    dup2(saved_stdout, 1);
    dup2(saved_stderr, 2);
    rewind(quiet);
    while (show && fgets(line, sizeof(line), quiet))
        fprintf(stderr, "rank %d: %s", multi_rank, line);
}

int multi_main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &multi_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &multi_nranks);
    alarm(MOST_SECONDS); /* ends a rank that hangs; then mpirun ends the job */
    hush();
    int mine = tests_run(NULL, NULL), all = 0;
    speak(mine != 0);
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Finalize();
    return all != 0;
}

int multi_share(int all)
{
    const char *device = getenv("CECL_DEVICE");
    return device && strcmp(device, "host") == 0 ? test_share(all) : all;
}

void multi_setenv(const char *name, const char *value)
{
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

void multi_tuning(const char *rows)
{
    char path[64];
    snprintf(path, sizeof(path), "/tmp/cecl_test_tuning_%d", (int)getpid());
    unlink(path);
    multi_setenv("CECL_TUNING", rows ? path : NULL);
    if (!rows)
        return;
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fprintf(out, "cecl-tuning 1\n%s\n", rows);
    assert_int_equal(fclose(out), 0);
}

double multi_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void multi_pause_ms(long ms)
{
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    nanosleep(&pause, NULL);
}

int multi_how_many(bool so)
{
    int mine = so, all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

ceclResult_t multi_async_within(ceclComm_t comm, double seconds)
{
    const double start = multi_seconds();
    ceclResult_t async = ceclSuccess;
    while (async == ceclSuccess && multi_seconds() - start < seconds) {
        multi_ok(NULL, ceclCommGetAsyncError(comm, &async));
        multi_pause_ms(1);
    }
    return async;
}

void multi_fails(ceclComm_t comm, const char *words)
{
    if (multi_async_within(comm, PROMPT) == ceclSuccess || !strstr(ceclGetLastError(comm), words))
        fail_msg("rank %d: no \"%s\": %s", multi_rank, words, ceclGetLastError(comm));
}

void multi_options(ceclComm_t comm, int policy, int direction, int max_sms)
{
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    options.smPolicy = policy;
    options.direction = direction;
    options.maxSms = max_sms;
    multi_ok(comm, ceclSetOptions(comm, &options));
}

ceclUniqueId multi_one_id(void)
{
    ceclUniqueId id;
    if (multi_rank == 0)
        multi_ok(NULL, ceclGetUniqueId(&id));
    if (multi_spread)
        multi_spread(&id, sizeof(id));
    else
        MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, MPI_COMM_WORLD);
    return id;
}

ceclConfig_t multi_config(void)
{
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    config.cudaDevice = CECL_CUDA_DEVICE_BY_RANK;
    config.timeoutMs = 60000; /* above PROMPT */
    return config;
}

ceclComm_t multi_comm(const ceclConfig_t *config)
{
    const ceclConfig_t defaults = multi_config();
    ceclComm_t comm = NULL;
    if (multi_spread)
        return multi_comm_by_id(config);
    multi_ok(NULL, ceclCommInitMpi(&comm, MPI_COMM_WORLD, config ? config : &defaults));
    return comm;
}

ceclComm_t multi_comm_by_id(const ceclConfig_t *config)
{
    const ceclConfig_t defaults = multi_config();
    ceclComm_t comm = NULL;
    multi_ok(NULL, ceclCommInitRankConfig(&comm, multi_nranks, multi_one_id(), multi_rank,
                                          config ? config : &defaults));
    return comm;
}

ceclComm_t multi_comm_under(const char *name, const char *value, const ceclConfig_t *config)
{
    multi_setenv(name, value);
    ceclComm_t comm = multi_comm(config);
    multi_setenv(name, NULL);
    return comm;
}

void multi_limit(ceclComm_t comm, int ms)
{
    MPI_Barrier(MPI_COMM_WORLD);
    comm->config.timeout_ms = ms;
    comm->mesh->timeout_ms = ms;
    MPI_Barrier(MPI_COMM_WORLD);
}

bool multi_on_gpus(ceclComm_t comm)
{
    int device = -1;
    multi_ok(comm, ceclCommCuDevice(comm, &device));
    return device >= 0;
}

bool multi_shares_gpu(ceclComm_t comm)
{
    int device = -1, highest;
    multi_ok(comm, ceclCommCuDevice(comm, &device));
    MPI_Allreduce(&device, &highest, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return highest >= 0 && highest < multi_nranks - 1; /* rank r takes GPU r, if there are enough */
}

void multi_expect(ceclComm_t comm, ceclResult_t got, ceclResult_t want, const char *words,
                  const char *expr, const char *file, int line)
{
    if (got == want && (!words || strstr(ceclGetLastError(comm), words)))
        return;
    const char *said = ceclGetLastError(comm);
    print_error("rank %d: %s\n  is %d (%s), %d expected\n  said: %s\n%s%s\n", multi_rank, expr,
                (int)got, ceclGetErrorString(got), (int)want, said,
                words ? "  expected words: " : "", words ? words : "");
    _fail(file, line);
}

void *multi_alloc(ceclComm_t comm, size_t bytes)
{
    void *at = NULL;
    multi_ok(comm, ceclMemAlloc(comm, &at, bytes));
    return at;
}

ceclStream_t multi_stream(ceclComm_t comm)
{
    ceclStream_t stream = NULL;
    multi_ok(comm, ceclStreamCreate(comm, &stream));
    return stream;
}

void multi_put(ceclComm_t comm, void *device, const void *host, size_t bytes)
{
    multi_ok(comm, ceclMemcpyAsync(comm, device, host, bytes, 0));
    multi_ok(comm, ceclStreamSynchronize(comm, 0));
}

void multi_get(ceclComm_t comm, void *host, const void *device, size_t bytes)
{
    multi_put(comm, host, device, bytes);
}

ceclResult_t multi_fetch(ceclComm_t comm, ceclStream_t stream, void *host, const void *device,
                         size_t bytes)
{
    ceclResult_t async = ceclSuccess;
    TRY(ceclStreamSynchronize(comm, stream));
    TRY(ceclMemcpyAsync(comm, host, device, bytes, 0));
    TRY(ceclStreamSynchronize(comm, 0));
    TRY(ceclCommGetAsyncError(comm, &async));
    return async;
}

void multi_fill_device(ceclComm_t comm, void *device, uint64_t seed, int rank, size_t bytes)
{
    unsigned char *host = malloc(bytes + 1);
    assert_non_null(host);
    model_fill(host, seed, rank, bytes);
    multi_put(comm, device, host, bytes);
    free(host);
}

void multi_guard(ceclComm_t comm, void *device, size_t bytes)
{
    unsigned char *host = malloc(bytes + 1);
    assert_non_null(host);
    memset(host, MULTI_GUARD, bytes);
    multi_put(comm, device, host, bytes);
    free(host);
}

void multi_check_device(ceclComm_t comm, const void *device, uint64_t seed, int from, size_t bytes,
                        size_t all)
{
    unsigned char *host = malloc(all + 1);
    assert_non_null(host);
    multi_get(comm, host, device, all);
    for (size_t i = 0; i < all; i++)
        if (host[i] != (i < bytes ? model_byte(seed, from, i) : MULTI_GUARD))
            fail_msg("rank %d: seed %llu: byte %zu of %zu from rank %d", multi_rank,
                     (unsigned long long)seed, i, bytes, from);
    free(host);
}

void multi_works(ceclComm_t comm, const int *members, int count)
{
    char wrong[200];
    multi_ok(comm, comm_works(comm, members, count, wrong, sizeof(wrong)));
    if (*wrong)
        fail_msg("rank %d: %s", multi_rank, wrong);
}

void multi_cycle(const ceclConfig_t *config)
{
    ceclComm_t comm = multi_comm(config);
    multi_works(comm, NULL, multi_nranks);
    multi_ok(NULL, ceclCommDestroy(comm));
}
