/* Finds where calls of a symbol go: to the real NCCL, or to a function of this library that returns an error. */
#include "nccl/symbol.h"

#include <dlfcn.h>
#include <stdbool.h>

#include "nccl/abi.h"
#include "nccl/process.h"
#include "nccl/reason.h"
#include "nccl/report.h"
#include "util/log.h"

#define COUNTED(name) JUMP(name, RESULT)
#define FOLLOWED(name, returned) JUMP(name, returned)
#define JUMP(symbol, returned) \
    struct cecl_nccl_symbol cecl_nccl_at_##symbol = { \
        .target = cecl_nccl_lazy, .name = #symbol, .answer = CECL_NCCL_##returned};
#include "nccl/names.h"

/* ---- targets for calls that cannot be passed on. They ignore their arguments */

static int no_nccl_result(void)
{
    return (int)cecl_nccl_process()->result;
}

static const char *no_nccl_words(void)
{
    return cecl_nccl_process()->why;
}

static int lacking_result(void)
{
    return ceclInvalidUsage;
}

static const char *lacking_words(void)
{
    return "this NCCL lacks the function that returns this text";
}

static void nothing(void)
{
}

struct team {
    int nranks, rank, stride;
};

static struct team no_team(void)
{
    return (struct team){0};
}

static int no_number(void)
{
    return -1;
}

#define ANSWERS(result, words) \
    { \
        [CECL_NCCL_RESULT] = (cecl_nccl_target)(result), \
        [CECL_NCCL_MOVE] = (cecl_nccl_target)(result), \
        [CECL_NCCL_REDUCTION] = (cecl_nccl_target)(result), \
        [CECL_NCCL_WORDS] = (cecl_nccl_target)(words), [CECL_NCCL_NOTHING] = nothing, \
        [CECL_NCCL_TEAM] = (cecl_nccl_target)no_team, \
        [CECL_NCCL_NUMBER] = (cecl_nccl_target)no_number \
    }
static const cecl_nccl_target no_nccl[CECL_NCCL_ANSWERS] = ANSWERS(no_nccl_result, no_nccl_words),
                              lacking[CECL_NCCL_ANSWERS] = ANSWERS(lacking_result, lacking_words);

/* The real NCCL's function; NULL: NCCL does not have it. */
static cecl_nccl_target find(const struct cecl_nccl_real *real, const char *name)
{
    cecl_nccl_target target = NULL;
    *(void **)&target = dlsym(real->handle, name);
    return target;
}

/* Finds the target of `symbol`, and stores it at `at`. Warns, in one thread only, if NCCL lacks the function. */
static cecl_nccl_target look_up(struct cecl_nccl_symbol *symbol, _Atomic(cecl_nccl_target) *at)
{
    const struct cecl_nccl_real *real = &cecl_nccl_process()->real;
    const cecl_nccl_target found = real->handle ? find(real, symbol->name) : NULL;
    const cecl_nccl_target instead = (real->handle ? lacking : no_nccl)[symbol->answer];
    const cecl_nccl_target target = found ? found : instead;
    const bool is_first = atomic_exchange(at, target) != target;
    if (real->handle && !found && is_first)
        cecl_log(CECL_LOG_WARN, -1, "%s: %s lacks it", symbol->name, real->path);
    return target;
}

/* ---- collectives whose arguments cecl does not know. CECL_NCCL=strict refuses those that only move data */

static cecl_nccl_target refuse(struct cecl_nccl_symbol *symbol)
{
    static _Atomic bool has_warned;
    cecl_nccl_tell_refusal(symbol->name, CECL_NCCL_NO_SUCH_OP, !atomic_exchange(&has_warned, true));
    return (cecl_nccl_target)lacking_result;
}

static cecl_nccl_target decide(struct cecl_nccl_symbol *symbol, const void *caller)
{
    const struct cecl_nccl_process *process = cecl_nccl_process();
    const cecl_nccl_target before = atomic_load(&symbol->found);
    const cecl_nccl_target target = before ? before : look_up(symbol, &symbol->found);
    if (target == (cecl_nccl_target)lacking_result || cecl_nccl_is_own(process, caller))
        return target;
    const bool refuses = process->policy == CECL_NCCL_STRICT && symbol->answer == CECL_NCCL_MOVE;
    if (process->counts)
        cecl_nccl_stats_count_symbol(symbol, refuses);
    return refuses ? refuse(symbol) : target;
}

__attribute__((used)) /* called by jump.c */
cecl_nccl_target
cecl_nccl_resolve(struct cecl_nccl_symbol *symbol, const void *caller)
{
    return symbol->answer == CECL_NCCL_MOVE || symbol->answer == CECL_NCCL_REDUCTION
               ? decide(symbol, caller)
               : look_up(symbol, &symbol->target);
}
