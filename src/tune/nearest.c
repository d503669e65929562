/* See nearest.h. */
#include "tune/nearest.h"

#include <string.h>

#include "util/distance.h"

enum cecl_threshold cecl_tuning_nearest(const char *word, size_t length)
{
    enum cecl_threshold nearest = (enum cecl_threshold)0;
    size_t least = SIZE_MAX;
    for (int t = 0; t < CECL_TUNE_COUNT; t++) {
        const char *name = cecl_thresholds[t].name;
        const size_t apart = cecl_distance(word, length, name, strlen(name));
        if (apart < least) {
            least = apart;
            nearest = (enum cecl_threshold)t;
        }
    }
    return nearest;
}
