/* The host device: it behaves as device.h demands of a GPU, with shared memory and threads. */
#include "device/host.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void host_close(struct cecl_device *dev)
{
    struct host_device *host = host_of(dev);
    host_streams_end(host);
    free(host);
}

ceclResult_t host_within(struct cecl_device *dev, ceclResult_t (*function)(void *context),
                         void *context)
{
    return function(context);
}

static const struct cecl_device_ops host_ops = {
    .check_uses = host_check_uses,
#define OP(name) .name = host_##name,
#include "device/ops_list.h"
};

/* Checks that this process can read two files, without which every call on the program's own memory would fail. */
static ceclResult_t check_proc(void)
{
    static const char *const needed[] = {"/proc/self/maps", "/proc/self/fd"};
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
        if (access(needed[i], R_OK) != 0)
            return cecl_fail(ceclSystemError,
                             "%s: %s; the host device finds the program's memory there: is /proc "
                             "mounted?",
                             needed[i], strerror(errno));
    return ceclSuccess;
}

ceclResult_t cecl_host_open(struct cecl_device **dev)
{
    CECL_TRY(check_proc());
    struct host_device *host = calloc(1, sizeof(*host));
    if (!host)
        return cecl_fail(ceclOutOfMemory, "no host memory for a device");
    const long page = sysconf(_SC_PAGESIZE);
    host->base = (struct cecl_device){.ops = &host_ops,
                                      .kind = CECL_KIND_HOST,
                                      .ordinal = -1,
                                      .granularity = page > 4096 ? (size_t)page : 4096};
    const ceclResult_t result = host_standard_open(host);
    if (result != ceclSuccess) {
        host_close(&host->base);
        return result;
    }
    *dev = &host->base;
    return ceclSuccess;
}
