/* Describes calls, and settles their windows: each window must describe the memory that is at its addresses now. */
#include "launch/steps.h"
#include "net/net.h"
#include "plan/splits.h"
#include "util/log.h"

/* ---- settling */

/* Whether the registry has a window for a buffer, or can make one. The pool's memory needs none. A buffer in a peer's
 * slice of the pool cannot get one, and is refused later. */
static bool may_be_registered(ceclComm_t comm, struct cecl_buffer buffer)
{
    return buffer.window && !cecl_buffer_is_pool(buffer) &&
           !cecl_pool_holds(&comm->pool, cecl_buffer_address(buffer));
}

/* The bytes of a buffer that a call uses. */
static struct cecl_use use_of(const struct cecl_call *call, const struct cecl_touched *touched)
{
    const void *ptr = cecl_buffer_address(touched->buffer);
    const bool is_recv = touched->written;
    return (struct cecl_use){.name = is_recv ? "recvbuff" : "sendbuff",
                             .buffer = ptr,
                             .low = (uint64_t)(uintptr_t)ptr + touched->low,
                             .high = (uint64_t)(uintptr_t)ptr + touched->high,
                             .written = is_recv && cecl_call_writes_recv(call)};
}

/* Lists those arrays of a call by splits that lie outside the pool. They have no windows, because only kernels use
 * them. Returns their number. */
static size_t arrays_of(ceclComm_t comm, const struct cecl_call *call,
                        struct cecl_use uses[CECL_SPLITS_ARRAYS])
{
    struct cecl_splits_array arrays[CECL_SPLITS_ARRAYS];
    size_t count = 0;
    if (call->op->family != CECL_FAMILY_SPLITS)
        return 0;
    cecl_call_splits_arrays(call, arrays);
    for (int i = 0; i < CECL_SPLITS_ARRAYS; i++) {
        const void *ptr = cecl_call_address(call, arrays[i].word);
        if (arrays[i].bytes == 0 || cecl_pool_holds(&comm->pool, ptr))
            continue;
        uses[count] = cecl_use_all(ptr, arrays[i].bytes, arrays[i].name);
        uses[count++].written = arrays[i].written;
    }
    return count;
}

/* Refuses memory without a registered window if a call cannot use it. `count`: CECL_USES at most. */
static ceclResult_t check_uses(ceclComm_t comm, const struct cecl_use *uses, size_t count)
{
    const struct cecl_device_ops *ops = comm->dev->ops;
    if (count > 0 && ops->check_uses)
        return ops->check_uses(comm->dev, uses, count);
    for (size_t i = 0; i < count; i++)
        CECL_TRY(ops->check_pointer(comm->dev, uses[i].buffer, (size_t)(uses[i].high - uses[i].low),
                                    uses[i].name));
    return ceclSuccess;
}

void cecl_settle_say_private(ceclComm_t comm, const char *call, const struct cecl_use *use)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    struct cecl_region region;
    /* on the host device a shared mapping of a file stands for GPU memory, even if it is not registered */
    if (comm->config.check && comm->dev->kind == CECL_KIND_HOST &&
        comm->dev->ops->region_find(comm->dev, use->buffer, &region) == ceclSuccess &&
        region.kind == CECL_REGION_NONE && !atomic_flag_test_and_set(&said))
        cecl_log(
            CECL_LOG_WARN, comm->rank,
            "CECL_CHECK: %s: %s %p is memory of the host (malloc, the stack), which this device "
            "takes; on "
            "GPUs this call would be refused. There a buffer is memory of ceclMemAlloc, cudaMalloc "
            "or the like (said once in a process)",
            call, use->name, use->buffer);
}

/* Settles the windows of a call's buffers. If the communicator registers on use, registers memory that is in no window.
 * *changed: [out] a window has changed, so the buffers must be looked up and settled again. If no window has changed,
 * also checks private memory. */
static ceclResult_t settle(ceclComm_t comm, const struct cecl_call *call, bool *changed)
{
    const struct cecl_device_ops *ops = comm->dev->ops;
    const bool make = comm->windows.register_on_use && comm->nranks > 1;
    const uint64_t before = comm->registry.changes;
    struct cecl_touched touched[2];
    struct cecl_use unshared[2 + CECL_SPLITS_ARRAYS];
    _Static_assert(2 + CECL_SPLITS_ARRAYS <= CECL_USES, "check_uses takes so many");
    size_t nunshared = 0;
    *changed = false;
    const int count = may_be_registered(comm, call->send) || may_be_registered(comm, call->recv)
                          ? cecl_call_touched(call, touched)
                          : 0;
    for (int i = 0; i < count && comm->registry.changes == before; i++) {
        if (!may_be_registered(comm, touched[i].buffer))
            continue;
        const struct cecl_use use = use_of(call, &touched[i]);
        /* read before settling, which may drop the window: the call has no reference to it yet */
        const bool is_private = cecl_buffer_is_private(touched[i].buffer);
        CECL_TRY(cecl_comm_cause(comm, cecl_registry_settle(&comm->registry, &use, make)));
        if (is_private && ops->check_uses)
            unshared[nunshared++] = use;
    }
    *changed = comm->registry.changes != before;
    if (nunshared > 0 && !*changed)
        cecl_settle_say_private(comm, call->op->name, &unshared[0]);
    nunshared += arrays_of(comm, call, unshared + nunshared);
    return *changed ? ceclSuccess : check_uses(comm, unshared, nunshared);
}

/* ---- describing */

struct cecl_scope cecl_comm_scope(ceclComm_t comm)
{
    return (struct cecl_scope){.rank = comm->rank,
                               .nranks = comm->nranks,
                               .windows = &comm->windows,
                               .options = comm->options,
                               .layout = comm->launcher->layout};
}

/* Describes and settles the call, and repeats both until settling changes no window. */
ceclResult_t cecl_launch_describe(struct cecl_launch *launch, const struct cecl_args *args,
                                  struct cecl_call *call)
{
    ceclComm_t comm = launch->comm;
    struct cecl_scope scope = cecl_comm_scope(comm);
    const struct cecl_op *op = call->op;
    bool changed = true;
    uint32_t index;
    scope.captured = launch->is_captured;
    while (changed) {
        CECL_TRY(cecl_call_describe(op, &scope, args, call));
        if (comm->net) { /* NCCL makes the call, so no window is needed */
            CECL_TRY(cecl_net_check(call, comm->net->nccl->version));
            return cecl_launch_add(launch, call, &index);
        }
        CECL_TRY(settle(comm, call, &changed));
    }
    CECL_TRY(cecl_launch_add(launch, call, &index));
    return cecl_carry_replace(launch, index);
}

/* ---- again */

/* Finds and settles the windows of a call's buffers, and repeats this until settling changes no window. */
static ceclResult_t find_again(struct cecl_launch *launch, uint32_t index)
{
    ceclComm_t comm = launch->comm;
    struct cecl_call call = launch->calls[index];
    const void *send = cecl_buffer_address(call.send), *recv = cecl_buffer_address(call.recv);
    bool changed = true;
    while (changed) {
        call.send = cecl_window_find(&comm->windows, send);
        call.recv = cecl_window_find(&comm->windows, recv);
        CECL_TRY(settle(comm, &call, &changed));
    }
    cecl_launch_derive(launch, index, &call);
    launch->origins[index].changes = comm->registry.changes;
    return cecl_carry_replace(launch, index); /* the new window of recvbuff may be private */
}

/* Finds and settles windows again for calls whose windows were found before the registry's last change. */
static ceclResult_t find_changed(struct cecl_launch *launch)
{
    for (uint32_t i = 0; i < launch->ncalls; i++)
        if (launch->origins[i].changes != launch->comm->registry.changes)
            CECL_TRY(cecl_launch_blame(launch, i, find_again(launch, i)));
    return ceclSuccess;
}

/* If windows change at every try, another thread is freeing memory; the check of the buffers then refuses the call. */
#define TRIES 4

ceclResult_t cecl_settle_again(struct cecl_launch *list, ceclComm_t comm)
{
    uint64_t changes;
    int tries = TRIES;
    do {
        changes = comm->registry.changes;
        for (struct cecl_launch *launch = list; launch; launch = launch->next)
            if (launch->comm == comm)
                CECL_TRY(find_changed(launch));
    } while (comm->registry.changes != changes && --tries > 0);
    return ceclSuccess;
}
