/* Events of the program on the host device: places in streams, as on a GPU. All events that exist are in a
 * list, so that calls recognize an event that was destroyed. */
#include <stdlib.h>

#include "device/host_work.h"

struct host_event {
    struct host_place at;    /* what the event marks; guarded by the process's lock */
    struct host_event *next; /* the next one in the process's list */
};

/* The place of the list that names the event; *link is NULL if there is no such event. The caller holds the
 * process's lock. */
static struct host_event **link_of(ceclEvent_t event)
{
    struct host_event **link = &host_process.events;
    while (*link && *link != (struct host_event *)event)
        link = &(*link)->next;
    return link;
}

static ceclResult_t refuse(ceclEvent_t event)
{
    return cecl_fail(ceclInvalidArgument, "event %p: no event of this process (destroyed?)",
                     (void *)event);
}

ceclResult_t host_event_create(struct cecl_device *dev, ceclEvent_t *out)
{
    struct host_event *event = calloc(1, sizeof(*event));
    (void)dev;
    if (!event)
        return cecl_fail(ceclOutOfMemory, "no host memory for an event");
    pthread_mutex_lock(&host_process.lock);
    event->next = host_process.events;
    host_process.events = event;
    pthread_mutex_unlock(&host_process.lock);
    *out = (ceclEvent_t)event;
    return ceclSuccess;
}

/* Streams that wait for the event go on waiting: they hold the place. */
ceclResult_t host_event_destroy(struct cecl_device *dev, ceclEvent_t handle)
{
    (void)dev;
    pthread_mutex_lock(&host_process.lock);
    struct host_event **link = link_of(handle), *event = *link;
    if (event)
        *link = event->next;
    pthread_mutex_unlock(&host_process.lock);
    if (!event)
        return refuse(handle);
    host_place_drop(&event->at);
    free(event);
    return ceclSuccess;
}

ceclResult_t host_event_record(struct cecl_device *dev, ceclEvent_t handle, ceclStream_t stream)
{
    struct host_place place;
    CECL_TRY(host_mark(dev, stream, &place));
    pthread_mutex_lock(&host_process.lock);
    struct host_event *event = *link_of(handle);
    struct host_place dropped = event ? event->at : place;
    if (event)
        event->at = place;
    pthread_mutex_unlock(&host_process.lock);
    host_place_drop(&dropped);
    return event ? ceclSuccess : refuse(handle);
}

ceclResult_t host_event_wait(struct cecl_device *dev, ceclStream_t stream, ceclEvent_t handle)
{
    struct host_place place = {0};
    pthread_mutex_lock(&host_process.lock);
    const struct host_event *event = *link_of(handle);
    if (event)
        place = host_place_copy(event->at);
    pthread_mutex_unlock(&host_process.lock);
    return event ? host_follow(dev, stream, place) : refuse(handle);
}
