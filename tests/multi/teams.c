#include "teams.h"

#define COLORS 3
#define LATE_US 2000

struct team teams[TEAMS];
size_t teams_lent;
int teams_worlds, teams_splits, teams_shrinks, teams_children;

ceclConfig_t teams_config(void)
{
    ceclConfig_t config = multi_config();
    config.poolBytes = 1 << 30;
    return config;
}

void teams_come_late(uint64_t *y, unsigned often)
{
    if (random_next(y) % often == 0)
        usleep((unsigned)(random_next(y) % LATE_US));
}

static int count_alive(void)
{
    int count = 0;
    for (int i = 0; i < TEAMS; i++)
        count += teams[i].alive;
    return count;
}

bool teams_full(void)
{
    return count_alive() == TEAMS;
}

static struct team *vacant(void)
{
    int i = 0;
    while (teams[i].alive)
        i++;
    assert_true(i < TEAMS);
    teams[i] = (struct team){.me = -1};
    return &teams[i];
}

static struct team *any(uint64_t *x)
{
    int nth = (int)(random_next(x) % (uint64_t)count_alive()), i = 0;
    while (!teams[i].alive || nth-- > 0)
        i++;
    return &teams[i];
}

struct team *teams_pick(uint64_t *x)
{
    struct team *one = any(x), *other = any(x);
    return one->n >= other->n ? one : other;
}

static bool has_all_ranks(void)
{
    for (int i = 0; i < TEAMS; i++)
        if (teams[i].alive && teams[i].n == multi_nranks)
            return true;
    return false;
}

/* Starts to use a communicator of `t`'s members. All members call this. */
static void begin(struct team *t, ceclComm_t comm)
{
    int is = -1, of = -1;
    assert_non_null(comm);
    t->comm = comm;
    multi_ok(comm, ceclCommUserRank(comm, &is));
    multi_ok(comm, ceclCommCount(comm, &of));
    assert_int_equal(is, t->me);
    assert_int_equal(of, t->n);
    t->streams[1] = multi_stream(comm);
    t->lent = memory_new(comm, MEMORY_POOL, teams_lent);
}

static void end(struct team *t, uint64_t *x)
{
    const bool finalizes = random_next(x) % 2;
    if (t->me >= 0 && finalizes)
        multi_ok(t->comm, ceclCommFinalize(t->comm));
    if (t->me >= 0)
        multi_ok(NULL, ceclCommDestroy(t->comm));
    t->alive = false;
}

static struct team *world(uint64_t *x)
{
    const ceclConfig_t config = teams_config();
    const bool by_id = random_next(x) % 4 == 0;
    struct team *t = vacant();
    t->alive = true;
    t->n = multi_nranks;
    t->me = multi_rank;
    for (int r = 0; r < t->n; r++)
        t->world[r] = r;
    begin(t, by_id ? multi_comm_by_id(&config) : multi_comm(&config));
    teams_worlds++;
    return t;
}

void teams_end_all(uint64_t *x)
{
    while (count_alive() > 0)
        end(any(x), x);
}

/* Inserts a member after all members whose keys are not larger. keys: those of t's members. */
static void add_member(struct team *t, int *keys, int member, int key)
{
    int at = t->n++;
    for (; at > 0 && keys[at - 1] > key; at--) {
        keys[at] = keys[at - 1];
        t->world[at] = t->world[at - 1];
    }
    keys[at] = key;
    t->world[at] = member;
}

/* Records the new communicator of the parent's ranks with `color`. Returns NULL if no rank has this color. */
static struct team *child_of(const struct team *parent, const int *colors, const int *keys,
                             int color)
{
    int sorted[RANKS];
    struct team *t = vacant();
    for (int r = 0; r < parent->n; r++)
        if (colors[r] == color)
            add_member(t, sorted, parent->world[r], keys[r]);
    for (int i = 0; i < t->n; i++)
        if (t->world[i] == multi_rank)
            t->me = i;
    t->alive = t->n > 0;
    teams_children += t->alive;
    return t->alive ? t : NULL;
}

/* Draws the configuration of a new communicator; returns NULL for that of its parent. */
static const ceclConfig_t *draw_config(ceclConfig_t *config, uint64_t *x, uint64_t *y)
{
    const uint64_t which = random_next(x) % 4;
    *config = teams_config();
    config->urgent = random_next(x) % 4 == 0;
    config->registerOnUse = random_next(y) % 4 != 0;
    if (which == 1)
        config->stagingBytes = 8 << 20;
    return which < 2 ? NULL : config;
}

/* Splits into 1 to COLORS colors. Some ranks get no color, and keys are often equal. Even one color reorders the ranks. */
static void split(struct team *parent, uint64_t *x, uint64_t *y)
{
    const uint64_t ncolors = 1 + random_next(x) % COLORS;
    int colors[RANKS], keys[RANKS];
    struct team *mine = NULL;
    ceclComm_t comm = (ceclComm_t)8;
    ceclConfig_t config;
    for (int r = 0; r < parent->n; r++) {
        colors[r] = random_next(x) % 6 == 0 ? CECL_SPLIT_NOCOLOR : (int)(random_next(x) % ncolors);
        keys[r] = (int)(random_next(x) % 5) - 2;
    }
    for (int color = 0; color < COLORS; color++) {
        struct team *t = child_of(parent, colors, keys, color);
        mine = t && t->me >= 0 ? t : mine;
    }
    const ceclConfig_t *settings = draw_config(&config, x, y);
    teams_splits++;
    if (parent->me < 0)
        return;
    teams_come_late(y, 3);
    multi_ok(parent->comm,
             ceclCommSplit(parent->comm, colors[parent->me], keys[parent->me], &comm, settings));
    if (mine)
        begin(mine, comm);
    else
        assert_null(comm);
}

void teams_shrink(struct team *parent, const bool *leaves, uint64_t *x, uint64_t *y)
{
    int colors[RANKS], excluded[RANKS], count = 0;
    const int keys[RANKS] = {0};
    ceclComm_t comm = NULL;
    ceclConfig_t config;
    const int first = (int)(random_next(y) % (uint64_t)parent->n); /* a list may be in any order */
    for (int i = 0; i < parent->n; i++) {
        const int r = (first + i) % parent->n;
        colors[r] = leaves[r];
        if (leaves[r])
            excluded[count++] = r;
    }
    struct team *t = child_of(parent, colors, keys, 0);
    const ceclConfig_t *settings = draw_config(&config, x, y);
    teams_shrinks++;
    if (t->me < 0)
        return;
    teams_come_late(y, 3);
    multi_ok(parent->comm, ceclCommShrink(parent->comm, excluded, count, &comm, settings));
    begin(t, comm);
}

static void shrink(struct team *parent, uint64_t *x, uint64_t *y)
{
    const int stays = (int)(random_next(x) % (uint64_t)parent->n);
    bool leaves[RANKS];
    for (int r = 0; r < parent->n; r++)
        leaves[r] = r != stays && random_next(x) % 4 == 0;
    teams_shrink(parent, leaves, x, y);
}

static void divide(uint64_t *x, uint64_t *y)
{
    while (count_alive() > TEAMS - COLORS - 1)
        end(any(x), x);
    struct team *parent = has_all_ranks() ? teams_pick(x) : world(x);
    if (random_next(x) % 4 == 0)
        shrink(parent, x, y);
    else
        split(parent, x, y);
}

void teams_change(uint64_t *x, uint64_t *y)
{
    const uint64_t which = random_next(x) % 16;
    if (count_alive() == 0)
        world(x);
    if (which < 4)
        divide(x, y);
    else if (which < 5 && count_alive() > 1)
        end(any(x), x);
}
