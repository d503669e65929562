/* Finds a threshold between two ways from the times of both at some sizes. */
#include "split.h"

#define TIE 1.02
#define MOST_LOST 0.5 /* no size counts more: a single disturbed time must not decide */

/* The share of time that a way which takes `us` loses if another one takes `other`. */
static double loss(double us, double other)
{
    const double lost = us > TIE * other ? us / other - 1 : 0;
    return lost < MOST_LOST ? lost : MOST_LOST;
}

/* Whether sizes beyond the last point, which go the first way now, may go the second one. */
static bool second_wins_at_the_end(const struct point *points, int count)
{
    return loss(points[count - 1].us[0], points[count - 1].us[1]) > 0;
}

/* The sum of losses if points from index `at` on go the second way. */
static double lost_by(const struct point *points, int count, int at)
{
    double lost = 0;
    for (int i = 0; i < count; i++) {
        const int way = i < at ? 0 : 1;
        lost += loss(points[i].us[way], points[i].us[!way]);
    }
    return lost;
}

/* How many points go the first way if the threshold has this value. */
static int points_below(const struct point *points, int count, bool is_min, uint64_t value)
{
    int below = 0;
    while (below < count && (is_min ? points[below].bytes < value : points[below].bytes <= value))
        below++;
    return below;
}

uint64_t split_value(const struct point *points, int count, bool is_min, uint64_t current,
                     uint64_t least)
{
    const int now = points_below(points, count, is_min, current);
    int best = now;
    double fewest = lost_by(points, count, now);
    for (int distance = 1; distance <= count; distance++)
        for (int side = -1; side <= 1; side += 2) {
            const int at = now + side * distance;
            if (at < 0 || at > count || lost_by(points, count, at) >= fewest ||
                (now == count && !second_wins_at_the_end(points, count)))
                continue;
            best = at;
            fewest = lost_by(points, count, at);
        }
    if (best == now)
        return current;
    if (is_min)
        return best < count ? points[best].bytes : 2 * points[count - 1].bytes;
    return best > 0 ? points[best - 1].bytes : least;
}
