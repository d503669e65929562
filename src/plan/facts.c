/* In what two calls differ, in words. */
#include "plan/facts.h"

#include <inttypes.h>
#include <stdio.h>

struct cecl_facts cecl_facts_of(const struct cecl_call *calls, uint32_t ncalls)
{
    const struct cecl_call *call = &calls[0];
    return (struct cecl_facts){
        .op = (uint8_t)(call->op - cecl_ops),
        .type = call->type,
        .red_op = call->red_op,
        .sm_policy = call->options.sm_policy,
        .direction = call->options.direction,
        .captured = (uint8_t)call->captured,
        .max_sms = call->options.max_sms,
        .root = call->root,
        .ncalls = ncalls,
        /* each rank has counts of its own in a call of its own layout */
        .count = call->op->family == CECL_FAMILY_OWN_LAYOUT ? 0 : call->count,
    };
}

static const char *op_name(uint32_t op)
{
    return op < CECL_OP_COUNT ? cecl_ops[op].name : "?";
}

const char *cecl_facts_name(const struct cecl_facts *facts, char out[CECL_FACTS_NAME])
{
    if (facts->ncalls <= 1)
        return op_name(facts->op);
    snprintf(out, CECL_FACTS_NAME, "a group of %u calls, first %s", facts->ncalls,
             op_name(facts->op));
    return out;
}

static const char *const types[CECL_NUM_TYPES] = {
    [ceclInt8] = "int8",         [ceclUint8] = "uint8",         [ceclInt32] = "int32",
    [ceclUint32] = "uint32",     [ceclInt64] = "int64",         [ceclUint64] = "uint64",
    [ceclFloat16] = "float16",   [ceclFloat32] = "float32",     [ceclFloat64] = "float64",
    [ceclBfloat16] = "bfloat16", [ceclFloat8e4m3] = "fp8 e4m3", [ceclFloat8e5m2] = "fp8 e5m2",
};
const char *cecl_type_name(uint64_t type)
{
    return type < CECL_NUM_TYPES ? types[type] : "?";
}

static const char *const red_ops[CECL_NUM_RED_OPS] = {"ceclSum", "ceclProd", "ceclMax", "ceclMin",
                                                      "ceclAvg"};
static const char *const policies[] = {"CECL_SM_NEVER", "CECL_SM_REDUCE_ONLY", "CECL_SM_ALLOW"};
static const char *const directions[] = {"CECL_DIRECTION_AUTO", "CECL_DIRECTION_PUSH",
                                         "CECL_DIRECTION_PULL"};
static const char *const captures[] = {"none", "under way"};

void cecl_value_print(const char *const *names, uint64_t nnames, uint64_t value,
                      char out[CECL_FACTS_NAME])
{
    if (value < nnames)
        snprintf(out, CECL_FACTS_NAME, "%s", names[value]);
    else
        snprintf(out, CECL_FACTS_NAME, "%" PRIu64, value);
}

/* A field: its name and values in two calls. */
struct field {
    const char *name;
    uint64_t one, other;
    const char *const *names; /* of its values, if they have any */
    uint64_t nnames;
};
#define BOTH(member) one->member, other->member
#define ROOTS one->root < 0 ? 0 : (uint64_t)one->root, other->root < 0 ? 0 : (uint64_t)other->root

bool cecl_facts_differ(const struct cecl_facts *one, const struct cecl_facts *other,
                       struct cecl_facts_difference *difference)
{
    if (one->op != other->op || one->ncalls != other->ncalls) {
        char name[CECL_FACTS_NAME];
        difference->field = "the call";
        snprintf(difference->one, CECL_FACTS_NAME, "%s", cecl_facts_name(one, name));
        snprintf(difference->other, CECL_FACTS_NAME, "%s", cecl_facts_name(other, name));
        return true;
    }
    const char *count = one->op < CECL_OP_COUNT ? cecl_ops[one->op].count_name : NULL;
    const struct field fields[] = {
        {"datatype", BOTH(type), CECL_NAMES_OF(types)},
        {count ? count : "count", BOTH(count), CECL_NUMBER_ONLY},
        {"root", ROOTS, CECL_NUMBER_ONLY},
        {"op", BOTH(red_op), CECL_NAMES_OF(red_ops)},
        {"options.smPolicy", BOTH(sm_policy), CECL_NAMES_OF(policies)},
        {"options.direction", BOTH(direction), CECL_NAMES_OF(directions)},
        {"options.maxSms", BOTH(max_sms), CECL_NUMBER_ONLY},
        {"a graph's capture", BOTH(captured), CECL_NAMES_OF(captures)},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (fields[i].one == fields[i].other)
            continue;
        difference->field = fields[i].name;
        cecl_value_print(fields[i].names, fields[i].nnames, fields[i].one, difference->one);
        cecl_value_print(fields[i].names, fields[i].nnames, fields[i].other, difference->other);
        return true;
    }
    return false;
}
