/* The public functions for streams, events and copies, on GPUs and on the host device. */
#include "comm/comm.h"
#include "launch/group.h"

CECL_API ceclResult_t ceclStreamCreate(ceclComm_t comm, ceclStream_t *stream)
{
    CECL_PUBLIC;
    CECL_TRY(cecl_comm_check(comm));
    CECL_TRY(cecl_check_given("stream", stream));
    return comm->dev->ops->stream_create(comm->dev, false, stream);
}

CECL_API ceclResult_t ceclStreamSynchronize(ceclComm_t comm, ceclStream_t stream)
{
    CECL_PUBLIC;
    /* does not refuse a failed communicator: its pending work also ends */
    CECL_TRY(cecl_comm_check_handle(comm));
    CECL_TRY(cecl_group_check_waiting(comm, "they are not on the stream yet"));
    CECL_TRY(comm->dev->ops->stream_synchronize(comm->dev, stream));
    cecl_registry_close_dropped(&comm->registry);
    return cecl_comm_hear(comm); /* a failure may have ended the stream's waits */
}

CECL_API ceclResult_t ceclStreamDestroy(ceclComm_t comm, ceclStream_t stream)
{
    CECL_PUBLIC;
    /* the program may destroy streams of a failed or finalized communicator */
    CECL_TRY(cecl_comm_check_handle(comm));
    if (!stream)
        return cecl_fail(ceclInvalidArgument,
                         "stream: NULL, the default stream, which cannot be destroyed");
    return comm->dev->ops->stream_destroy(comm->dev, stream);
}

CECL_API ceclResult_t ceclEventCreate(ceclComm_t comm, ceclEvent_t *event)
{
    CECL_PUBLIC;
    CECL_TRY(cecl_comm_check(comm));
    CECL_TRY(cecl_check_given("event", event));
    return comm->dev->ops->event_create(comm->dev, event);
}

static ceclResult_t check_event(ceclEvent_t event)
{
    return event ? ceclSuccess
                 : cecl_fail(ceclInvalidArgument, "event: NULL; one of ceclEventCreate expected");
}

/* Checks the stream first, so that a later error of the device can only be about the event. */
static ceclResult_t check_both(ceclComm_t comm, ceclEvent_t event, ceclStream_t stream)
{
    struct cecl_capture capture;
    CECL_TRY(cecl_comm_check(comm));
    CECL_TRY(check_event(event));
    return comm->dev->ops->stream_check(comm->dev, stream, &capture);
}

CECL_API ceclResult_t ceclEventRecord(ceclComm_t comm, ceclEvent_t event, ceclStream_t stream)
{
    CECL_PUBLIC;
    CECL_TRY(check_both(comm, event, stream));
    return comm->dev->ops->event_record(comm->dev, event, stream);
}

CECL_API ceclResult_t ceclStreamWaitEvent(ceclComm_t comm, ceclStream_t stream, ceclEvent_t event)
{
    CECL_PUBLIC;
    CECL_TRY(check_both(comm, event, stream));
    return comm->dev->ops->event_wait(comm->dev, stream, event);
}

CECL_API ceclResult_t ceclEventDestroy(ceclComm_t comm, ceclEvent_t event)
{
    CECL_PUBLIC;
    CECL_TRY(cecl_comm_check_handle(comm));
    CECL_TRY(check_event(event));
    return comm->dev->ops->event_destroy(comm->dev, event);
}

CECL_API ceclResult_t ceclMemcpyAsync(ceclComm_t comm, void *dst, const void *src, size_t bytes,
                                      ceclStream_t stream)
{
    CECL_PUBLIC;
    CECL_TRY(cecl_comm_check(comm));
    if (bytes == 0)
        return ceclSuccess;
    if (!dst || !src)
        return cecl_fail(ceclInvalidArgument, "%s: NULL, with %zu bytes to copy",
                         dst ? "src" : "dst", bytes);
    return comm->dev->ops->memcpy_async(comm->dev, dst, src, bytes, stream);
}
