/* In what two calls differ, in words. */
#include "call/facts.h"

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

/* A field: its name and values in two calls, and the names of its values, if there are any. */
struct field {
    const char *name;
    uint64_t one, other;
    const char *const *values;
    uint64_t nvalues;
};
#define BOTH(member) one->member, other->member
#define ROOTS one->root < 0 ? 0 : (uint64_t)one->root, other->root < 0 ? 0 : (uint64_t)other->root
#define NAMES(names) names, sizeof(names) / sizeof((names)[0])
#define NUMBER NULL, 0

static void print_value(const struct field *field, uint64_t value, char out[CECL_FACTS_NAME])
{
    if (value < field->nvalues)
        snprintf(out, CECL_FACTS_NAME, "%s", field->values[value]);
    else
        snprintf(out, CECL_FACTS_NAME, "%" PRIu64, value);
}

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
        {"datatype", BOTH(type), NAMES(types)},
        {count ? count : "count", BOTH(count), NUMBER},
        {"root", ROOTS, NUMBER},
        {"op", BOTH(red_op), NAMES(red_ops)},
        {"options.smPolicy", BOTH(sm_policy), NAMES(policies)},
        {"options.direction", BOTH(direction), NAMES(directions)},
        {"options.maxSms", BOTH(max_sms), NUMBER},
        {"a graph's capture", BOTH(captured), NAMES(captures)},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (fields[i].one == fields[i].other)
            continue;
        difference->field = fields[i].name;
        print_value(&fields[i], fields[i].one, difference->one);
        print_value(&fields[i], fields[i].other, difference->other);
        return true;
    }
    return false;
}
