/* See report.h. */
#include "nccl/report.h"

#include <inttypes.h>
#include <pthread.h>
#include <stddef.h>

#include "util/thread.h"

#define ENTRIES 64u

static struct {
    pthread_mutex_t lock;
    uint32_t written; /* how many communicators got an entry; only the latest still have it */
    struct entry {
        const void *key; /* NULL: the communicator has ended */
        struct cecl_nccl_report report;
    } entries[ENTRIES];
} reports = {.lock = PTHREAD_MUTEX_INITIALIZER};

const char *const cecl_nccl_arm_words[CECL_VERDICT_ARMS] = {
    "passed to NCCL",
    "served, with SMs for reductions only",
    "served",
    "served, except reductions",
};
const char *const cecl_nccl_arm_names[CECL_VERDICT_ARMS] = {"nccl", "no_sms", "with_sms",
                                                            "moves_alone"};

static const char *const state_words[CECL_NCCL_TRIAL_STATES] = {
    "no trials",
    "not tried, because its calls have no period yet",
    "not tried yet: its trial begins after some more steps",
    "not tried yet, because another communicator was being tried when its trial was to begin",
    "not tried yet: ranks were too many steps apart, or the step was too new",
    "a trial is under way",
    "not tried: each attempt to begin failed; more follow some hundred steps later",
    "not tried, because it has decided on too many periods already",
    "decided",
};
static const char *const state_names[CECL_NCCL_TRIAL_STATES] = {
    "off", "searching", "waiting", "put_off", "apart", "running", "left", "full", "decided"};

static struct entry *find(const void *key)
{
    for (uint32_t i = 0; i < ENTRIES; i++)
        if (reports.entries[i].key == key)
            return &reports.entries[i];
    return NULL;
}

void cecl_nccl_report_set(const void *key, const struct cecl_nccl_report *report, bool is_last)
{
    CECL_LOCKED(&reports.lock);
    struct entry *entry = find(key);
    if (!entry)
        entry = &reports.entries[reports.written++ % ENTRIES];
    *entry = (struct entry){is_last ? NULL : key, *report};
}

void cecl_nccl_report_forget(void)
{
    /* another thread of the parent may have held the lock */
    reports.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    reports.written = 0;
    for (uint32_t i = 0; i < ENTRIES; i++)
        reports.entries[i].key = NULL;
}

/* ---- printing */

static uint32_t count(void)
{
    return reports.written < ENTRIES ? reports.written : ENTRIES;
}

static double ms(const struct cecl_nccl_report *report, double ns)
{
    return ns / 1e6 / (report->repeated > 0 ? report->repeated : 1);
}

/* Does not use the program's locale, which may have a decimal comma. */
static void json_number(FILE *out, const char *name, double value)
{
    const int64_t millionths = (int64_t)(value * 1e6 + (value < 0 ? -0.5 : 0.5));
    const uint64_t size = (uint64_t)(millionths < 0 ? -millionths : millionths);
    fprintf(out, "\"%s\": %s%" PRIu64 ".%06" PRIu64, name, millionths < 0 ? "-" : "",
            size / 1000000, size % 1000000);
}

static void print_one(FILE *out, const struct cecl_nccl_report *report)
{
    const bool is_decided = report->state == CECL_NCCL_TRIAL_DECIDED;
    fprintf(out, "cecl: communicator, rank %d of %d: %s%s%s; ", report->rank, report->nranks,
            state_words[report->state], is_decided ? ": " : "",
            is_decided ? cecl_nccl_arm_words[report->arm] : "");
    if (report->calls > 0)
        fprintf(out, "%" PRIu32 " collectives a step; ", report->calls);
    fprintf(out, "a rank came late to %" PRIu64 " of %" PRIu64 " calls\n", report->late,
            report->told);
    for (int arm = 0; arm < CECL_VERDICT_ARMS; arm++) {
        const struct cecl_arm_times *times = &report->verdict.arms[arm];
        if (times->count > 0)
            fprintf(out, "cecl:   %-38s %9.3f ms a step (median of %" PRIu32 ", spread %.3f)\n",
                    cecl_nccl_arm_words[arm], ms(report, times->median_ns), times->count,
                    ms(report, times->spread_ns));
    }
}

void cecl_nccl_report_print(FILE *out)
{
    CECL_LOCKED(&reports.lock);
    for (uint32_t i = 0; i < count(); i++)
        print_one(out, &reports.entries[i].report);
}

static void json_one(FILE *out, const struct cecl_nccl_report *report)
{
    const char *before = "";
    const bool is_decided = report->state == CECL_NCCL_TRIAL_DECIDED;
    fprintf(out,
            "{\"rank\": %d, \"ranks\": %d, \"state\": \"%s\", \"decision\": %s%s%s, "
            "\"trials\": "
            "%" PRIu32 ", \"period_calls\": %" PRIu32 ", \"told_calls\": %" PRIu64
            ", \"late_calls\": %" PRIu64 ", \"ways\": {",
            report->rank, report->nranks, state_names[report->state], is_decided ? "\"" : "",
            is_decided ? cecl_nccl_arm_names[report->arm] : "null", is_decided ? "\"" : "",
            report->trials, report->calls, report->told, report->late);
    for (int arm = 0; arm < CECL_VERDICT_ARMS; arm++) {
        const struct cecl_arm_times *times = &report->verdict.arms[arm];
        if (times->count == 0)
            continue;
        fprintf(out, "%s\"%s\": {", before, cecl_nccl_arm_names[arm]);
        json_number(out, "median_ms", ms(report, times->median_ns));
        fprintf(out, ", ");
        json_number(out, "spread_ms", ms(report, times->spread_ns));
        fprintf(out, ", \"steps\": %" PRIu32 ", ", times->count);
        json_number(out, "gain", times->gain);
        fprintf(out, "}");
        before = ", ";
    }
    fprintf(out, "}}");
}

void cecl_nccl_report_json(FILE *out)
{
    CECL_LOCKED(&reports.lock);
    fprintf(out, "[");
    for (uint32_t i = 0; i < count(); i++) {
        fprintf(out, "%s", i > 0 ? ", " : "");
        json_one(out, &reports.entries[i].report);
    }
    fprintf(out, "]");
}
