/* See introduce.h. */
#include "api/introduce.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "boot/net.h"
#include "util/settings.h"

#define HASH_PRIME UINT64_C(0x100000001b3)

/* A hash of the id of the kernel's boot and of this process's network namespace; 0: they cannot be read. */
static uint64_t network_id(void)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    char boot[64];
    struct stat space;
    ssize_t got = -1;
    const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        got = read(fd, boot, sizeof(boot));
        close(fd);
    }
    if (got <= 0 || stat("/proc/self/ns/net", &space) != 0)
        return 0;
    for (ssize_t i = 0; i < got; i++)
        hash = (hash ^ (unsigned char)boot[i]) * HASH_PRIME;
    return (hash ^ (uint64_t)space.st_ino) * HASH_PRIME;
}

/* Finds the number of this rank's host. A network namespace counts as a host: Unix sockets reach no further. */
static ceclResult_t find_host(int32_t parent_host, uint64_t *host)
{
    const char *given = cecl_setting_text(CECL_SET_HOST_ID);
    errno = 0;
    *host = network_id();
    if (*host == 0 && (errno == EMFILE || errno == ENFILE))
        return cecl_fail(ceclSystemError, "no descriptor to find out which host this is: %s",
                         strerror(errno));
    for (; given && *given; given++)
        *host = (*host ^ (unsigned char)*given) * HASH_PRIME;
    *host += (uint64_t)parent_host;
    return ceclSuccess;
}

/* Whether the streams of this process share fewer hardware queues than CUDA's default, 8. CUDA reads the number from
 * the environment, and has no call that returns it. */
static bool has_few_queues(void)
{
    const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    char *end = NULL;
    errno = 0;
    const long queues = text ? strtol(text, &end, 10) : 0;
    return text && end != text && *end == '\0' && errno == 0 && queues >= 1 && queues < 8;
}

/* Fills in this rank's introduction. Makes the mesh first, because the introduction says how peers connect to it. */
static void introduce(const struct cecl_oob *oob, const struct cecl_resolved *config,
                      ceclResult_t local, size_t shared_bytes, struct cecl_mesh **mesh,
                      struct cecl_hello *me)
{
    *me = (struct cecl_hello){.magic = CECL_HELLO_MAGIC,
                              .version = CECL_VERSION,
                              .nranks = oob->nranks,
                              .rank = oob->rank,
                              .few_queues = has_few_queues(),
                              .config = *config};
    if (local == ceclSuccess)
        local = cecl_mesh_new(oob, config->timeout_ms, shared_bytes, &me->invitation, mesh);
    if (local == ceclSuccess)
        local = find_host(config->parent_host, &me->host);
    if (local == ceclSuccess)
        local = cecl_net_random(&me->drawn, sizeof(me->drawn));
    if (local == ceclSuccess && config->device != CECL_DEVICE_HOST)
        local =
            cecl_cuda_probe(config->cuda_device, oob->rank, &me->gpu, me->text, sizeof(me->text));
    me->status = (int32_t)local;
    if (local != ceclSuccess)
        cecl_shorten(me->text, sizeof(me->text), cecl_message());
}

/* Compares the settings that must be equal on all ranks; other fields may differ. */
static ceclResult_t compare_config(const struct cecl_resolved *a, const struct cecl_resolved *b,
                                   int rank)
{
    const struct {
        const char *name;
        int64_t a, b;
    } fields[] = {
        {"device (CECL_DEVICE)", a->device, b->device},
        {"smPolicy (CECL_SM_POLICY)", a->sm_policy, b->sm_policy},
        {"CECL_DIRECTION", a->direction, b->direction},
        {"maxSms (CECL_MAX_SMS)", a->max_sms, b->max_sms},
        {"CECL_FLAGS", a->host_flags, b->host_flags},
        {"CECL_SHARE_GPU", a->share_gpu, b->share_gpu},
        {"urgent (CECL_URGENT)", a->urgent, b->urgent},
        {"CECL_CHECK", a->check, b->check},
        {"timeoutMs (CECL_TIMEOUT_MS)", a->timeout_ms, b->timeout_ms},
        {"poolBytes (CECL_POOL_BYTES)", a->pool_bytes, b->pool_bytes},
        {"segmentBytes (CECL_SEGMENT_BYTES)", a->segment_bytes, b->segment_bytes},
        {"stagingBytes (CECL_STAGING_BYTES)", a->staging_bytes, b->staging_bytes},
        {"CECL_NODE_SIZE", a->node_size, b->node_size},
        {"CECL_TUNING (a hash of the table)", a->tuning, b->tuning},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (fields[i].a != fields[i].b)
            return cecl_fail(ceclInvalidArgument,
                             "ranks differ in %s: %" PRId64 " on rank 0, %" PRId64 " on rank %d",
                             fields[i].name, fields[i].a, fields[i].b, rank);
    return ceclSuccess;
}

/* A peer's status as an error of cecl. It may have come through the caller's callbacks, so it can be any number. */
static ceclResult_t known_result(int32_t status)
{
    return status >= ceclUnhandledCudaError && status <= ceclTimeout ? (ceclResult_t)status
                                                                     : ceclInternalError;
}

/* Comes before all other comparisons, because other versions may have other fields in their introductions. */
static ceclResult_t compare_versions(const struct cecl_hello *all, int nranks)
{
    for (int r = 1; r < nranks; r++)
        if (all[r].magic != all[0].magic || all[r].version != all[0].version)
            return cecl_fail(ceclInvalidUsage,
                             "rank %d has a different version of cecl than rank 0: %d, not %d", r,
                             (int)all[r].version, (int)all[0].version);
    return ceclSuccess;
}

ceclResult_t cecl_hellos_compare(const struct cecl_hello *all, int nranks)
{
    CECL_TRY(compare_versions(all, nranks));
    for (int r = 0; r < nranks; r++)
        if (all[r].status != ceclSuccess)
            return cecl_fail(known_result(all[r].status), "rank %d: %.*s", r, CECL_HELLO_TEXT_BYTES,
                             all[r].text);
    for (int r = 0; r < nranks; r++) {
        if (all[r].nranks != nranks)
            return cecl_fail(ceclInvalidArgument, "nranks: %d on rank %d, %d on this rank",
                             (int)all[r].nranks, r, nranks);
        if (all[r].rank != r)
            return cecl_fail(ceclInvalidArgument,
                             "rank %d: taken twice, or out of order: it is at place %d",
                             (int)all[r].rank, r);
        CECL_TRY(compare_config(&all[0].config, &all[r].config, r));
    }
    return ceclSuccess;
}

static bool have_one_gpu(const struct cecl_hello *a, const struct cecl_hello *b)
{
    return memcmp(a->gpu.uuid, b->gpu.uuid, sizeof(a->gpu.uuid)) == 0;
}

/* Refuses two ranks on one GPU: always if they are in one process, otherwise unless CECL_SHARE_GPU=1. In one process
 * streams of both ranks may share a hardware queue. There one rank's wait would hold up work that ends this wait. */
static ceclResult_t may_have_gpus(const struct cecl_hello *a, const struct cecl_hello *b)
{
    if (!have_one_gpu(a, b))
        return ceclSuccess;
    if (!a->config.share_gpu)
        return cecl_fail(
            ceclInvalidUsage,
            "ranks %d and %d are on one GPU (CUDA device %d); each needs its own: call "
            "cudaSetDevice first, or set config.cudaDevice = CECL_CUDA_DEVICE_BY_RANK; to try a "
            "program on fewer GPUs, set CECL_SHARE_GPU=1",
            a->rank, b->rank, (int)b->gpu.ordinal);
    if (a->invitation.process == b->invitation.process)
        return cecl_fail(ceclInvalidUsage,
                         "ranks %d and %d are on one GPU (CUDA device %d) and in one process; with "
                         "CECL_SHARE_GPU=1 each needs a process of its own",
                         a->rank, b->rank, (int)b->gpu.ordinal);
    return ceclSuccess;
}

ceclResult_t cecl_hellos_gpus_suffice(const struct cecl_hello *all, int nranks)
{
    for (int r = 0; r < nranks; r++)
        if (!all[r].gpu.usable)
            return cecl_fail(ceclInvalidUsage, "rank %d has no usable GPU: %.*s", r,
                             CECL_HELLO_TEXT_BYTES, all[r].text);
    for (int r = 0; r < nranks; r++)
        for (int q = 0; q < r; q++)
            CECL_TRY(may_have_gpus(&all[q], &all[r]));
    return ceclSuccess;
}

bool cecl_hellos_share_gpu(const struct cecl_hello *all, int nranks)
{
    for (int r = 0; r < nranks; r++)
        for (int q = 0; q < r; q++)
            if (have_one_gpu(&all[q], &all[r]))
                return true;
    return false;
}

int cecl_hellos_hosts(const struct cecl_hello *all, int nranks, uint16_t *host)
{
    const int size = all[0].config.node_size;
    int count = 0;
    for (int r = 0; r < nranks; r++) {
        int q = 0;
        while (all[q].host != all[r].host || (size > 0 && q / size != r / size))
            q++;
        host[r] = q < r ? host[q] : (uint16_t)count++;
    }
    return count;
}

ceclResult_t cecl_introduce(struct cecl_oob *oob, const struct cecl_resolved *config,
                            const struct cecl_tuning tunings[CECL_TUNING_DEVICES],
                            ceclResult_t local, size_t shared_bytes, struct cecl_mesh **mesh,
                            struct cecl_hello *all)
{
    struct cecl_hello me;
    char words[CECL_MESSAGE_BYTES];
    cecl_keep_message(words);
    introduce(oob, config, local, shared_bytes, mesh, &me);
    me.config.tuning = cecl_tuning_hash(tunings, CECL_TUNING_DEVICES);
    oob->host = me.host + (uint64_t)(config->node_size > 0 ? oob->rank / config->node_size : 0);
    const ceclResult_t told = oob->allgather(oob, &me, all, sizeof(me));
    if (local != ceclSuccess &&
        (told != ceclSuccess || !all)) /* cecl_hellos_compare, which reports `local`, needs `all` */
        return cecl_fail_with(local, words);
    CECL_TRY(told);
    CECL_TRY(cecl_hellos_compare(all, oob->nranks));
    return config->device == CECL_DEVICE_CUDA ? cecl_hellos_gpus_suffice(all, oob->nranks)
                                              : ceclSuccess;
}
