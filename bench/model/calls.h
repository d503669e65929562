/* Calls whose plans the model plays. */
#ifndef CECL_MODEL_CALLS_H
#define CECL_MODEL_CALLS_H

#include "model.h"

struct model_call {
    enum cecl_op_index op;
    bool in_place;
    uint8_t sm_policy; /* ceclSmPolicy_t */
    uint64_t bytes;    /* of a block, as in struct cecl_call */
    uint64_t staging;  /* 0: as on GPUs of 141 GB */
    uint64_t late;     /* bit r: rank r came late to the call */
    int group;         /* how many of these calls form a group; 0: one call without a group */
    int nranks;
};

/* Makes the plans of all ranks, plans[nranks]. model_calls_free frees them. */
ceclResult_t model_calls_lower(const struct model_call *call, struct cecl_plan *plans);
void model_calls_free(struct cecl_plan *plans, int nranks);

/* Finds a collective by its name, such as "all_gather". False: none has this name. */
bool model_calls_named(const char *name, enum cecl_op_index *op);

/* The most calls of a group. */
#define MODEL_GROUP_MAX 64

/* nccl-tests' bus bandwidth of all calls, in GB/s. */
double model_bus_bandwidth(const struct model_call *call, double us);
/* A closed formula for pipelined calls, in us: the time that a GPU's link needs for its bytes. 0: the call has no
 * formula. */
double model_closed(const struct model_call *call, const struct model_rates *rates);

#endif
