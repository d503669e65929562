/* What a device does for graphs: streams whose work is captured, and launched any number of times.
 *
 * Work that a stream captures is not done. It becomes part of a graph, in order. The operations of
 * device.h that take a stream are captured, too; `copies` and `row_copies` take an argument that says so.
 *
 *     find -> begin -> memops, copies, reduce ... -> end -> keep
 *
 * An event orders launches of graphs, among themselves and with work that is not captured. */
#ifndef CECL_DEVICE_CAPTURE_H
#define CECL_DEVICE_CAPTURE_H

#include <stdint.h>

#include "util/error.h"

struct cecl_device;

/* What a stream captures. */
struct cecl_capture {
    uint64_t id; /* no other capture of this process has had it; 0: the stream captures nothing */
    void *graph; /* the device's own graph handle */
};

struct cecl_event; /* each device defines it */

struct cecl_capture_ops {
    /* Finds out what a stream captures. Refuses a capture that is broken, and what stream_check refuses. The
     * program may capture on any stream but the legacy default stream. */
    ceclResult_t (*find)(struct cecl_device *dev, ceclStream_t stream,
                         struct cecl_capture *capture);

    /* -- order. event_record and event_wait take a stream that captures nothing -- */

    ceclResult_t (*event_create)(struct cecl_device *dev, struct cecl_event **event);
    void (*event_destroy)(struct cecl_device *dev, struct cecl_event *event);
    /* The event marks this point of the stream from now on. The stream must have waited for the event
     * before. */
    ceclResult_t (*event_record)(struct cecl_device *dev, struct cecl_event *event,
                                 ceclStream_t stream);
    /* The stream waits for what the event marks now. That is the host's last event_record, or its
     * last launch of a graph that records the event, whichever came later. */
    ceclResult_t (*event_wait)(struct cecl_device *dev, struct cecl_event *event,
                               ceclStream_t stream);
    /* Returns ceclSuccess if all that the event marks is done, otherwise ceclInProgress. */
    ceclResult_t (*event_query)(struct cecl_device *dev, struct cecl_event *event);
    /* In each launch of the graph, the work that is captured from here on waits for what the event
     * marks at the time of the launch. This work also waits for the last `end` of the event in the
     * same capture. */
    ceclResult_t (*begin)(struct cecl_device *dev, struct cecl_event *event, ceclStream_t stream,
                          const struct cecl_capture *capture);
    /* Each launch of the graph records the event here, unless the same capture calls `end` for the
     * event again later. */
    ceclResult_t (*end)(struct cecl_device *dev, struct cecl_event *event, ceclStream_t stream,
                        const struct cecl_capture *capture);

    /* -- what is captured -- */

    /* Calls gone(context) once the graph and all its clones and executable graphs are gone. The call may come
     * on any thread, and must neither use the device nor wait. */
    ceclResult_t (*keep)(struct cecl_device *dev, const struct cecl_capture *capture,
                         void (*gone)(void *context), void *context);

    /* -- for ceclStreamBeginCapture and the functions that end, launch and destroy its graph -- */

    ceclResult_t (*stream_begin)(struct cecl_device *dev, ceclStream_t stream);
    /* *graph can be launched. The caller owns the graph, and may destroy it after the device was
     * closed. */
    ceclResult_t (*stream_end)(struct cecl_device *dev, ceclStream_t stream, void **graph);
    ceclResult_t (*graph_launch)(struct cecl_device *dev, void *graph, ceclStream_t stream);
    ceclResult_t (*graph_destroy)(void *graph);
};

#endif
