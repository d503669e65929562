/* The public functions for registered memory. */
#include <stdlib.h>

#include "api/life.h"
#include "launch/group.h"
#include "util/log.h"

/* A registration by the program. Several registrations may be in one window. */
struct ceclRegistration {
    struct cecl_window *window; /* NULL: memory of the pool, which needs no registration */
    struct ceclRegistration *next;
};

static ceclResult_t check_range(ceclComm_t comm, const void *ptr, size_t bytes)
{
    CECL_TRY(cecl_check_given("ptr", ptr));
    if (bytes == 0 || (uintptr_t)ptr + bytes < (uintptr_t)ptr)
        return cecl_fail(ceclInvalidArgument,
                         "bytes %zu at %p: 1 or more expected, within the address space", bytes,
                         ptr);
    const struct cecl_buffer buffer = cecl_window_find(&comm->windows, ptr);
    return cecl_buffer_is_pool(buffer) || cecl_pool_holds(&comm->pool, ptr)
               ? cecl_window_check_symmetric(&comm->windows, buffer, bytes, "ptr")
               : ceclSuccess;
}

static ceclResult_t cannot_share(const void *ptr)
{
    return cecl_fail(
        ceclInvalidUsage,
        "ptr %p: memory that other processes cannot open (expected: memory of cudaMalloc, of "
        "ceclMemAlloc, or of cuMemCreate with file descriptors as handles). Collectives can use "
        "memory of other kinds without registration, through a peer's staging",
        ptr);
}

/* Pins the memory's window, and makes the window first if there is none. *window: [out] unchanged for memory of the
 * pool. */
static ceclResult_t pin_memory(ceclComm_t comm, void *ptr, size_t bytes,
                               struct cecl_window **window)
{
    struct cecl_registry *registry = &comm->registry;
    struct cecl_use all = cecl_use_all(ptr, bytes, "ptr");
    all.ahead = true;
    if (cecl_pool_owns(&comm->pool, ptr))
        return ceclSuccess;
    /* calls do not notice if the program replaces private memory, so the window of such memory is made anew */
    const struct cecl_window *former = cecl_registry_find(registry, ptr);
    if (former && former->number == 0)
        CECL_TRY(cecl_registry_forget(registry, ptr));
    CECL_TRY(cecl_comm_cause(comm, cecl_registry_settle(registry, &all, true)));
    struct cecl_window *found = cecl_registry_find(registry, ptr);
    if (!found || found->number == 0)
        return cannot_share(ptr);
    cecl_window_pin(found);
    *window = found;
    return ceclSuccess;
}

ceclResult_t cecl_registration_add(ceclComm_t comm, void *ptr, size_t bytes,
                                   ceclRegistration_t *handle)
{
    CECL_TRY(check_range(comm, ptr, bytes));
    struct ceclRegistration *made = calloc(1, sizeof(*made));
    if (!made)
        return cecl_fail(ceclOutOfMemory, "no host memory for a registration");
    const ceclResult_t result = pin_memory(comm, ptr, bytes, &made->window);
    if (result != ceclSuccess) {
        free(made);
        return result;
    }
    /* resets the time spent on registering, which the next call would add to its wait for peers (tell.c) */
    (void)cecl_registry_told_ns(&comm->registry);
    made->next = comm->registrations;
    comm->registrations = made;
    *handle = made;
    return ceclSuccess;
}

CECL_API ceclResult_t ceclCommRegister(ceclComm_t comm, void *ptr, size_t bytes,
                                       ceclRegistration_t *handle)
{
    CECL_PUBLIC;
    CECL_TRY(cecl_comm_check(comm));
    CECL_TRY(cecl_check_given("handle", handle));
    CECL_INSIDE(comm, "ceclCommRegister");
    return cecl_registration_add(comm, ptr, bytes, handle);
}

static ceclRegistration_t *find(ceclComm_t comm, ceclRegistration_t handle)
{
    struct ceclRegistration **at = &comm->registrations;
    while (*at && *at != handle)
        at = &(*at)->next;
    return at;
}

/* Whether the window still exists, and has no other registration. */
static bool is_last(const struct ceclRegistration *registration)
{
    const struct cecl_window *window = registration->window;
    return window && !window->gone && window->pins == 1;
}

ceclResult_t cecl_registration_end(ceclComm_t comm, ceclRegistration_t handle)
{
    struct cecl_window *window = handle->window;
    const bool last = is_last(handle);
    *find(comm, handle) = handle->next;
    free(handle);
    ceclResult_t result = ceclSuccess;
    if (window)
        cecl_window_unpin(window);
    if (last && cecl_comm_async(comm) == ceclSuccess)
        result = cecl_registry_drop(&comm->registry, window);
    cecl_window_release(window);
    return result;
}

static ceclResult_t remove_registration(ceclComm_t comm, ceclRegistration_t handle)
{
    CECL_TRY(cecl_check_given("handle", handle));
    if (!*find(comm, handle))
        return cecl_fail(
            ceclInvalidArgument,
            "handle %p: not a registration of this communicator (deregistered before?)",
            (void *)handle);
    if (cecl_group_waiting(comm) > 0)
        return cecl_fail(ceclInvalidUsage,
                         "handle %p: calls of this communicator wait for ceclGroupEnd, and may use "
                         "the memory; call ceclGroupEnd first",
                         (void *)handle);
    if (is_last(handle) && handle->window->used &&
        !cecl_flags_is_over(&comm->engine.flags, handle->window->last_use))
        return cecl_fail(ceclInvalidUsage,
                         "handle %p: a pending call uses this memory; synchronize its stream first",
                         (void *)handle);
    return cecl_registration_end(comm, handle);
}

CECL_API ceclResult_t ceclCommDeregister(ceclComm_t comm, ceclRegistration_t handle)
{
    CECL_PUBLIC;
    CECL_TRY(cecl_comm_check_handle(comm));
    CECL_INSIDE(comm, "ceclCommDeregister");
    const ceclResult_t result = remove_registration(comm, handle);
    cecl_registry_close_dropped(&comm->registry);
    return result;
}

/* Registers the regions of a parent's window with a child, adjacent regions together. */
static void inherit(ceclComm_t child, const struct cecl_window *window)
{
    for (size_t r = 0, next; r < window->nregions; r = next) {
        const uint64_t base = window->regions[r].base;
        uint64_t end = base + window->regions[r].bytes;
        for (next = r + 1; next < window->nregions && window->regions[next].base == end; next++)
            end += window->regions[next].bytes;
        struct cecl_use all = cecl_use_all((const void *)(uintptr_t)base, end - base, "ptr");
        all.ahead = true;
        if (cecl_registry_settle(&child->registry, &all, true) != ceclSuccess)
            cecl_log(CECL_LOG_INFO, child->rank,
                     "memory that is registered with the parent was not registered: %s",
                     cecl_message());
    }
}

/* If the child registers memory on use, does nothing, because the child's calls register the memory. */
void cecl_registrations_inherit(ceclComm_t child, ceclComm_t parent)
{
    for (size_t i = 0; i < parent->registry.nown && !child->windows.register_on_use; i++)
        if (parent->registry.own[i]->pins > 0)
            inherit(child, parent->registry.own[i]);
    (void)cecl_registry_told_ns(&child->registry);
}

void cecl_registrations_free(ceclComm_t comm)
{
    while (comm->registrations) {
        struct ceclRegistration *first = comm->registrations;
        comm->registrations = first->next;
        cecl_window_release(first->window);
        free(first);
    }
}
