/* From the arguments of a public function to the description of a call. */
#ifndef CECL_CALL_DESCRIBE_H
#define CECL_CALL_DESCRIBE_H

#include "call/call.h"

/* The arguments, as the caller gave them; what a function does not have is 0. */
struct cecl_args {
    const void *send;
    void *recv;
    size_t count; /* for each rank, as the function counts */
    ceclDataType_t type;
    ceclRedOp_t red_op;
    int root;
    const ceclStrided_t *strided;
    const size_t *sendcounts, *sdispls, *recvcounts, *rdispls; /* [nranks] */
    const size_t *peerdispls;
};

/* What a description needs to know of the communicator. */
struct cecl_scope {
    int rank, nranks;
    const struct cecl_pool *pool;
    struct cecl_options options;
    uint64_t *layout; /* room for CECL_LAYOUT_WORDS_MAX(nranks): the call's layout lies there */
};

/* Describes a call, or refuses it: ceclInvalidArgument naming the argument. A refused call is described
 * as far as its name, type, count and root: peers that compare calls hear of it. Cheap, for it runs
 * at every call; where the buffers lie is checked by cecl_call_check_buffers. */
ceclResult_t cecl_call_describe(const struct cecl_op *op, const struct cecl_scope *scope,
                                const struct cecl_args *args, struct cecl_call *call);

/* Rows of cecl_ops name these. */
typedef ceclResult_t cecl_describe_fn(const struct cecl_scope *scope, const struct cecl_args *args,
                                      struct cecl_call *call);
cecl_describe_fn cecl_describe_dense;     /* blocks of `count` elements */
cecl_describe_fn cecl_describe_strided;   /* blocks of rows */
cecl_describe_fn cecl_describe_gatherv;   /* counts that all ranks know */
cecl_describe_fn cecl_describe_exchangev; /* counts that each rank knows its own of */
cecl_describe_fn cecl_describe_reduction;

/* What these share: buffers, and whether the call is in place; `call` has its blocks. */
ceclResult_t cecl_describe_buffers(const struct cecl_scope *scope, const struct cecl_args *args,
                                   struct cecl_call *call);
/* Bytes of `count` elements, where `blocks` of them fit an address space. */
ceclResult_t cecl_describe_bytes(const struct cecl_call *call, size_t count, size_t blocks,
                                 uint64_t *bytes);

#endif
