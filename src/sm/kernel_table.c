/* See kernels.h. */
#include "sm/kernels.h"

#include <stdio.h>

static const struct {
    int type;
    ceclRedOp_t op;
    const char *name;
} pairs[] = {
#define PAIR(type_name, type, op_name, op) {type, op, #type_name "_" #op_name},
    CECL_REDUCE_PAIRS(PAIR)
#undef PAIR
};

ceclResult_t cecl_kernel_table_load(const struct cecl_gpu *gpu, enum cecl_kernel_file file,
                                    const char *prefix, int shared, struct cecl_kernel_table *table)
{
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        char name[64];
        snprintf(name, sizeof(name), "%s_%s", prefix, pairs[i].name);
        CECL_TRY(
            cecl_kernel_load(gpu, file, name, shared, &table->kernel[pairs[i].type][pairs[i].op]));
    }
    return ceclSuccess;
}

ceclResult_t cecl_kernels_counted_load(const struct cecl_gpu *gpu, enum cecl_kernel_file file,
                                       const char *prefix, int shared,
                                       CUkernel kernels[CECL_KERNEL_TYPES])
{
    static const struct {
        int type;
        const char *name;
    } counted[] = {
#define COUNTED(type_name, type) {type, #type_name},
        CECL_REDUCE_COUNTED(COUNTED)
#undef COUNTED
    };
    for (size_t i = 0; i < sizeof(counted) / sizeof(counted[0]); i++) {
        char name[64];
        snprintf(name, sizeof(name), "%s_counted_%s", prefix, counted[i].name);
        CECL_TRY(cecl_kernel_load(gpu, file, name, shared, &kernels[counted[i].type]));
    }
    return ceclSuccess;
}

static int as_unsigned(int type)
{
    switch (type) {
    case ceclInt8: return ceclUint8;
    case ceclInt32: return ceclUint32;
    case ceclInt64: return ceclUint64;
    default: return type;
    }
}

CUkernel cecl_kernel_table_at(const struct cecl_kernel_table *table, int type, ceclRedOp_t op)
{
    const ceclRedOp_t as = op == ceclAvg ? ceclSum : op;
    const CUkernel own = table->kernel[type][as];
    return own ? own : table->kernel[as_unsigned(type)][as];
}
