/* Makes a communicator. Ranks introduce themselves, connect, and open the device, the pool and the flags. After each
 * stage ranks agree whether all have succeeded, so either all get a communicator or none does. */
#include <stdatomic.h>

#include "api/introduce.h"
#include "api/life.h"
#include "device/nvtx.h"
#include "launch/launcher.h"
#include "net/net.h"
#include "util/fds.h"
#include "util/grow.h"
#include "util/log.h"

/* Warns only once in a process, because a program may have many communicators. */
static void warn_of_host_device(void)
{
    static atomic_flag done = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&done))
        cecl_log(CECL_LOG_WARN, -1,
                 "running on the host device: %s; to choose it without this warning, set "
                 "CECL_DEVICE=host",
                 cecl_message());
}

ceclResult_t cecl_setup_device(ceclComm_t comm, const struct cecl_hello *all, bool connected)
{
    ceclResult_t cuda = ceclInvalidUsage;
    if (comm->config.device != CECL_DEVICE_HOST)
        cuda = cecl_hellos_gpus_suffice(all, comm->nranks);
    if (cuda == ceclSuccess) {
        CECL_TRY(cecl_cuda_open(all[comm->rank].gpu.ordinal, &comm->dev));
        comm->shares_gpu = cecl_hellos_share_gpu(all, comm->nranks);
        if (comm->rank == 0 && comm->shares_gpu)
            cecl_log(CECL_LOG_WARN, -1,
                     "ranks share a GPU (CECL_SHARE_GPU=1): copies between them run on its SMs, so "
                     "no call that moves data is zero SM");
        for (int r = 0; r < comm->nranks && connected; r++)
            if (!cecl_cuda_reaches(comm->dev, all[r].gpu.uuid))
                return cecl_fail(
                    ceclInvalidUsage,
                    "GPU %d cannot reach the memory of rank %d's GPU (no NVLink or PCIe "
                    "peer access)",
                    (int)all[comm->rank].gpu.ordinal, r);
        return ceclSuccess;
    }
    if (comm->config.device == CECL_DEVICE_AUTO && comm->rank == 0)
        warn_of_host_device();
    return cecl_host_open(&comm->dev);
}

static uint64_t threshold(ceclComm_t comm, enum cecl_threshold which)
{
    return cecl_tuning_get(&comm->tuning, which);
}

static bool is_on_host(ceclComm_t comm)
{
    return comm->dev->kind == CECL_KIND_HOST;
}

/* By default staging takes 1 / STAGING_MEMORY_SHARE of the smallest GPU's memory, at least STAGING_LEAST bytes, but at
 * most CECL_TUNE_STAGING_MAX_BYTES and at most 1 / POOL_SHARE of the pool. */
#define STAGING_MEMORY_SHARE 512
#define STAGING_LEAST (1u << 20)
#define POOL_SHARE 8

/* The default size of staging on GPUs. */
static int64_t staging_of(ceclComm_t comm, uint64_t memory)
{
    const uint64_t part = memory / STAGING_MEMORY_SHARE >> 20 << 20,
                   most = threshold(comm, CECL_TUNE_STAGING_MAX_BYTES),
                   room = (uint64_t)comm->config.pool_bytes / POOL_SHARE;
    const uint64_t wanted = part < STAGING_LEAST ? STAGING_LEAST : part < most ? part : most;
    return (int64_t)(wanted < room ? wanted : room);
}

uint64_t cecl_setup_pool_bytes(ceclComm_t comm, const struct cecl_hello *hello)
{
    return is_on_host(comm) ? UINT64_C(4) << 30 : hello->gpu.memory;
}

/* Sets the sizes that are not configured, to equal values on all ranks: the smallest GPU decides. */
static void settle_sizes(ceclComm_t comm, const struct cecl_hello *all)
{
    const bool host = is_on_host(comm);
    struct cecl_resolved *config = &comm->config;
    uint64_t least = UINT64_MAX;
    for (int r = 0; r < comm->nranks; r++) {
        const uint64_t bytes = cecl_setup_pool_bytes(comm, &all[r]);
        least = bytes < least ? bytes : least;
    }
    if (config->pool_bytes < 0)
        config->pool_bytes = (int64_t)least;
    if (config->segment_bytes < 0)
        config->segment_bytes = INT64_C(1) << (host ? 20 : 26);
    if (config->staging_bytes < 0)
        config->staging_bytes =
            host ? (int64_t)threshold(comm, CECL_TUNE_STAGING_MAX_BYTES) : staging_of(comm, least);
}

/* The time after which a small call's kernel stops waiting for data in slots, which the watchdog does not see. It is
 * longer than the watchdog's time limit: if a peer has not begun the call, the watchdog sees it, and reports first. */
static uint64_t small_timeout_ns(ceclComm_t comm)
{
    const uint64_t bound = (uint64_t)comm->config.timeout_ms;
    return bound > 0 ? (bound + CECL_WATCH_LATE_MS) * UINT64_C(1000000) : 0;
}

/* Whether flags lie in memory of the host. They must if there are few hardware queues: waiting streams soon hold all
 * queues, and then the driver could neither read flags in GPU memory nor end waits (docs/decisions/0020). */
static bool has_host_flags(ceclComm_t comm)
{
    return comm->config.host_flags || comm->config.urgent || comm->few_queues;
}

/* Bytes of one half of the host memory that urgent calls use; 0: there are no urgent calls. */
static uint64_t half_bytes(ceclComm_t comm, const struct cecl_tuning *tuning)
{
    return comm->config.urgent && comm->nranks > 1
               ? cecl_hosted_half(cecl_tuning_get(tuning, CECL_TUNE_URGENT_MAX_BYTES))
               : 0;
}

/* Opens the device, the host memory for flags of messages (in some communicators also of collectives), and the
 * launcher, whose messages use that memory. Ranks agree on the result before any rank can send. */
static ceclResult_t open_device(ceclComm_t comm, const struct cecl_hello *all,
                                const struct cecl_tuning tunings[CECL_TUNING_DEVICES])
{
    CECL_TRY(cecl_setup_device(comm, all, true));
    comm->tuning = tunings[is_on_host(comm) ? CECL_TUNING_HOST : CECL_TUNING_CUDA];
    if (comm->nranks > 1 || has_host_flags(comm))
        CECL_TRY(cecl_hosted_open(&comm->hosted, comm->dev,
                                  cecl_shared_at(&comm->shared, CECL_SHARED_HOSTED), comm->nranks,
                                  half_bytes(comm, &comm->tuning)));
    return cecl_launcher_open(comm);
}

static bool flags_reached(const void *context, uint32_t target)
{
    return cecl_flags_is_over(&((const struct ceclComm *)context)->engine.flags, target);
}

ceclResult_t cecl_setup_registry(ceclComm_t comm, int rank, int nranks)
{
    const struct cecl_registry_asks asks = {flags_reached, cecl_launch_goes_on,
                                            cecl_launch_captures, comm};
    comm->windows = (struct cecl_windows){.pool = &comm->pool,
                                          .registry = &comm->registry,
                                          .register_on_use = comm->config.register_on_use != 0};
    return cecl_registry_open(&comm->registry, comm->dev, comm->mesh, rank, nranks,
                              comm->config.timeout_ms, &asks);
}

/* Opens the registry and all else that the worker and the watchdog read. Then starts both threads. */
static ceclResult_t open_windows(ceclComm_t comm)
{
    comm->engine.windows = &comm->windows;
    cecl_history_open(&comm->history, cecl_shared_at(&comm->shared, CECL_SHARED_HISTORY),
                      comm->rank, comm->nranks);
    cecl_waits_open(&comm->waits, cecl_shared_at(&comm->shared, CECL_SHARED_WAITS), comm->rank,
                    comm->nranks);
    size_t start;
    const int log = cecl_mesh_memory(comm->mesh, &start);
    CECL_TRY(cecl_meetings_open(&comm->meetings, log, start, comm->rank, comm->nranks));
    CECL_TRY(cecl_setup_registry(comm, comm->rank, comm->nranks));
    /* before the watchdog, which asks the worker */
    CECL_TRY(cecl_worker_start(comm));
    return cecl_watch_start(comm);
}

/* The stages after the introduction, if all ranks are on one host. */
static ceclResult_t build(ceclComm_t comm, const struct cecl_hello *all,
                          const struct cecl_tuning tunings[CECL_TUNING_DEVICES])
{
    CECL_TRY(cecl_mesh_connect(comm->mesh, &all->invitation, sizeof(*all), &comm->shared));
    for (int r = 0; r < comm->nranks; r++)
        comm->few_queues = comm->few_queues || all[r].few_queues;
    CECL_TRY(cecl_mesh_agree(comm->mesh, open_device(comm, all, tunings)));
    settle_sizes(comm, all);

    const struct cecl_pool_config pool = {.slice_bytes = (uint64_t)comm->config.pool_bytes,
                                          .segment_bytes = (uint64_t)comm->config.segment_bytes};
    CECL_TRY(cecl_mesh_agree(comm->mesh, cecl_pool_open(&comm->pool, comm->dev, comm->mesh,
                                                        comm->rank, comm->nranks, &pool)));
    CECL_TRY(cecl_engine_open(&comm->engine, &comm->pool, (uint64_t)comm->config.staging_bytes,
                              cecl_tuning_largest_small(&comm->tuning), &comm->hosted,
                              has_host_flags(comm)));
    comm->engine.small_timeout_ns = small_timeout_ns(comm);
    comm->engine.lanes = comm->launcher->messenger.lanes;
    const ceclResult_t result = cecl_mesh_agree(comm->mesh, open_windows(comm));
    /* the watchdog may have ended this wait: then its error says which peer has gone, and why */
    return result != ceclSuccess && cecl_comm_async(comm) != ceclSuccess ? cecl_comm_async(comm)
                                                                         : result;
}

/* Goes on after the introduction. If the ranks are on several hosts, NCCL makes the communicator's calls. */
static ceclResult_t settle_down(ceclComm_t comm, struct cecl_oob *oob, const struct cecl_hello *all,
                                const struct cecl_tuning tunings[CECL_TUNING_DEVICES])
{
    uint16_t host[CECL_MAX_RANKS];
    const int nhosts = cecl_hellos_hosts(all, comm->nranks, host);
    for (int r = 0; r < comm->nranks; r++) {
        comm->ranks_here += all[r].invitation.process == all[comm->rank].invitation.process;
        comm->id ^= all[r].drawn;
    }
    if (nhosts > 1)
        return cecl_comm_by_nccl(comm, oob, all, host, nhosts);
    cecl_lifeline_close(&oob->line);
    return build(comm, all, tunings);
}

static ceclComm_t comm_new(int rank, int nranks, const struct cecl_resolved *config)
{
    ceclComm_t comm = cecl_comm_alloc();
    if (!comm)
        return NULL;
    comm->rank = rank;
    comm->nranks = nranks;
    comm->config = *config;
    comm->options = cecl_config_options(config);
    comm->process = cecl_fork_process();
    pthread_mutex_init(&comm->async_lock, NULL);
    pthread_mutex_init(&comm->watch.lock, NULL);
    pthread_mutex_init(&comm->worker.lock, NULL);
    cecl_cond_init(&comm->worker.news);
    if (cecl_launcher_new(comm))
        return comm;
    cecl_comm_free(comm, true);
    return NULL;
}

/* Makes the shared memory large enough for either device, because ranks have not agreed on a device yet. */
static void lay_out_shared(ceclComm_t comm, const struct cecl_tuning tunings[CECL_TUNING_DEVICES])
{
    uint64_t half = 0;
    for (int d = 0; d < CECL_TUNING_DEVICES; d++)
        half = half_bytes(comm, &tunings[d]) > half ? half_bytes(comm, &tunings[d]) : half;
    const size_t sizes[CECL_SHARED_PARTS] = {
        [CECL_SHARED_PLACES] = cecl_places_bytes(comm->nranks),
        [CECL_SHARED_HISTORY] = cecl_history_bytes(comm->nranks),
        [CECL_SHARED_WAITS] = cecl_waits_bytes(comm->nranks),
        [CECL_SHARED_HOSTED] = cecl_hosted_bytes(comm->nranks, half),
        [CECL_SHARED_POSTS] = comm->nranks > 1 ? cecl_posts_bytes(comm->nranks) : 0,
        [CECL_SHARED_LENT] = CECL_LENT_BYTES,
    };
    cecl_shared_lay_out(sizes, CECL_SHARED_PARTS, &comm->shared);
}

/* Frees everything after init has failed with `result`. First tells the peers the reason. */
static ceclResult_t give_up(ceclComm_t comm, ceclResult_t result)
{
    char words[CECL_MESSAGE_BYTES];
    cecl_keep_message(words);
    if (comm && comm->mesh) {
        cecl_mesh_tell_abort(comm->mesh, words);
        cecl_mesh_joined(comm->mesh);
    }
    if (comm)
        cecl_comm_free(comm, true);
    return cecl_fail_with(result, words);
}

static void say_joined(ceclComm_t comm)
{
    if (comm->config.nvtx && !comm->has_ranges && comm->rank == 0)
        cecl_log(CECL_LOG_WARN, -1,
                 "CECL_NVTX=1: this libcecl was built without CUDA; no NVTX ranges");
    if (comm->net) {
        cecl_log(CECL_LOG_INFO, comm->rank, "joined %d ranks on %d hosts, carried by %s",
                 comm->nranks, comm->net->nhosts, comm->net->name);
        return;
    }
    cecl_log(CECL_LOG_INFO, comm->rank, "joined %d ranks on %s, flags by %s", comm->nranks,
             comm->dev->kind == CECL_KIND_CUDA ? "CUDA" : "the host device",
             comm->engine.flags.on_host ? "words in host memory" : "copies");
}

ceclResult_t cecl_comm_setup(struct cecl_oob *oob, const struct cecl_resolved *config,
                             ceclResult_t local, ceclComm_t *out)
{
    CECL_OWNED struct cecl_hello *all = calloc((size_t)oob->nranks, sizeof(*all));
    ceclComm_t comm = comm_new(oob->rank, oob->nranks, config);
    struct cecl_tuning tunings[CECL_TUNING_DEVICES] = {{{0}}};
    struct cecl_mesh *mesh = NULL;

    if (local == ceclSuccess)
        local = all && comm
                    ? cecl_config_tuning(oob->nranks, tunings)
                    : cecl_fail(ceclOutOfMemory, "no host memory for %d ranks", oob->nranks);
    if (local == ceclSuccess)
        lay_out_shared(comm, tunings);
    ceclResult_t result =
        cecl_introduce(oob, config, tunings, local, comm ? comm->shared.bytes : 0, &mesh, all);
    if (mesh) /* made only if `comm` is not NULL */
        comm->mesh = mesh;
    if (result == ceclSuccess)
        result = settle_down(comm, oob, all, tunings);
    cecl_lifeline_close(&oob->line);
    if (result != ceclSuccess)
        return give_up(comm, result);
    cecl_mesh_joined(comm->mesh);
    comm->has_ranges = comm->config.nvtx && cecl_nvtx_open();
    comm->magic = CECL_COMM_MAGIC;
    cecl_living_add(comm);
    say_joined(comm);
    *out = comm;
    return ceclSuccess;
}
