/* ceclSetOptions: the options of later calls on a communicator. */
#include "comm/comm.h"

/* Over several hosts NCCL's kernels need SMs, and NCCL's communicator keeps the maxSms with which it was made. */
static ceclResult_t check_by_nccl(ceclComm_t comm, const struct cecl_options *chosen)
{
    if (chosen->sm_policy == CECL_SM_NEVER)
        CECL_TRY(cecl_comm_check_own(comm, "smPolicy = CECL_SM_NEVER",
                                     "NCCL carries calls there, on its SMs"));
    return chosen->max_sms == comm->config.max_sms
               ? ceclSuccess
               : cecl_comm_check_own(comm, "another maxSms",
                                     "set config.maxSms or CECL_MAX_SMS when it is made");
}

CECL_API ceclResult_t ceclSetOptions(ceclComm_t comm, const ceclOptions_t *options)
{
    CECL_PUBLIC;
    CECL_TRY(cecl_comm_check(comm));
    struct cecl_options chosen = cecl_config_options(&comm->config);
    if (options) {
        if (options->size != sizeof(*options) || options->magic != CECL_OPTIONS_MAGIC)
            return cecl_fail(ceclInvalidArgument,
                             "options: size %zu, magic %#x: not initialised with "
                             "CECL_OPTIONS_INITIALIZER of this library's cecl.h (size %zu)",
                             options->size, options->magic, sizeof(*options));
        CECL_TRY(cecl_config_check_field("options", "smPolicy", options->smPolicy, CECL_SM_NEVER,
                                         CECL_SM_ALLOW));
        CECL_TRY(cecl_config_check_field("options", "direction", options->direction,
                                         CECL_DIRECTION_AUTO, CECL_DIRECTION_PULL));
        CECL_TRY(cecl_config_check_field("options", "maxSms", options->maxSms, 1, CECL_MOST_SMS));
        if (options->maxSms != CECL_UNDEF)
            chosen.max_sms = (uint16_t)options->maxSms;
        if (options->smPolicy != CECL_UNDEF)
            chosen.sm_policy = (uint8_t)options->smPolicy;
        if (options->direction != CECL_UNDEF)
            chosen.direction = (uint8_t)options->direction;
    }
    CECL_TRY(check_by_nccl(comm, &chosen));
    CECL_INSIDE(comm, "ceclSetOptions");
    comm->options = chosen;
    return ceclSuccess;
}
