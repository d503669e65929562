/* Makes the description of a call from the arguments of a public function. */
#ifndef CECL_PLAN_DESCRIBE_H
#define CECL_PLAN_DESCRIBE_H

#include "plan/call.h"

/* Arguments of calls by splits on the device. */
struct cecl_splits_args {
    size_t send_rows, recv_rows; /* how many rows sendbuff and recvbuff have */
    /* [nranks * experts]; if rows come back from experts, followed by as many offsets */
    const uint64_t *splits;
    uint64_t *out; /* [2][nranks * experts] */
    const ceclExperts_t *experts;
};

/* The caller's arguments, unchanged. An argument that a function does not have is 0. */
struct cecl_args {
    const void *send;
    void *recv;
    size_t count;                   /* for each rank, in the unit of the public function */
    ceclDataType_t type, recv_type; /* recv_type: for calls that widen */
    ceclRedOp_t red_op;
    int root;
    const ceclStrided_t *strided;
    const ceclTiles_t *tiles;
    const size_t *sendcounts, *sdispls, *recvcounts, *rdispls; /* [nranks] */
    const size_t *peerdispls;
    const struct cecl_splits_args *splits;
};

/* What a description needs from the communicator. */
struct cecl_scope {
    int rank, nranks;
    const struct cecl_windows *windows;
    struct cecl_options options;
    bool captured;
    /* room for CECL_LAYOUT_WORDS_MAX(nranks) words; the call's layout is written there */
    uint64_t *layout;
};

/* Describes a call, or refuses it with ceclInvalidArgument and a message that names the argument. The description of a
 * refused call still has op, type, count and root, because ranks that compare calls exchange these. Runs at every call,
 * so it must be cheap. cecl_call_check_buffers checks where the buffers lie. */
ceclResult_t cecl_call_describe(const struct cecl_op *op, const struct cecl_scope *scope,
                                const struct cecl_args *args, struct cecl_call *call);

/* Rows of cecl_ops name these functions. */
typedef ceclResult_t cecl_describe_fn(const struct cecl_scope *scope, const struct cecl_args *args,
                                      struct cecl_call *call);
cecl_describe_fn cecl_describe_dense;     /* blocks of `count` elements */
cecl_describe_fn cecl_describe_strided;   /* blocks of rows */
cecl_describe_fn cecl_describe_gatherv;   /* blocks of different sizes, equal on all ranks */
cecl_describe_fn cecl_describe_exchangev; /* blocks of different sizes, by a layout of each rank */
cecl_describe_fn cecl_describe_reduction;
cecl_describe_fn cecl_describe_tiles;
cecl_describe_fn cecl_describe_splits; /* rows that are counted only on the device */
cecl_describe_fn cecl_describe_pair;   /* messages: one buffer; the root is the peer */

/* Shared by the describe functions: fills in the buffers, and whether the call is in place. `call` must already
 * have all that says where its blocks lie. */
ceclResult_t cecl_describe_buffers(const struct cecl_scope *scope, const struct cecl_args *args,
                                   struct cecl_call *call);
/* The bytes of `count` elements. Refuses `count` if `blocks` blocks of `count` elements do not fit an address space. */
ceclResult_t cecl_describe_bytes(const struct cecl_call *call, size_t count, size_t blocks,
                                 uint64_t *bytes);
/* Refuses a buffer that is not aligned to its elements of `size` bytes. */
ceclResult_t cecl_describe_aligned(const char *name, const void *buffer, size_t size);

/* describe_sums.c: refuses invalid arguments of ceclSumRows. Lists the *count buffers that are not empty in `uses`. */
#define CECL_ROW_SUMS_USES 4
_Static_assert(CECL_ROW_SUMS_USES <= CECL_USES, "check_uses takes so many");
ceclResult_t cecl_row_sums_describe(const struct cecl_row_sums *sums,
                                    struct cecl_use uses[CECL_ROW_SUMS_USES], size_t *count);

#endif
