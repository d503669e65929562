/* The contenders: the sides of cecl_perf in most of their placements, and cecl once more with SMs allowed. A
 * reduction needs SMs anyway, so its contenders are cecl, NCCL, and NCCL with registered windows, which let NCCL use
 * its symmetric kernels; all are out of place. */
#include "kinds.h"
#include "overlap.h"

enum { CECL, CECL_ALLOW, NCCL, NCCL_CE };

enum {
    MOVES = 1u << OP_ALL_GATHER | 1u << OP_ALL_TO_ALL,
    REDUCES = 1u << OP_REDUCE_SCATTER | 1u << OP_ALL_REDUCE
};

/* In the order of the printed table. */
static const struct {
    const char *name;
    int side;
    bool in_place;
    unsigned ops;   /* the operations that it takes part in */
    bool yardstick; /* the others are compared with it */
} placements[MAX_CONTENDERS] = {
    {"cecl in", CECL, true, MOVES, false},
    {"cecl out", CECL, false, MOVES | REDUCES, false},
    {"cecl out, SM allowed", CECL_ALLOW, false, MOVES, false},
    {"nccl out", NCCL, false, MOVES | REDUCES, false},
    {"nccl-ce in", NCCL_CE, true, MOVES, false},
    {"nccl-ce out", NCCL_CE, false, MOVES, true},
    {"nccl windows out", NCCL_CE, false, REDUCES, true},
};

static bool join_allowing(struct contenders *c, const struct run *run)
{
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    config.cudaDevice = CECL_CUDA_DEVICE_BY_RANK;
    config.smPolicy = CECL_SM_ALLOW;
    BENCH_TRY(run, ceclCommInitMpi(&c->allow, MPI_COMM_WORLD, &config));
    return true;
}

static bool make_sides(struct contenders *c, const struct run *run)
{
    c->sides[c->nsides++] = side_cecl_make("cecl", run->comm, MEMORY_POOL);
    c->sides[c->nsides++] = side_cecl_make("cecl, SM allowed", c->allow, MEMORY_POOL);
    for (int ce = 0; ce < 2 && side_nccl_version(); ce++) {
        if (!side_nccl_make(&c->sides[c->nsides], ce))
            return complain(run, "NCCL", "no host memory");
        c->nsides++;
    }
    return true;
}

static void place(struct contenders *c, const struct run *run)
{
    for (int i = 0; i < MAX_CONTENDERS; i++) {
        const int s = placements[i].side;
        if (s >= c->nsides || !(placements[i].ops & 1u << op_place(run->options.op)))
            continue;
        struct side *side = &c->sides[s];
        c->list[c->count++] = (struct contender){
            .name = placements[i].name,
            .side = side,
            .comm = s == CECL_ALLOW ? c->allow : run->comm,
            .in_place = placements[i].in_place,
            .yardstick = placements[i].yardstick,
            .on = !side->supports || side->supports(side, run, placements[i].in_place)};
    }
}

bool contenders_open(struct contenders *c, const struct run *run)
{
    const size_t largest = block_of(&run->options, run->nranks, run->options.last);
    limit(run, "joining");
    if (!join_allowing(c, run) || !make_sides(c, run))
        return false;
    for (; c->nopen < c->nsides; c->nopen++) {
        struct side *side = &c->sides[c->nopen];
        limit(run, side->name);
        if (!side->open(side, run, send_bytes_of(run, largest), recv_bytes_of(run, largest)))
            return false;
    }
    place(c, run);
    return true;
}

bool contenders_close(struct contenders *c, const struct run *run)
{
    limit(run, "closing");
    while (c->nopen > 0) {
        struct side *side = &c->sides[--c->nopen];
        side->close(side);
    }
    return ceclCommDestroy(c->allow) == ceclSuccess ||
           complain(run, "closing", ceclGetLastError(NULL));
}
