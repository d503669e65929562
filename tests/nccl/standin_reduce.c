/* Reductions of the stand-in: in the order of ranks, in the type of the elements. */
#include "standin.h"

/* wide the type of the arithmetic: integers wrap around, as on GPUs */
#define COMBINE(type, wide)                                                                        \
    static type combine_##type(type a, type b, ncclRedOp_t redop)                                  \
    {                                                                                              \
        switch (redop) {                                                                           \
        case ncclProd: return (type)((wide)a * (wide)b);                                           \
        case ncclMax: return a > b ? a : b;                                                        \
        case ncclMin: return a < b ? a : b;                                                        \
        default: return (type)((wide)a + (wide)b);                                                 \
        }                                                                                          \
    }                                                                                              \
    static void reduce_##type(struct op *op)                                                       \
    {                                                                                              \
        const type *in = (const void *)op->staging;                                                \
        type *out = (void *)op->out;                                                               \
        for (size_t i = 0; i < op->count; i++) {                                                   \
            type sum = in[i];                                                                      \
            for (size_t rank = 1; rank < (size_t)op->comm->nranks; rank++)                         \
                sum = combine_##type(sum, in[rank * op->count + i], op->redop);                    \
            out[i] = (type)(op->redop == ncclAvg ? sum / (type)op->comm->nranks : sum);            \
        }                                                                                          \
    }

COMBINE(int8_t, uint64_t)
COMBINE(uint8_t, uint64_t)
COMBINE(int32_t, uint64_t)
COMBINE(uint32_t, uint64_t)
COMBINE(int64_t, uint64_t)
COMBINE(uint64_t, uint64_t)
COMBINE(float, float)
COMBINE(double, double)

static void (*const reductions[])(struct op *) = {
    [ncclInt8] = reduce_int8_t,     [ncclUint8] = reduce_uint8_t,  [ncclInt32] = reduce_int32_t,
    [ncclUint32] = reduce_uint32_t, [ncclInt64] = reduce_int64_t,  [ncclUint64] = reduce_uint64_t,
    [ncclFloat32] = reduce_float,   [ncclFloat64] = reduce_double,
};
#define TYPES ((ncclDataType_t)(sizeof(reductions) / sizeof(reductions[0])))

bool standin_reduces(ncclDataType_t datatype, ncclRedOp_t redop)
{
    return datatype >= 0 && datatype < TYPES && reductions[datatype] && redop >= ncclSum &&
           redop <= ncclAvg;
}

void standin_reduce(struct op *op)
{
    reductions[op->datatype](op);
}
