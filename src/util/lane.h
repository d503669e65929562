/* The two lanes on which a call's steps run. Each lane has flags of its own. */
#ifndef CECL_UTIL_LANE_H
#define CECL_UTIL_LANE_H

enum {
    CECL_LANE_MAIN, /* the caller's stream */
    CECL_LANE_SIDE, /* a stream of the communicator */
    CECL_LANES
};

#endif
