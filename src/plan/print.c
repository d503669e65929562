/* A plan in words, one line a step: for CECL_DEBUG=plan and for people. */
#include <inttypes.h>

#include "plan/plan.h"

static void print_place(const struct cecl_place *place, FILE *out)
{
    static const char *const names[CECL_WINDOW_COUNT] = {"send", "recv", "staging"};
    fprintf(out, "%s[%u]+%" PRIu64, place->window < CECL_WINDOW_COUNT ? names[place->window] : "?",
            place->rank, place->offset);
}

static void print_copies(const struct cecl_plan *plan, const struct cecl_step *step, FILE *out)
{
    fprintf(out, "copy %" PRIu32 " in one batch\n", step->count);
    for (uint32_t i = 0; i < step->count; i++) {
        const struct cecl_copy *copy = &plan->copies[step->first + i];
        fprintf(out, "        ");
        print_place(&copy->src, out);
        fprintf(out, " -> ");
        print_place(&copy->dst, out);
        fprintf(out, "  %" PRIu64 " bytes%s\n", copy->bytes,
                copy->src.rank == copy->dst.rank ? " (local: needs an SM)" : "");
    }
}

void cecl_plan_print(const struct cecl_plan *plan, FILE *out)
{
    const struct cecl_call *call = &plan->call;
    fprintf(out,
            "cecl: plan of rank %d of %d: %s%s, %" PRIu64 " bytes a block: %s\n"
            "cecl:     %s\n",
            call->rank, call->nranks, call->op == ceclOpAllGather ? "all-gather" : "all-to-all",
            call->in_place ? " in place" : "", call->bytes, plan->path, plan->reason);
    for (uint32_t i = 0; i < plan->nsteps; i++) {
        const struct cecl_step *step = &plan->steps[i];
        fprintf(out, "    %2" PRIu32 "  ", i);
        switch ((enum cecl_step_kind)step->kind) {
        case CECL_STEP_SIGNAL:
            fprintf(out, "signal rank %u: phase %" PRIu32 "\n", step->peer, step->phase);
            break;
        case CECL_STEP_WAIT:
            fprintf(out, "wait for rank %u: phase %" PRIu32 "\n", step->peer, step->phase);
            break;
        case CECL_STEP_COPY: print_copies(plan, step, out); break;
        }
    }
}
