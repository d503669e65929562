/* The report of --stats on trials, as JSON and for people. */
#include <locale.h>

#include "../decimal_comma.h"
#include "../with_cmocka.h"

#include "nccl/report.h"

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

/* Numbers are written independently of the program's locale. Times are per step: the time of a
 * period, divided by its steps. */
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

/* Each state without a decision has a reason. */
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
