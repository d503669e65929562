/* Prints a plan in words, for CECL_DEBUG=plan and for people. There is one line for each step. */
#include <inttypes.h>
#include <stdlib.h>

#include "plan/plan.h"

/* Every line begins with its rank, because a launcher may mix the lines of ranks. */
static void begin_line(const struct cecl_plan *plan, FILE *out)
{
    fprintf(out, "cecl: rank %d: ", plan->part.call.rank);
}

static void print_place(const struct cecl_place *place, FILE *out)
{
    static const char *const names[CECL_AREA_COUNT] = {"send", "recv", "staging", "host"};
    fputs(names[place->area % CECL_AREA_COUNT], out);
    if (place->area >= CECL_AREA_COUNT)
        fprintf(out, " of call %u", place->area / CECL_AREA_COUNT);
    fprintf(out, "[%u]+%" PRIu64, place->rank, place->offset);
}

static void print_copies(const struct cecl_plan *plan, const struct cecl_step *step, FILE *out)
{
    fprintf(out, "copy %" PRIu32 " in one batch\n", step->count);
    for (uint32_t i = 0; i < step->count; i++) {
        const struct cecl_copy *copy = &plan->copies[step->first + i];
        begin_line(plan, out);
        fprintf(out, "        ");
        print_place(&copy->src, out);
        fprintf(out, " -> ");
        print_place(&copy->dst, out);
        if (copy->rows > 1)
            fprintf(out,
                    "  %" PRIu64 " rows, %" PRIu64 " bytes apart there and %" PRIu64 " here, of",
                    copy->rows, copy->dst_pitch, copy->src_pitch);
        fprintf(out, "  %" PRIu64 " bytes%s\n", copy->bytes,
                !cecl_copy_is_local(copy)        ? ""
                : cecl_copy_needs_sm(plan, copy) ? " (local: needs an SM)"
                                                 : " (local: by a copy engine)");
    }
}

static void print_post(const struct cecl_plan *plan, const struct cecl_step *step, FILE *out)
{
    const struct cecl_copy *copy = &plan->copies[step->first];
    fprintf(out, "post %" PRIu64 " bytes to rank %u, each line with its flag: ", copy->bytes,
            step->peer);
    print_place(&copy->src, out);
    fprintf(out, " -> ");
    print_place(&copy->dst, out);
    fputc('\n', out);
}

static void print_wait(const struct cecl_step *step, FILE *out)
{
    if (step->first == CECL_ROW_SLOTS)
        fprintf(out, "wait for the lines of rank %u\n", step->peer);
    else
        fprintf(out, "wait for rank %u: phase %" PRIu32 "\n", step->peer, step->phase);
}

static void print_reductions(const struct cecl_plan *plan, const struct cecl_step *step, FILE *out)
{
    for (uint32_t i = 0; i < step->count; i++) {
        const struct cecl_reduce *reduce = &plan->reductions[step->first + i];
        if (i > 0) {
            begin_line(plan, out);
            fprintf(out, "        ");
        }
        fprintf(out, "reduce %" PRIu32 " sources of %" PRIu64 " bytes, on SMs\n", reduce->nsrc,
                reduce->bytes);
        for (uint32_t s = 0; s <= reduce->nsrc; s++) {
            const bool last = s == reduce->nsrc;
            begin_line(plan, out);
            fprintf(out, last ? "        -> " : "        ");
            print_place(last ? &reduce->dst : &plan->sources[reduce->first + s], out);
            fputc('\n', out);
        }
    }
}

static void print_lines(const struct cecl_plan *plan, FILE *out)
{
    for (uint32_t i = 0; i < cecl_plan_parts(plan); i++) {
        const struct cecl_call *call = &cecl_plan_part(plan, i)->call;
        begin_line(plan, out);
        fprintf(out, "%s, %d ranks: %s%s, %" PRIu64 " bytes a block: %s\n",
                i == 0 ? "plan" : "    and", call->nranks, call->op->noun,
                call->in_place ? " in place" : "", call->bytes, plan->path);
    }
    begin_line(plan, out);
    fprintf(out, "    %s\n", plan->reason);
    for (uint32_t i = 0; i < plan->nsteps; i++) {
        const struct cecl_step *step = &plan->steps[i];
        begin_line(plan, out);
        fprintf(out, "    %2" PRIu32 "  %s", i, step->lane == CECL_LANE_SIDE ? "side: " : "");
        switch ((enum cecl_step_kind)step->kind) {
        case CECL_STEP_SIGNAL:
            fprintf(out, "signal rank %u: phase %" PRIu32 "\n", step->peer, step->phase);
            break;
        case CECL_STEP_WAIT: print_wait(step, out); break;
        case CECL_STEP_AFTER: fprintf(out, "after what the other lane did\n"); break;
        case CECL_STEP_POST: print_post(plan, step, out); break;
        case CECL_STEP_REDUCE: print_reductions(plan, step, out); break;
        case CECL_STEP_COPY: print_copies(plan, step, out); break;
        }
    }
}

/* Prints by one write, because ranks may share a terminal and stderr is not buffered: it would
 * write each fragment of a line by itself. */
void cecl_plan_print(const struct cecl_plan *plan, FILE *out)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *room = open_memstream(&text, &bytes);
    if (room)
        print_lines(plan, room);
    if (room && fclose(room) == 0)
        fwrite(text, 1, bytes, out);
    else
        /* no memory for the text: print line by line rather than not at all */
        print_lines(plan, out);
    free(text);
}
