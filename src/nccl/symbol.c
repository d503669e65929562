/* Finds where calls of a symbol go: into the real NCCL, or to an answer of this library's own. */
#include "nccl/symbol.h"

#include <dlfcn.h>
#include <stdbool.h>

#include "nccl/abi.h"
#include "nccl/names.h"
#include "nccl/process.h"
#include "util/log.h"

#define COUNTED(name) JUMP(name, RESULT)
#define FOLLOWED(name) JUMP(name, RESULT)
#define JUMP(name, answer)                                                                         \
    struct cecl_nccl_symbol cecl_nccl_at_##name = {cecl_nccl_lazy, #name, CECL_NCCL_##answer};
CECL_NCCL_NAMES(COUNTED, FOLLOWED, JUMP)

/* ---- answers to calls that cannot be passed on; they take no notice of their arguments */

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
    return "the NCCL at hand lacks the function that would say it";
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

static const cecl_nccl_target no_nccl[CECL_NCCL_ANSWERS] = {
    [CECL_NCCL_RESULT] = (cecl_nccl_target)no_nccl_result,
    [CECL_NCCL_WORDS] = (cecl_nccl_target)no_nccl_words,
    [CECL_NCCL_NOTHING] = nothing,
    [CECL_NCCL_TEAM] = (cecl_nccl_target)no_team,
    [CECL_NCCL_NUMBER] = (cecl_nccl_target)no_number,
};

static const cecl_nccl_target lacking[CECL_NCCL_ANSWERS] = {
    [CECL_NCCL_RESULT] = (cecl_nccl_target)lacking_result,
    [CECL_NCCL_WORDS] = (cecl_nccl_target)lacking_words,
    [CECL_NCCL_NOTHING] = nothing,
    [CECL_NCCL_TEAM] = (cecl_nccl_target)no_team,
    [CECL_NCCL_NUMBER] = (cecl_nccl_target)no_number,
};

/* ---- */

/* The real NCCL's function; NULL if it lacks it. */
static cecl_nccl_target find(const struct cecl_nccl_real *real, const char *name)
{
    cecl_nccl_target target = NULL;
    *(void **)&target = dlsym(real->handle, name);
    return target;
}

__attribute__((used)) /* by jump.c */
cecl_nccl_target
cecl_nccl_resolve(struct cecl_nccl_symbol *symbol)
{
    const struct cecl_nccl_real *real = &cecl_nccl_process()->real;
    const cecl_nccl_target found = real->handle ? find(real, symbol->name) : NULL;
    const cecl_nccl_target instead = (real->handle ? lacking : no_nccl)[symbol->answer];
    const cecl_nccl_target target = found ? found : instead;
    /* Two threads may come here at once. The first one warns. */
    const bool is_first = atomic_exchange(&symbol->target, target) != target;
    if (real->handle && !found && is_first)
        cecl_log(CECL_LOG_WARN, -1, "%s: %s lacks it", symbol->name, real->path);
    return target;
}
