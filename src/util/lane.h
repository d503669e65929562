/* The two lanes on which a call's steps run, and for which flags are counted apart. */
#ifndef CECL_UTIL_LANE_H
#define CECL_UTIL_LANE_H

enum {
    CECL_LANE_MAIN, /* the caller's stream */
    CECL_LANE_SIDE, /* a stream of the communicator's own */
    CECL_LANES
};

#endif
