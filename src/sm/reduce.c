/* Which element types and operations a reduction can have. */
#include "sm/reduce.h"

/* In the order of ceclDataType_t. */
static const struct {
    const char *name;
    uint8_t bytes;
    bool integer;
} types[CECL_NUM_TYPES] = {
    {"int8", 1, true},      {"uint8", 1, true},       {"int32", 4, true},
    {"uint32", 4, true},    {"int64", 8, true},       {"uint64", 8, true},
    {"float16", 2, false},  {"float32", 4, false},    {"float64", 8, false},
    {"bfloat16", 2, false}, {"float8e4m3", 1, false}, {"float8e5m2", 1, false},
};

uint32_t cecl_reduction_element_bytes(ceclDataType_t type)
{
    return (unsigned)type < CECL_NUM_TYPES ? types[type].bytes : 0;
}

ceclResult_t cecl_reduction_check(ceclDataType_t type, ceclRedOp_t op)
{
    if ((unsigned)type >= CECL_NUM_TYPES)
        return cecl_fail(ceclInvalidArgument, "datatype %d: 0 to %d expected (ceclDataType_t)",
                         (int)type, CECL_NUM_TYPES - 1);
    if ((unsigned)op >= CECL_NUM_RED_OPS)
        return cecl_fail(ceclInvalidArgument, "op %d: 0 to %d expected (ceclRedOp_t)", (int)op,
                         CECL_NUM_RED_OPS - 1);
    if (op == ceclAvg && types[type].integer)
        return cecl_fail(ceclInvalidArgument,
                         "ceclAvg of %s: a floating-point datatype expected (for integers call "
                         "ceclSum, then divide and round the sums yourself)",
                         types[type].name);
    return ceclSuccess;
}

ceclResult_t cecl_reduction_check_widens(ceclDataType_t type, ceclRedOp_t op)
{
    if (type != ceclFloat16 && type != ceclBfloat16)
        return cecl_fail(ceclInvalidArgument,
                         "sendtype %d: ceclFloat16 or ceclBfloat16 expected, where recvtype is "
                         "ceclFloat32",
                         (int)type);
    if (op != ceclSum && op != ceclAvg)
        return cecl_fail(ceclInvalidArgument,
                         "op %d: ceclSum or ceclAvg expected, where recvtype is ceclFloat32",
                         (int)op);
    return ceclSuccess;
}
