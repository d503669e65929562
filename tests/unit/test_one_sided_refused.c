/* Refused one-sided calls and windows, with a message that says why; and communicators of one rank, and of 65. */
#include "one_sided.h"

static unsigned char to[BYTES];

/* test_refusals.c tries other arguments. */
TEST(bad_arguments_are_refused_by_name)
{
    bad_argument(ceclPut(from, 1, (ceclDataType_t)99, 1, window[0], 0, comms[0], NULL),
                 "datatype 99");
    bad_argument(ceclPut(from, SIZE_MAX / 2, ceclInt64, 1, window[0], 0, comms[0], NULL), "count");
    bad_argument(ceclPut(NULL, 1, ceclUint8, 1, window[0], 0, comms[0], NULL), "sendbuff: NULL");
    bad_argument(ceclGet(NULL, 1, ceclUint8, 1, window[0], 0, comms[0], NULL), "recvbuff: NULL");
    bad_argument(ceclPut(from, 1, ceclUint8, 1, NULL, 0, comms[0], NULL), "window: NULL");
    bad_argument(ceclPut(from, 1, ceclUint8, 1, window[1], 0, comms[0], NULL),
                 "of a different communicator");
    bad_argument(ceclPut(from, 2, ceclUint8, 1, window[0], BYTES - 1, comms[0], NULL),
                 "end outside the 6000 bytes that rank 1 shares in window 1");
    bad_argument(ceclGet(to, 1, ceclUint8, 1, window[0], SIZE_MAX, comms[0], NULL), "end outside");
    const ceclSignalWait_t more[] = {{1, 50, INT32_MAX}, {1, 51, 1}},
                           twice[] = {{1, 50, 1 << 30}, {1, 50, 1 << 30}};
    bad_argument(ceclWaitSignal(2, more, comms[0], NULL), "waits[0].count");
    bad_argument(ceclWaitSignal(2, twice, comms[0], NULL), "waits[1].count");
    finish(0, NULL); /* no command was enqueued */
}

TEST(a_copy_within_a_rank_needs_leave_for_an_sm)
{
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    fill(from, 50, 3);
    bad_usage(ceclPut(from, 50, ceclUint8, 0, window[0], 8, comms[0], NULL), "CECL_SM_ALLOW");
    OK(ceclPut(from, 0, ceclUint8, 0, window[0], 8, comms[0], NULL)); /* 0 bytes */
    options.smPolicy = CECL_SM_ALLOW;
    OK(ceclSetOptions(comms[0], &options));
    OK(ceclPutSignal(from, 50, ceclUint8, 0, window[0], 8, 63, comms[0], NULL));
    wait_for(0, 0, 63, 1, NULL);
    OK(ceclGet(to, 50, ceclUint8, 0, window[0], 8, comms[0], NULL));
    finish(0, NULL);
    expect(memory[0] + 8, 50, 3);
    expect(to, 50, 3);
    options.smPolicy = CECL_UNDEF;
    OK(ceclSetOptions(comms[0], &options));
}

TEST(calls_in_a_group_are_refused)
{
    OK(ceclGroupStart());
    bad_usage(ceclSignal(1, 0, comms[0], NULL), "ceclSignal: call it outside a group");
    bad_usage(ceclWindowShare(comms[0], memory[0], 1, &window[0]), "outside a group");
    bad_usage(ceclWindowFree(comms[0], window[0]), "outside a group");
    OK(ceclGroupEnd());
    OK(ceclSignal(1, 0, comms[0], NULL)); /* refused calls do not count */
    wait_for(1, 0, 0, 1, NULL);
    finish(1, NULL);
}

TEST(a_window_ends_once_nobody_uses_it)
{
    ceclWindow_t second[RANKS];
    const ceclStream_t stream = stream_of(0);
    share(memory, 100, second);
    bad_usage(ceclMemFree(comms[0], memory[0]), "call ceclWindowFree first");
    wait_for(0, 1, 60, 1, stream);
    OK(ceclPut(from, 1, ceclUint8, 1, second[0], 0, comms[0], stream));
    struct sharing s[RANKS];
    for (int r = 0; r < RANKS; r++)
        s[r] = (struct sharing){.window = &second[r]};
    together(s);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(s[r].result, ceclInvalidUsage);
        assert_non_null(strstr(s[r].words, r == 0 ? "is pending" : "rank 0 refused"));
    }
    OK(ceclSignal(0, 60, comms[1], NULL));
    end(0, stream);
    end_windows(second, ceclSuccess, "");
    bad_argument(ceclPut(from, 1, ceclUint8, 1, second[0], 0, comms[0], NULL), "freed before?");
}

TEST(ranks_that_differ_are_all_refused)
{
    ceclWindow_t second[RANKS], mixed[RANKS];
    static char private_memory[100];
    struct sharing s[RANKS];
    share(memory, 100, second);
    for (int r = 0; r < RANKS; r++)
        mixed[r] = r == 3 ? window[r] : second[r];
    end_windows(mixed, ceclInvalidUsage, "ranks differ in the window");
    mixed[3] = NULL;
    struct sharing f[RANKS];
    for (int r = 0; r < RANKS; r++)
        f[r] = (struct sharing){.window = &mixed[r]};
    together(f);
    assert_int_equal(f[3].result, ceclInvalidArgument);
    assert_int_equal(f[0].result, ceclInvalidUsage);
    end_windows(second, ceclSuccess, "");
    for (int r = 0; r < RANKS; r++)
        s[r] = (struct sharing){
            .ptr = r == 1 ? (void *)private_memory : memory[r], .bytes = 100, .window = &second[r]};
    together(s);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(s[r].result, ceclInvalidUsage);
        assert_non_null(strstr(s[r].words, r == 1 ? "cannot open" : "rank 1 refused"));
    }
    share(memory, 100, second); /* window numbers are still equal on all ranks */
    end_windows(second, ceclSuccess, "");
}

TEST(memory_that_was_replaced_is_refused)
{
    unsigned char *at[RANKS];
    ceclWindow_t replaced[RANKS];
    ceclRegistration_t handle;
    ceclResult_t result = ceclSuccess;
    const int fd = memfd_create("window", MFD_CLOEXEC), other = memfd_create("other", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 8192) | ftruncate(other, 8192), 0);
    memcpy(at, memory, sizeof(at));
    at[1] = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(at[1] != MAP_FAILED);
    share(at, 100, replaced);
    OK(ceclPut(from, 100, ceclUint8, 1, replaced[0], 0, comms[0], NULL));
    finish(0, NULL);
    assert_true(mmap(at[1], 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, other, 0) ==
                at[1]);
    OK(ceclCommRegister(comms[1], at[1], 100, &handle));
    for (int i = 0; i < 200 && result == ceclSuccess; i++) {
        result = ceclPut(from, 100, ceclUint8, 1, replaced[0], 0, comms[0], NULL);
        pause_ms(10);
    }
    bad_usage(result, "rank 1 has freed or replaced its memory");
    OK(ceclPut(from, 100, ceclUint8, 2, replaced[0], 0, comms[0],
               NULL)); /* the others keep their memory */
    finish(0, NULL);
    end_windows(replaced, ceclSuccess, "");
    OK(ceclCommDeregister(comms[1], handle));
    munmap(at[1], 8192);
    close(fd);
    close(other);
}

TEST(a_rank_alone_has_windows_and_signals)
{
    ceclComm_t alone;
    ceclWindow_t own;
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    const ceclSignalWait_t wait = {0, 5, 1};
    static const int device = 0;
    OK(ceclCommInitAll(&alone, 1, &device));
    options.smPolicy = CECL_SM_ALLOW;
    OK(ceclSetOptions(alone, &options));
    unsigned char *ptr;
    OK(ceclMemAlloc(alone, (void **)&ptr, 100));
    OK(ceclWindowShare(alone, ptr, 100, &own));
    fill(from, 100, 6);
    OK(ceclPutSignal(from, 100, ceclUint8, 0, own, 0, 5, alone, NULL));
    OK(ceclWaitSignal(1, &wait, alone, NULL));
    OK(ceclStreamSynchronize(alone, NULL));
    expect(ptr, 100, 6);
    OK(ceclWindowFree(alone, own));
    OK(ceclCommDestroy(alone));
}

/* Large communicators have no words for signals. Every rank is refused before it waits for another one. */
TEST(more_ranks_than_have_signals_are_refused)
{
    static ceclComm_t many[CECL_ONE_SIDED_RANKS + 1];
    const ceclSignalWait_t wait = {1, 0, 1};
    setenv("CECL_POOL_BYTES", "64M", 1); /* many ranks share one address space */
    OK(ceclCommInitAll(many, CECL_ONE_SIDED_RANKS + 1, NULL));
    unsetenv("CECL_POOL_BYTES");
    bad_usage(ceclSignal(1, 0, many[0], NULL), "signals in a communicator of 65 ranks");
    bad_usage(ceclWaitSignal(1, &wait, many[0], NULL), "signals in a communicator of 65 ranks");
    for (int r = 0; r <= CECL_ONE_SIDED_RANKS; r++)
        OK(ceclCommDestroy(many[r]));
}

TEST(captured_calls_are_refused)
{
    const ceclSignalWait_t wait = {1, 0, 1};
    ceclStream_t stream;
    ceclGraph_t graph = NULL;
    OK(ceclStreamCreate(comms[0], &stream));
    OK(ceclStreamBeginCapture(comms[0], stream));
    bad_usage(ceclPut(from, 1, ceclUint8, 1, window[0], 0, comms[0], stream), "ceclPut: stream");
    bad_usage(ceclGet(to, 1, ceclUint8, 1, window[0], 0, comms[0], stream), "ceclGet: stream");
    bad_usage(ceclPutSignal(from, 0, ceclUint8, 1, window[0], 0, 1, comms[0], stream),
              "ceclPutSignal: stream");
    bad_usage(ceclSignal(1, 1, comms[0], stream),
              "capture a message (ceclSend, ceclRecv) or ceclAlltoAllvAt instead");
    bad_usage(ceclWaitSignal(1, &wait, comms[0], stream), "ceclWaitSignal: stream");
    OK(ceclStreamEndCapture(comms[0], stream, &graph)); /* without these calls */
    OK(ceclGraphLaunch(graph, stream));
    OK(ceclGraphDestroy(graph));
    finish(0, stream);
    OK(ceclStreamDestroy(comms[0], stream));
}

/* The target's host takes no part in a one-sided call, so the calling rank must check the target's memory. */
TEST(a_window_whose_file_has_become_too_short_is_refused)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *at[RANKS];
    int files[RANKS];
    ceclWindow_t cut[RANKS];
    ceclStream_t stream = stream_of(0);
    for (int r = 0; r < RANKS; r++) {
        files[r] = memfd_create("program", MFD_CLOEXEC);
        assert_true(files[r] >= 0 && ftruncate(files[r], (off_t)(2 * page)) == 0);
        at[r] = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED, files[r], 0);
        assert_ptr_not_equal(at[r], MAP_FAILED);
    }
    share(at, 2 * page, cut);
    OK(ceclPut(from, 100, ceclUint8, 1, cut[0], page, comms[0], stream));
    finish(0, stream);
    assert_int_equal(ftruncate(files[1], (off_t)page), 0);
    bad_argument(ceclPut(from, 100, ceclUint8, 1, cut[0], page, comms[0], stream),
                 "memory of rank 1");
    bad_argument(ceclGet(to, 100, ceclUint8, 1, cut[0], page, comms[0], stream), "too short");
    bad_argument(ceclPutSignal(from, 100, ceclUint8, 1, cut[0], page, 0, comms[0], stream),
                 "too short");
    OK(ceclPut(from, 100, ceclUint8, 1, cut[0], 0, comms[0], stream));
    finish(0, stream);
    assert_memory_equal(at[1], from, 100);
    end(0, stream);
    end_windows(cut, ceclSuccess, "");
    for (int r = 0; r < RANKS; r++) {
        munmap(at[r], 2 * page);
        close(files[r]);
    }
}

TESTS_BETWEEN(setup, close_all)
