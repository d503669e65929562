/* Prints a plan in words, for CECL_DEBUG=plan and for people. Each step begins a line. */
#include <inttypes.h>
#include <stdlib.h>

#include "alloc/posts.h"
#include "plan/plan.h"

/* Begins every line with the rank, because a launcher may mix the lines of ranks. */
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
                    "  %" PRIu64 " rows, %" PRIu64 " bytes apart at the destination and %" PRIu64
                    " at the source, of",
                    copy->rows, copy->dst_pitch, copy->src_pitch);
        fprintf(out, "  %" PRIu64 " bytes%s\n", copy->bytes,
                cecl_copy_is_local(copy) ? " (local: needs an SM)" : "");
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

/* Prints a signal or a wait of a captured call, by its bits in the word TURN (flags/turns.h). */
static void print_turn(const struct cecl_step *step, FILE *out)
{
    if (step->kind == CECL_STEP_WAIT)
        fprintf(out, "wait for rank %u: bits", step->peer);
    else
        fprintf(out, "signal all ranks: bits");
    for (int bit = 0; bit < 5; bit++) /* above these bits is the call's number */
        if (step->phase >> bit & 1)
            fprintf(out, " %d", bit);
    fputc('\n', out);
}

static void print_flag(const struct cecl_step *step, FILE *out)
{
    static const char *const words[] = {
        [CECL_LANE_MAIN] = "phase ",
        [CECL_LANE_SIDE] = "phase ",
        [CECL_COUNTER_SLOTS] = "lines, phase ",
        [CECL_COUNTER_READY + CECL_SENDER] = "sender is ready, message ",
        [CECL_COUNTER_READY + CECL_RECEIVER] = "receiver is ready, message ",
        [CECL_COUNTER_MOVED + CECL_SENDER] = "sender has moved message ",
        [CECL_COUNTER_MOVED + CECL_RECEIVER] = "receiver has moved message ",
        [CECL_COUNTER_BEGUN] = "messages begin ",
        [CECL_COUNTER_DONE] = "done ",
        [CECL_COUNTER_REPLAY] = "captured call begins (1) or ends (2): ",
    };
    const bool known = step->counter < sizeof(words) / sizeof(words[0]) && words[step->counter];
    if (step->counter == CECL_COUNTER_TURN) {
        print_turn(step, out);
        return;
    }
    fprintf(out, "%s rank %u: %s%" PRIu32 "\n",
            step->kind == CECL_STEP_WAIT ? "wait for" : "signal", step->peer,
            known ? words[step->counter] : "another counter, ", step->phase);
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

static void print_splits(const struct cecl_step *step, FILE *out)
{
    fprintf(out, step->first == CECL_SPLITS_TELL ? "send splits to all ranks, on an SM\n"
                                                 : "move rows by splits, on SMs\n");
}

static void print_calls(const struct cecl_plan *plan, FILE *out)
{
    begin_line(plan, out);
    if (!cecl_plan_part(plan, 0)->call.op) {
        fprintf(out, "plan, %d ranks: messages\n", plan->part.call.nranks);
        return;
    }
    for (uint32_t i = 0; i < cecl_plan_parts(plan); i++) {
        const struct cecl_call *call = &cecl_plan_part(plan, i)->call;
        fprintf(out, "%s, %d ranks: %s%s, %" PRIu64 " bytes a block: %s\n",
                i == 0 ? "plan" : "    and", call->nranks, call->op->noun,
                call->in_place ? " in place" : "", call->bytes, plan->path);
        begin_line(plan, out);
    }
    fprintf(out, "    %s\n", plan->reason);
}

static void print_lines(const struct cecl_plan *plan, FILE *out)
{
    print_calls(plan, out);
    for (uint32_t i = 0; i < plan->nsteps; i++) {
        const struct cecl_step *step = &plan->steps[i];
        begin_line(plan, out);
        fprintf(out, "    %2" PRIu32 "  ", i);
        if (step->lane >= CECL_LANES)
            fprintf(out, "lane %u: ", step->lane);
        else if (step->lane == CECL_LANE_SIDE)
            fprintf(out, "side: ");
        switch ((enum cecl_step_kind)step->kind) {
        case CECL_STEP_SIGNAL:
        case CECL_STEP_WAIT: print_flag(step, out); break;
        case CECL_STEP_AFTER: fprintf(out, "wait for lane %" PRIu32 "\n", step->first); break;
        case CECL_STEP_POST: print_post(plan, step, out); break;
        case CECL_STEP_REDUCE: print_reductions(plan, step, out); break;
        case CECL_STEP_COPY: print_copies(plan, step, out); break;
        case CECL_STEP_SPLITS: print_splits(step, out); break;
        }
    }
}

/* Prints the whole text by one write, because ranks may share a terminal: stderr is not buffered,
 * so lines printed in fragments would mix. */
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
