/* Which calls CECL_NCCL=auto serves: the smallest and largest size of each op, on plain memory and on NCCL's symmetric
 * windows. What --stats reports of trials, as JSON and for people. */
#include <locale.h>

#include "../decimal_comma.h"
#include "../with_cmocka.h"

#include "nccl/decide.h"
#include "nccl/report.h"

#define KIB(n) ((size_t)(n) << 10)
#define MIB(n) ((size_t)(n) << 20)
#define GATHER CECL_NCCL_OP_ncclAllGather
#define ALL_TO_ALL CECL_NCCL_OP_ncclAlltoAll
#define SCATTER CECL_NCCL_OP_ncclReduceScatter
#define ALL_REDUCE CECL_NCCL_OP_ncclAllReduce

static struct cecl_nccl_call call_of(enum cecl_nccl_op op, size_t bytes)
{
    return (struct cecl_nccl_call){.op = op,
                                   .reduces = op == SCATTER || op == ALL_REDUCE,
                                   .count = bytes / 2,
                                   .datatype = CECL_NCCL_BFLOAT16,
                                   .redop = ceclSum};
}

static const struct cecl_nccl_group none = {.number = 1}; /* no group: the call is alone */

static bool gains(enum cecl_nccl_op op, int nranks, bool on_windows, size_t bytes)
{
    struct cecl_nccl_comm comm = {.nranks = nranks, .windows = on_windows ? 1 : 0};
    const struct cecl_nccl_call call = call_of(op, bytes);
    return cecl_nccl_gains(&call, &comm, &none);
}

/* Sizes from `least` to `most` are served; the next smaller and larger sizes are passed. */
struct range {
    enum cecl_nccl_op op;
    int nranks;
    bool on_windows;
    size_t least, most;
};

static const struct range ranges[] = {
    {GATHER, 4, false, MIB(16), MIB(256)},      {GATHER, 2, false, KIB(512), MIB(256)},
    {ALL_TO_ALL, 4, false, KIB(64), KIB(256)},  {ALL_TO_ALL, 2, false, KIB(128), KIB(512)},
    {ALL_TO_ALL, 2, false, MIB(32), MIB(128)},  {SCATTER, 4, false, KIB(512), MIB(256)},
    {SCATTER, 2, false, KIB(512), MIB(256)},    {ALL_REDUCE, 4, false, KIB(256), KIB(512)},
    {ALL_REDUCE, 4, false, MIB(4), MIB(1024)},  {ALL_REDUCE, 2, false, KIB(256), KIB(512)},
    {ALL_REDUCE, 2, false, MIB(4), MIB(1024)},  {GATHER, 2, true, MIB(32), MIB(256)},
    {SCATTER, 4, true, MIB(1), MIB(256)},       {SCATTER, 2, true, MIB(4), MIB(256)},
    {ALL_REDUCE, 4, true, KIB(512), MIB(1024)}, {ALL_REDUCE, 2, true, KIB(512), MIB(1024)},
};

TEST(each_range_begins_and_ends_where_it_was_measured)
{
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        const struct range *r = &ranges[i];
        assert_true(gains(r->op, r->nranks, r->on_windows, r->least));
        assert_true(gains(r->op, r->nranks, r->on_windows, r->most));
        assert_false(gains(r->op, r->nranks, r->on_windows, r->least - 2));
        assert_false(gains(r->op, r->nranks, r->on_windows, r->most + 2));
    }
}

TEST(nothing_else_is_served)
{
    for (int op = 0; op < CECL_NCCL_OPS; op++)
        for (int nranks = 2; nranks <= 8; nranks++)
            for (int on_windows = 0; on_windows < 2; on_windows++) {
                bool is_listed = false;
                for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
                    is_listed =
                        is_listed || ((int)ranges[i].op == op && ranges[i].nranks == nranks &&
                                      ranges[i].on_windows == on_windows);
                for (size_t bytes = 2; !is_listed && bytes <= MIB(4096); bytes *= 2)
                    assert_false(gains((enum cecl_nccl_op)op, nranks, on_windows, bytes));
            }
}

TEST(reductions_are_served_as_they_were_measured)
{
    const struct cecl_nccl_comm comm = {.nranks = 2};
    struct cecl_nccl_call call = call_of(ALL_REDUCE, MIB(4));
    call.redop = ceclAvg;
    assert_true(cecl_nccl_gains(&call, &comm, &none));
    call.redop = ceclMax;
    assert_false(cecl_nccl_gains(&call, &comm, &none));
    call.redop = ceclSum;
    call.datatype = ceclFloat16;
    assert_false(cecl_nccl_gains(&call, &comm, &none));
}

/* The kernels of larger reductions synchronize by flags, which are slow in host memory. */
TEST(flags_on_the_host_leave_no_reductions)
{
    const struct cecl_nccl_comm comm = {.nranks = 2, .limits.hostFlags = 1};
    const struct cecl_nccl_call all_reduce = call_of(ALL_REDUCE, MIB(4)),
                                scatter = call_of(SCATTER, MIB(1)),
                                gather = call_of(GATHER, MIB(1));
    assert_false(cecl_nccl_gains(&all_reduce, &comm, &none));
    assert_false(cecl_nccl_gains(&scatter, &comm, &none));
    assert_true(cecl_nccl_gains(&gather, &comm, &none));
}

static char *text_of(void (*print)(FILE *out))
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    print(out);
    fclose(out);
    return text;
}

static void expect(void (*print)(FILE *out), const char *words)
{
    char *text = text_of(print);
    if (!strstr(text, words))
        fail_msg("%s\nlacks\n%s", text, words);
    free(text);
}

static int start(void **state)
{
    struct cecl_nccl_report report = {.rank = 1,
                                      .nranks = 4,
                                      .state = CECL_NCCL_TRIAL_DECIDED,
                                      .trials = 1,
                                      .calls = 39,
                                      .repeated = 2,
                                      .arm = 2};
    report.verdict.arms[0] = (struct cecl_arm_times){10, 2e6, 1e3, 0};
    report.verdict.arms[3] = (struct cecl_arm_times){8, 2.5e6, 2e3, -0.0000015};
    cecl_nccl_report_set("its key", &report, false);
    return 0;
}

/* Numbers do not depend on the program's locale. Times are per step: the time of a period, divided by its steps. */
TEST(json_has_numbers_with_a_point)
{
    expect(cecl_nccl_report_json,
           "\"ways\": {\"nccl\": {\"median_ms\": 1.000000, \"spread_ms\": 0.000500, \"steps\": 10, "
           "\"gain\": 0.000000}, \"moves_alone\": {\"median_ms\": 1.250000, \"spread_ms\": "
           "0.001000, \"steps\": 8, \"gain\": -0.000002}}");
}

TEST(json_has_numbers_with_a_point_where_the_locale_has_a_comma)
{
    char text[8];
    if (!take_decimal_comma())
        skip_because("no locale here has a decimal comma");
    snprintf(text, sizeof(text), "%.1f", 1.5);
    assert_string_equal(text, "1,5");
    json_has_numbers_with_a_point(state);
    setlocale(LC_ALL, "C");
}

TEST(lines_name_the_decision)
{
    expect(cecl_nccl_report_print, "cecl: communicator, rank 1 of 4: decided: served; 39 ");
}

TEST(lines_say_why_nothing_was_tried)
{
    static const struct {
        enum cecl_nccl_trial_state state;
        const char *line, *json;
    } all[] = {{CECL_NCCL_TRIAL_PUT_OFF, "another communicator was being tried", "\"put_off\""},
               {CECL_NCCL_TRIAL_APART, "ranks were too many steps apart", "\"apart\""},
               {CECL_NCCL_TRIAL_RUNNING, "a trial is under way", "\"running\""},
               {CECL_NCCL_TRIAL_LEFT, "each attempt to begin failed", "\"left\""},
               {CECL_NCCL_TRIAL_FULL, "it has decided on too many periods already", "\"full\""}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        const struct cecl_nccl_report report = {.rank = 3, .nranks = 8, .state = all[i].state};
        cecl_nccl_report_set("another", &report, i % 2 == 1);
        expect(cecl_nccl_report_print, all[i].line);
        expect(cecl_nccl_report_json, all[i].json);
        expect(cecl_nccl_report_json, "\"decision\": null");
    }
}

int main(void)
{
    return tests_run(start, NULL);
}
