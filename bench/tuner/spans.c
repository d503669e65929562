/* See spans.h. */
#include "spans.h"

#define CLEARLY 0.98

int spans_of(const struct point *points, int count, struct span *spans)
{
    int nspans = 0;
    bool was_faster = false;
    for (int i = 0; i < count; i++) {
        const bool is_faster = points[i].us[1] <= CLEARLY * points[i].us[0];
        if (is_faster && !was_faster)
            spans[nspans++] = (struct span){points[i].bytes, points[i].bytes};
        else if (is_faster)
            spans[nspans - 1].most = points[i].bytes;
        was_faster = is_faster;
    }
    return nspans;
}
