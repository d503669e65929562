/* The order of passed calls and of exchanges over a split of NCCL's communicator on GPUs, and the
 * exchanges of ranks of several nodes for trials. The test records the calls of the driver and of
 * NCCL, both of which it replaces. */
#include <stdio.h>
#include <string.h>

#include "../with_cmocka.h"

#include "nccl/gathered.h"
#include "nccl/library.h"
#include "nccl/passed.h"
#include "nccl/process.h"
#include "nccl/rails.h"

static char log_[512];
static struct cecl_nccl_comm entry;
static struct cecl_nccl_exchange exchange;
static ncclResult_t answer; /* result of NCCL's calls */
static int polls;           /* number of polls during which NCCL is in progress */
static bool is_captured;

#define COMM ((ncclComm_t)1)
#define STREAM(number) ((cudaStream_t)(number))
#define NUMBER(stream) ((int)(intptr_t)(stream))

static void add(const char *what, cudaStream_t stream)
{
    const size_t at = strlen(log_);
    snprintf(log_ + at, sizeof(log_) - at, "%s%.0d ", what, NUMBER(stream));
}

/* ---- stand-ins */

ncclResult_t some_call_of_nccl(void);
__attribute__((used)) ncclResult_t some_call_of_nccl(void)
{
    add("nccl", NULL);
    return answer;
}
#define SAME(name)                                                                                 \
    __asm__(".globl cecl_nccl_pass_" #name "\n.set cecl_nccl_pass_" #name ", "                     \
            "some_call_of_nccl\n");
CECL_NCCL_NAMES(SAME, CECL_NCCL_SKIP, CECL_NCCL_SKIP)

ncclResult_t cecl_nccl_pass_ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    (void)comm;
    add("poll", NULL);
    *error = polls-- > 0 ? ceclInProgress : ceclSuccess;
    return ceclSuccess;
}

bool cecl_nccl_gpu_captures(cudaStream_t stream, bool *is_sound)
{
    *is_sound = true;
    (void)stream;
    return is_captured;
}

ceclResult_t cecl_nccl_gpu_await(void *event, cudaStream_t stream)
{
    assert_ptr_equal(event, &entry);
    add("await", stream);
    return ceclSuccess;
}

bool cecl_nccl_gpu_note(void *event, cudaStream_t stream)
{
    assert_ptr_equal(event, &entry);
    add("note", stream);
    return true;
}

ceclResult_t cecl_nccl_gpu_make_events(int ordinal, void **events, int count)
{
    assert_int_equal(ordinal, 0);
    assert_int_equal(count, 1);
    *events = &entry;
    return ceclSuccess;
}

void cecl_nccl_gpu_free_events(int ordinal, void **events, int count)
{
    (void)ordinal, (void)count;
    assert_ptr_equal(*events, &entry);
    add("free", NULL);
}

ceclResult_t cecl_nccl_exchange_split(struct cecl_nccl_exchange *of, void *config,
                                      ncclComm_t *split)
{
    assert_ptr_equal(of, &exchange);
    assert_string_equal(config, "config");
    *split = (ncclComm_t)2;
    return ceclSuccess;
}

const struct cecl_nccl_process *cecl_nccl_process(void)
{
    static const struct cecl_nccl_process process = {.real = {.handle = &entry}};
    return &process;
}

static ceclResult_t failure;

static ceclResult_t async_error(ceclComm_t comm, ceclResult_t *error)
{
    (void)comm;
    *error = failure;
    return ceclSuccess;
}

static ceclResult_t revoke(ceclComm_t comm)
{
    (void)comm;
    add("revoke", NULL);
    return ceclSuccess;
}

const struct cecl_nccl_library *cecl_nccl_library(void)
{
    static const struct cecl_nccl_library library = {.ceclCommGetAsyncError = async_error,
                                                     .ceclCommRevoke = revoke};
    return &library;
}

/* ---- GPU memory */

enum { RANKS = 3 };

static struct cecl_trial_rank memory[1 + RANKS];
static int looks; /* number of queries until the stream is complete */

ceclResult_t cecl_nccl_gpu_enter(struct cecl_nccl_gpu *gpu, int ordinal)
{
    *gpu = (struct cecl_nccl_gpu){.ordinal = ordinal, .context = memory, .stream = STREAM(7)};
    add("enter", NULL);
    return ceclSuccess;
}

void cecl_nccl_gpu_leave(struct cecl_nccl_gpu *gpu)
{
    add(gpu->memory ? "free" : "keep", NULL);
    *gpu = (struct cecl_nccl_gpu){0};
}

void cecl_nccl_gpu_pause(struct cecl_nccl_gpu *gpu)
{
    (void)gpu;
    add("pause", NULL);
}

bool cecl_nccl_gpu_return(struct cecl_nccl_gpu *gpu)
{
    (void)gpu;
    add("return", NULL);
    return true;
}

ceclResult_t cecl_nccl_gpu_reserve(struct cecl_nccl_gpu *gpu, size_t bytes)
{
    assert_int_equal(bytes, sizeof(memory));
    gpu->memory = (uintptr_t)memory;
    return ceclSuccess;
}

ceclResult_t cecl_nccl_gpu_put(struct cecl_nccl_gpu *gpu, size_t at, const void *from, size_t bytes)
{
    memcpy((char *)(uintptr_t)gpu->memory + at, from, bytes);
    add("put", NULL);
    return ceclSuccess;
}

ceclResult_t cecl_nccl_gpu_get(struct cecl_nccl_gpu *gpu, size_t at, void *to, size_t bytes)
{
    memcpy(to, (char *)(uintptr_t)gpu->memory + at, bytes);
    add("get", NULL);
    return ceclSuccess;
}

ceclResult_t cecl_nccl_gpu_is_done(struct cecl_nccl_gpu *gpu, bool *is_done)
{
    (void)gpu;
    add("look", NULL);
    *is_done = looks-- <= 0;
    return ceclSuccess;
}

/* ---- tests */

static ceclNcclNet_t net;

static int set_up(void **state)
{
    void *split = NULL;
    memset(&entry, 0, sizeof(entry));
    entry.nccl = COMM;
    answer = ceclSuccess;
    is_captured = false;
    assert_true(cecl_nccl_life_go(&entry.life, CECL_NCCL_FREE_TO_MAKING));
    net = cecl_nccl_rails_lend(&entry, &exchange);
    assert_false(entry.rails.exist);
    assert_int_equal(net.split(net.context, (void *)(uintptr_t) "config", &split), 0);
    assert_ptr_equal(split, 2);
    assert_true(entry.rails.exist);
    assert_true(cecl_nccl_life_go(&entry.life, CECL_NCCL_MAKING_TO_READY));
    log_[0] = '\0';
    return 0;
}

static ncclResult_t pass_on(intptr_t stream, bool ends)
{
    const struct cecl_nccl_call call = {
        .op = CECL_NCCL_OP_ncclAllReduce, .comm = COMM, .stream = STREAM(stream)};
    return cecl_nccl_pass_ordered(&call, &entry, ends);
}

static void exchange_on(intptr_t stream)
{
    assert_int_equal(net.order(net.context, STREAM(stream), 1), 0);
    add("exchange", NULL);
    assert_int_equal(net.order(net.context, STREAM(stream), 0), 0);
}

static void each_waits_for_the_one_before_on_any_stream(void **state)
{
    assert_int_equal(pass_on(1, true), 0);
    exchange_on(9);
    exchange_on(9);
    assert_int_equal(pass_on(2, true), 0);
    assert_string_equal(log_, "nccl note1 await9 exchange note9 await9 exchange note9 "
                              "await2 nccl note2 ");
}

static void a_group_counts_as_one_call_when_it_has_ended(void **state)
{
    exchange_on(9);
    log_[0] = '\0';
    assert_int_equal(pass_on(1, false), 0);
    assert_int_equal(pass_on(2, false), 0);
    assert_string_equal(log_, "await1 nccl await2 nccl ");
    assert_int_equal(cecl_nccl_pass_ended(ceclSuccess), 0);
    assert_int_equal(cecl_nccl_pass_ended(ceclSuccess), 0);
    assert_string_equal(log_, "await1 nccl await2 nccl note2 ");
}

static void an_event_lies_behind_what_nccl_enqueues_in_the_background(void **state)
{
    answer = ceclInProgress;
    polls = 2;
    assert_int_equal(pass_on(1, true), ceclInProgress);
    assert_string_equal(log_, "nccl poll poll poll note1 ");
}

static void captured_calls_and_calls_without_rails_ask_the_driver_nothing(void **state)
{
    exchange_on(9);
    log_[0] = '\0';
    is_captured = true;
    assert_int_equal(pass_on(1, true), 0);
    is_captured = false;
    cecl_nccl_rails_close(&entry);
    assert_int_equal(pass_on(1, true), 0);
    assert_string_equal(log_, "nccl free nccl ");
}

static void a_communicator_that_has_ended_is_not_touched(void **state)
{
    exchange_on(9);
    log_[0] = '\0';
    assert_int_equal(pass_on(1, false), 0);
    assert_true(cecl_nccl_life_go(&entry.life, CECL_NCCL_READY_TO_ENDING));
    assert_int_equal(cecl_nccl_pass_ended(ceclSuccess), 0);
    assert_int_equal(pass_on(1, true), 0);
    assert_string_equal(log_, "await1 nccl nccl ");
    assert_int_equal(cecl_nccl_life_inside(&entry.life), 0);
}

/* ---- exchanges for trials */

static struct cecl_nccl_gathered gathered;

static int set_up_gathered(void **state)
{
    set_up(state);
    entry.nranks = RANKS;
    memset(memory, 0, sizeof(memory));
    looks = 0;
    assert_int_equal(cecl_nccl_gathered_open(&gathered, &entry), 0);
    assert_string_equal(log_, "enter pause ");
    log_[0] = '\0';
    return 0;
}

static void ranks_parts_are_read_at_the_next_exchange(void **state)
{
    struct cecl_trial_rank mine = {.offer = 5}, all[RANKS] = {{0}};
    cecl_nccl_gathered_exchange(&gathered, &entry, &mine, all);
    assert_string_equal(log_, "return put nccl note7 pause ");
    assert_int_equal(memory[0].offer, 5);
    for (int r = 0; r < RANKS; r++)
        memory[1 + r].offer = 10 + (uint64_t)r; /* what NCCL gathers meanwhile */
    log_[0] = '\0';
    looks = 2;
    mine.offer = 6;
    cecl_nccl_gathered_exchange(&gathered, &entry, &mine, all);
    assert_string_equal(log_, "return look look look get put await7 nccl note7 pause ");
    assert_int_equal(memory[0].offer, 6);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(all[r].offer, 10 + r);
    log_[0] = '\0';
    cecl_nccl_gathered_close(&gathered, false);
    assert_string_equal(log_, "return look free ");
}

static void an_abort_ends_the_wait_and_keeps_what_nccl_may_write_to(void **state)
{
    struct cecl_trial_rank mine = {.offer = 5}, all[RANKS] = {{0}};
    cecl_nccl_gathered_exchange(&gathered, &entry, &mine, all);
    assert_true(cecl_nccl_life_go(&entry.life, CECL_NCCL_READY_TO_ENDING));
    looks = 1000;
    log_[0] = '\0';
    cecl_nccl_gathered_exchange(&gathered, &entry, &mine, all);
    cecl_nccl_gathered_exchange(&gathered, &entry, &mine, all);
    assert_string_equal(log_, "return look pause ");
    log_[0] = '\0';
    cecl_nccl_gathered_close(&gathered, false);
    assert_string_equal(log_, "return look keep ");
}

static void the_end_of_an_abort_waits_for_no_work_on_the_gpu(void **state)
{
    cecl_nccl_gathered_close(&gathered, true);
    assert_string_equal(log_, "return keep ");
}

static void a_failure_ends_the_wait(void **state)
{
    struct cecl_trial_rank mine = {.offer = 5}, all[RANKS] = {{0}};
    cecl_nccl_gathered_exchange(&gathered, &entry, &mine, all);
    looks = 1000;
    failure = ceclRemoteError;
    log_[0] = '\0';
    cecl_nccl_gathered_exchange(&gathered, &entry, &mine, all);
    cecl_nccl_gathered_exchange(&gathered, &entry, &mine, all);
    assert_string_equal(log_, "return look pause revoke ");
    failure = ceclSuccess;
    cecl_nccl_gathered_close(&gathered, false);
}

static void an_exchange_that_fails_on_one_rank_fails_the_communicator(void **state)
{
    struct cecl_trial_rank mine = {.offer = 5}, all[RANKS] = {{0}};
    answer = ceclInternalError;
    cecl_nccl_gathered_exchange(&gathered, &entry, &mine, all);
    assert_string_equal(log_, "return put nccl note7 pause revoke ");
    log_[0] = '\0';
    cecl_nccl_gathered_exchange(&gathered, &entry, &mine, all);
    assert_string_equal(log_, "");
    cecl_nccl_gathered_close(&gathered, true);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, set_up)
    const struct CMUnitTest tests[] = {
        TEST(each_waits_for_the_one_before_on_any_stream),
        TEST(a_group_counts_as_one_call_when_it_has_ended),
        TEST(an_event_lies_behind_what_nccl_enqueues_in_the_background),
        TEST(captured_calls_and_calls_without_rails_ask_the_driver_nothing),
        TEST(a_communicator_that_has_ended_is_not_touched),
        cmocka_unit_test_setup(ranks_parts_are_read_at_the_next_exchange, set_up_gathered),
        cmocka_unit_test_setup(an_abort_ends_the_wait_and_keeps_what_nccl_may_write_to,
                               set_up_gathered),
        cmocka_unit_test_setup(the_end_of_an_abort_waits_for_no_work_on_the_gpu, set_up_gathered),
        cmocka_unit_test_setup(a_failure_ends_the_wait, set_up_gathered),
        cmocka_unit_test_setup(an_exchange_that_fails_on_one_rank_fails_the_communicator,
                               set_up_gathered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
