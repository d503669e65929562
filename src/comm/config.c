/* Combines ceclConfig_t and the environment. A variable that is set overrides the field. */
#include <inttypes.h>

#include "comm/comm.h"
#include "plan/tuning.h"
#include "util/settings.h"

#define DEFAULT_TIMEOUT_MS 30000

_Static_assert(CECL_CUDA_DEVICE_CURRENT == -1 && CECL_CUDA_DEVICE_BY_RANK == -2,
               "the words of CECL_CUDA_DEVICE have these values, in this order");
_Static_assert(CECL_MAX_RANKS == CECL_TUNING_RANKS_MAX,
               "a tuning file may name any number of ranks");

ceclResult_t cecl_config_check_field(const char *of, const char *field, int64_t value, int64_t low,
                                     int64_t high)
{
    if (value == CECL_UNDEF || (value >= low && value <= high))
        return ceclSuccess;
    return cecl_fail(ceclInvalidArgument,
                     "%s.%s = %" PRId64 ": %" PRId64 " to %" PRId64 " expected", of, field, value,
                     low, high);
}

static ceclResult_t check_config(const ceclConfig_t *config)
{
    return config->size == sizeof(*config) && config->magic == CECL_CONFIG_MAGIC
               ? ceclSuccess
               : cecl_fail(ceclInvalidArgument,
                           "config: size %zu, magic %#x: not initialised with "
                           "CECL_CONFIG_INITIALIZER of this library's cecl.h (size %zu)",
                           config->size, config->magic, sizeof(*config));
}

/* Sets *out to the variable's value if the variable is set; else to `value`, the field of ceclConfig_t, unless that is
 * CECL_UNDEF. */
static ceclResult_t choose(const char *field, int64_t value, int64_t low, int64_t high,
                           enum cecl_setting_id id, int64_t *out)
{
    CECL_TRY(cecl_config_check_field("config", field, value, low, high));
    if (value != CECL_UNDEF)
        *out = value;
    return cecl_setting_read(id, out);
}

static ceclResult_t choose32(const char *field, int32_t value, int64_t low, int64_t high,
                             enum cecl_setting_id id, int32_t *out)
{
    int64_t wide = *out;
    CECL_TRY(choose(field, value, low, high, id, &wide));
    *out = (int32_t)wide; /* the ranges in the table of settings fit into 32 bits */
    return ceclSuccess;
}
#define CHOOSE(choose, field, low, high, id, out) \
    CECL_TRY(choose(#field, config->field, low, high, CECL_SET_##id, out))

/* Like choose32, for settings without a field. */
static ceclResult_t override32(enum cecl_setting_id id, int32_t *value)
{
    return choose32("", CECL_UNDEF, 0, 0, id, value);
}

ceclResult_t cecl_config_resolve(const ceclConfig_t *config, struct cecl_resolved *out)
{
    static const ceclConfig_t defaults = CECL_CONFIG_INITIALIZER;
    int64_t debug;
    if (!config)
        config = &defaults;
    cecl_settings_warn();
    /* Every field first gets a default: even after an error below, the rank meets its peers and tells them the
     * error. */
    *out = (struct cecl_resolved){.device = CECL_DEVICE_AUTO,
                                  .cuda_device = CECL_CUDA_DEVICE_CURRENT,
                                  .sm_policy = CECL_SM_REDUCE_ONLY,
                                  .register_on_use = 1,
                                  .timeout_ms = DEFAULT_TIMEOUT_MS,
                                  .init_timeout_ms = 60000,
                                  .pool_bytes = CECL_UNDEF,
                                  .segment_bytes = CECL_UNDEF,
                                  .staging_bytes = CECL_UNDEF};
    CECL_TRY(override32(CECL_SET_INIT_TIMEOUT_MS, &out->init_timeout_ms));
    CECL_TRY(check_config(config));

    CHOOSE(choose32, device, CECL_DEVICE_AUTO, CECL_DEVICE_HOST, DEVICE, &out->device);
    CHOOSE(choose32, smPolicy, CECL_SM_NEVER, CECL_SM_ALLOW, SM_POLICY, &out->sm_policy);
    CHOOSE(choose32, timeoutMs, 0, 86400000, TIMEOUT_MS, &out->timeout_ms);
    CHOOSE(choose32, maxSms, 1, CECL_MOST_SMS, MAX_SMS, &out->max_sms);
    CHOOSE(choose32, registerOnUse, 0, 1, REGISTER_ON_USE, &out->register_on_use);
    CHOOSE(choose32, urgent, 0, 1, URGENT, &out->urgent);
    CHOOSE(choose, poolBytes, 1 << 20, INT64_C(16) << 40, POOL_BYTES, &out->pool_bytes);
    CHOOSE(choose, segmentBytes, 4 << 10, INT64_C(1) << 40, SEGMENT_BYTES, &out->segment_bytes);
    CHOOSE(choose, stagingBytes, 4 << 10, INT64_C(64) << 30, STAGING_BYTES, &out->staging_bytes);

    CECL_TRY(override32(CECL_SET_DIRECTION, &out->direction));
    CECL_TRY(override32(CECL_SET_FLAGS, &out->host_flags));
    CECL_TRY(override32(CECL_SET_SHARE_GPU, &out->share_gpu));
    CECL_TRY(override32(CECL_SET_CHECK, &out->check));
    CECL_TRY(override32(CECL_SET_NVTX, &out->nvtx));
    CECL_TRY(override32(CECL_SET_NODE_SIZE, &out->node_size));
    CECL_TRY(cecl_setting_read(CECL_SET_DEBUG, &debug)); /* only to refuse a bad value */
    CHOOSE(choose32, cudaDevice, CECL_CUDA_DEVICE_BY_RANK, 1 << 16, CUDA_DEVICE, &out->cuda_device);
    return ceclSuccess;
}

ceclResult_t cecl_config_tuning(int nranks, struct cecl_tuning tunings[CECL_TUNING_DEVICES])
{
    const char *path = cecl_setting_text(CECL_SET_TUNING);
    struct cecl_tuning_file file = {0};
    if (path)
        CECL_TRY(cecl_tuning_read(path, &file));
    for (int d = 0; d < CECL_TUNING_DEVICES; d++)
        cecl_tuning_resolve(&file, (enum cecl_tuning_device)d, nranks, &tunings[d]);
    cecl_tuning_forget(&file);
    return ceclSuccess;
}
