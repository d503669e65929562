/* Says in words how two calls differ. */
#include "plan/facts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static uint64_t hash_of(const uint64_t *words, uint32_t count)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < count; i++)
        hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15u + (hash >> 29);
    return hash;
}

static void add_more(struct cecl_facts *facts, const struct cecl_call *call)
{
    const uint32_t alike = cecl_layout_alike(call->op, call->layout_words);
    _Static_assert(sizeof(call->view.shape) == sizeof(facts->more) &&
                       CECL_LAYOUT_SPLITS_ALIKE == CECL_FACTS_MORE,
                   "more facts are a shape, or the equal words of splits");
    if (call->view.shape.width > 0) {
        facts->nmore = CECL_FACTS_MORE;
        memcpy(facts->more, &call->view.shape, sizeof(facts->more));
    } else if (alike > 0 && call->op->family == CECL_FAMILY_SPLITS) {
        facts->nmore = CECL_FACTS_MORE;
        memcpy(facts->more, call->view.layout, sizeof(facts->more));
    } else if (alike > 0) {
        facts->nmore = 1;
        facts->more[0] = hash_of(call->view.layout, alike);
    }
}

struct cecl_facts cecl_facts_of(const struct cecl_call *calls, uint32_t ncalls)
{
    const struct cecl_call *call = &calls[0];
    struct cecl_facts facts = {
        .op = (uint8_t)(call->op - cecl_ops),
        .type = call->type,
        .red_op = call->red_op,
        .sm_policy = call->options.sm_policy,
        .direction = call->options.direction,
        .captured = (uint8_t)call->captured,
        .max_sms = call->options.max_sms,
        .root = call->root,
        .ncalls = (uint16_t)ncalls,
        .in_place = cecl_call_is_in_place_on_all(call),
        /* 0 if each rank has its own count */
        .count = call->op->family == CECL_FAMILY_OWN_LAYOUT ? 0 : call->count,
    };
    add_more(&facts, call);
    return facts;
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
static const char *const placements[] = {"out of place", "in place"};

static void print_value(const char *const *names, uint64_t nnames, uint64_t value,
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
    const char *const *names; /* names of the field's values, if they have names */
    uint64_t nnames;
};
#define BOTH(member) one->member, other->member
#define NAMED(member, list) BOTH(member), list, sizeof(list) / sizeof((list)[0])
#define ROOTS one->root < 0 ? 0 : (uint64_t)one->root, other->root < 0 ? 0 : (uint64_t)other->root

static bool field_differs(const struct field *field, struct cecl_facts_difference *difference)
{
    if (field->one == field->other)
        return false;
    difference->field = field->name;
    print_value(field->names, field->nnames, field->one, difference->one);
    print_value(field->names, field->nnames, field->other, difference->other);
    return true;
}

/* Compares the facts that only some families have. */
static bool more_differ(const struct cecl_facts *one, const struct cecl_facts *other,
                        struct cecl_facts_difference *difference)
{
    static const char *const shape[CECL_FACTS_MORE] = {
        "strided.width, in bytes",     "strided.rows",
        "strided.sendPitch, in bytes", "strided.sendStride, in bytes",
        "strided.recvPitch, in bytes", "strided.recvStride, in bytes"};
    static const char *const splits[CECL_FACTS_MORE] = {
        [CECL_LAYOUT_SEND_ROWS] = "sendrows",
        [CECL_LAYOUT_RECV_ROWS] = "recvrows",
        [CECL_LAYOUT_ROW_BYTES] = "a row's bytes",
        [CECL_LAYOUT_EXPERTS] = "experts->experts",
        [CECL_LAYOUT_ALIGN] = "experts->align",
        [CECL_LAYOUT_SCALE_BYTES] = "experts->scalebytes"};
    static const char *const tiles[CECL_FACTS_MORE] = {
        "tiles.width, in bytes", "tiles.rows * tiles.count", "tiles.pitch, in bytes"};
    const struct cecl_op *op = one->op < CECL_OP_COUNT ? &cecl_ops[one->op] : NULL;
    const char *const *names = op && op->family == CECL_FAMILY_SPLITS ? splits
                               : op && op->has_tiles                  ? tiles
                                                                      : shape;
    if (one->nmore != other->nmore || one->nmore > CECL_FACTS_MORE)
        return false; /* calls of different kinds do not share these facts */
    for (uint32_t i = 0; i < one->nmore; i++) {
        const struct field field = {.name = one->nmore == 1 ? "recvcounts, displs or rows (a hash)"
                                                            : names[i],
                                    .one = one->more[i],
                                    .other = other->more[i]};
        if (field_differs(&field, difference))
            return true;
    }
    return false;
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
        {"datatype", NAMED(type, types)},
        {count ? count : "count", BOTH(count), NULL, 0},
        {"root", ROOTS, NULL, 0},
        {"op", NAMED(red_op, red_ops)},
        {"options.smPolicy", NAMED(sm_policy, policies)},
        {"options.direction", NAMED(direction, directions)},
        {"options.maxSms", BOTH(max_sms), NULL, 0},
        {"a graph's capture", NAMED(captured, captures)},
        {"placement", NAMED(in_place, placements)},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (field_differs(&fields[i], difference))
            return true;
    return more_differ(one, other, difference);
}
