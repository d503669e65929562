/* The list of cases: every fault at every point of every call at which it can occur. Faulty ranks and rank counts vary. */
#include "cases.h"

#include <stdio.h>
#include <string.h>

#define MOST_CASES 2000
#define VARIANTS 2   /* cases of each combination, with different ranks and seeds */
#define OOB_ROUNDS 1 /* exchanges through the caller's callbacks in one join */

static const char *const op_names[OPS] = {OP_LIST(AS_WORDS)};
static const char *const fault_names[FAULTS] = {FAULT_LIST(AS_WORDS)};
static const char *const when_names[WHENS] = {"before", "within", "amid", "after"};

static bool ends_its_process(enum fault fault)
{
    return fault == KILLED || fault == EXITS || fault == LEAVES_CHILD;
}

static bool needs_communicator(enum fault fault)
{
    return fault == ABORTS || fault == REVOKES || fault == LEAVES;
}

/* Whether a second thread of the faulty rank can commit the fault while the first one makes the call. */
static bool can_be_amid(enum op op, enum fault fault)
{
    if (op == JOIN_BY_CALLBACKS)
        return false;
    /* No thread may revoke a handle that another thread makes or destroys. A revoke does not disturb a shrink. */
    const bool revocable = op != JOIN && op != SHRINK && op != FINALIZE && op != DESTROY;
    return ends_its_process(fault) || fault == STOPPED || (fault == REVOKES && revocable);
}

static bool can_be_before(enum op op, enum fault fault)
{
    if (op == JOIN_BY_CALLBACKS)
        return false;
    if (op == JOIN)
        return !needs_communicator(fault);
    if (op == SHRINK && fault == REVOKES)
        return false; /* a revoked communicator can still be shrunk */
    return fault != OTHER_CALL || (op != FINALIZE && op != DESTROY);
}

/* Whether the caller makes the call in several steps, so that a fault can come within it. */
static bool has_parts(enum op op)
{
    return op != JOIN && op != ALLOCATE && op != SPLIT && op != SHRINK;
}

static bool is_possible(enum op op, enum when when, enum fault fault)
{
    switch (when) {
    case BEFORE: return can_be_before(op, fault);
    case WITHIN:
        return has_parts(op) && fault != OTHER_CALL &&
               (op != JOIN_BY_CALLBACKS || !needs_communicator(fault));
    case AMID: return can_be_amid(op, fault);
    default: return op != JOIN_BY_CALLBACKS && op != DESTROY && fault != OTHER_CALL;
    }
}

/* Mixes the bits, so that neighbouring case numbers get unrelated seeds. */
static uint32_t mix(uint32_t x)
{
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

static struct fault_case list[MOST_CASES];
static int listed;

static void add(enum op op, enum when when, enum fault fault, int variant, uint32_t seed)
{
    struct fault_case *c = &list[listed];
    *c = (struct fault_case){.number = listed, .op = op, .when = when, .fault = fault};
    c->seed = mix(seed * 100003u + (uint32_t)listed);
    c->nranks = 2 + (listed + variant) % (MOST_RANKS - 1);
    /* Of two ranks, the faulty one would exclude the other, and shrink to itself, which is no misuse. */
    if (op == SHRINK && fault == OTHER_CALL && c->nranks == 2)
        c->nranks = 3;
    c->faulty = (int)(c->seed % (uint32_t)c->nranks);
    c->round = op == JOIN_BY_CALLBACKS ? variant % OOB_ROUNDS : variant % 2 * 2;
    listed++;
}

const struct fault_case *fault_cases(uint32_t seed, int *count)
{
    if (listed == 0)
        for (int op = 0; op < OPS; op++)
            for (int when = 0; when < WHENS; when++)
                for (int fault = 0; fault < FAULTS; fault++)
                    for (int v = 0; v < VARIANTS; v++)
                        if (is_possible((enum op)op, (enum when)when, (enum fault)fault))
                            add((enum op)op, (enum when)when, (enum fault)fault, v, seed);
    *count = listed;
    return list;
}

void fault_case_name(const struct fault_case *c, char *name, int bytes)
{
    snprintf(name, (size_t)bytes, "%s: rank %d of %d %s %s (round %d)", op_names[c->op], c->faulty,
             c->nranks, fault_names[c->fault], when_names[c->when], c->round);
}

bool fault_case_stays(const struct fault_case *c, int rank)
{
    return rank != c->faulty || c->fault == OTHER_CALL || c->fault == REVOKES;
}

int fault_case_maker(const struct fault_case *c)
{
    return (int)(c->seed / 3 % (uint32_t)c->nranks);
}

/* Peers do not see the end of a rank that has not connected to them, unless it made the id, which names its process. */
bool fault_case_is_seen(const struct fault_case *c)
{
    if (c->op == JOIN && c->when != AFTER && c->faulty != fault_case_maker(c))
        return c->fault == OTHER_CALL;
    return c->fault != STOPPED && c->fault != NEVER_CALLS;
}

/* Known defects. A case that fails because of one is counted separately, never as passed. */
static const struct known {
    const char *words, *reason;
} known[] = {
    {"joining: ranks ",
     "a rank that waits while a communicator is made cannot tell who keeps its peers waiting"},
};

static bool joins(enum op op)
{
    return op == JOIN || op == JOIN_BY_CALLBACKS || op == SPLIT || op == SHRINK;
}

const char *fault_case_known(const struct fault_case *c, const char *words)
{
    if (!joins(c->op) || (c->fault != STOPPED && c->fault != NEVER_CALLS))
        return NULL;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strstr(words, known[i].words))
            return known[i].reason;
    return NULL;
}
