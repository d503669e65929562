/* Messages between ranks that share one thread, and from a rank to itself, on the host device. */
#include "../with_cmocka.h"

#include "comm/comm.h"
#include "flags/awaited.h"
#include "launch/launcher.h"

#define RANKS 4
#define COUNT 3000
#include "comms.h"

static int in[RANKS][RANKS * COUNT], out[RANKS][RANKS * COUNT];

static int value(int from, int to, int round, int i)
{
    return from * 1000003 + to * 10007 + round * 101 + i;
}

static void begin(int round)
{
    memset(out, 0, sizeof(out));
    for (int from = 0; from < RANKS; from++)
        for (int to = 0; to < RANKS; to++)
            for (int i = 0; i < COUNT; i++)
                in[from][to * COUNT + i] = value(from, to, round, i);
}

static void check(int from, int to, int round)
{
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(out[to][from * COUNT + i], value(from, to, round, i));
}

static void send_to(int from, int to)
{
    OK(ceclSend(in[from] + to * COUNT, COUNT, ceclInt32, to, comms[from], NULL));
}

static void receive_from(int from, int to)
{
    OK(ceclRecv(out[to] + from * COUNT, COUNT, ceclInt32, from, comms[to], NULL));
}

TEST(a_rank_alone_is_refused_without_an_sm)
{
    ceclComm_t kept = comms[0];
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    OK(ceclCommInitAll(comms, 1, NULL));
    options.smPolicy = CECL_SM_NEVER;
    OK(ceclSetOptions(comms[0], &options));
    OK(ceclGroupStart());
    receive_from(0, 0);
    send_to(0, 0);
    bad_usage(ceclGroupEnd(), "CECL_SM_NEVER");
    assert_non_null(strstr(ceclGetLastError(comms[0]), "CECL_SM_NEVER"));
    OK(ceclCommDestroy(comms[0]));
    comms[0] = kept;
}

TEST(own_messages_match_in_order)
{
    begin(9);
    OK(ceclGroupStart());
    for (int i = 0; i < 3; i++)
        OK(ceclRecv(out[1] + i * COUNT, COUNT - (size_t)i, ceclInt32, 1, comms[1], NULL));
    for (int i = 0; i < 3; i++)
        OK(ceclSend(in[1] + i * COUNT, COUNT - (size_t)i, ceclInt32, 1, comms[1], NULL));
    OK(ceclGroupEnd());
    finish_all(NULL);
    for (int i = 0; i < 3; i++)
        assert_memory_equal(out[1] + i * COUNT, in[1] + i * COUNT,
                            (COUNT - (size_t)i) * sizeof(int));
}

/* The sender's stream has not reached the messages yet, so only the sender's host waits for the receiver. */
TEST(a_receiver_that_is_far_behind_is_named)
{
    ceclComm_t few[3];
    ceclResult_t result = ceclSuccess;
    uint32_t *word;
    setenv("CECL_TIMEOUT_MS", "1000", 1);
    OK(ceclCommInitAll(few, 3, NULL));
    unsetenv("CECL_TIMEOUT_MS");
    struct cecl_device *dev = few[0]->dev;
    OK(dev->ops->words_alloc(dev, 1, &word));
    const struct cecl_memop hold = {word, 1, CECL_MEMOP_WAIT};
    OK(dev->ops->memops(dev, NULL, &hold, 1));
    for (int i = 0; i < 1000 && result == ceclSuccess; i++)
        result = ceclSend(in[0], 1, ceclInt32, 2, few[0], NULL);
    must_say(result, ceclTimeout, "rank 2 did not make the ceclSend or ceclRecv");
    assert_non_null(strstr(ceclGetLastError(few[0]), "rank 2 did not make the ceclSend"));
    dev->ops->host_write(dev, word, 1, 1);
    OK(dev->ops->stream_synchronize(dev, NULL));
    dev->ops->words_free(dev, word);
    for (int r = 0; r < 3; r++)
        (void)!ceclCommDestroy(few[r]); /* they have failed */
}

#define LOOK (UINT64_C(1) << 29) /* messages between two looks at old words: see flags/awaited.c */

/* Makes the message counts of rank 0 to rank 1 reach `number`, as if the messages had been made. */
static void count_up(uint64_t number)
{
    struct cecl_posts *sender = &comms[0]->launcher->messenger.posts,
                      *receiver = &comms[1]->launcher->messenger.posts;
    sender->numbers[CECL_SENDER * RANKS + 1] = number;
    receiver->numbers[CECL_RECEIVER * RANKS + 0] = number;
    cecl_posts_finish(sender, CECL_SENDER, 1);
    cecl_posts_finish(receiver, CECL_RECEIVER, 0);
}

/* Whether a stream waits, or will wait, for a word that the peer writes for a message. */
static bool is_late(const struct cecl_flags *flags, int peer)
{
    bool late = false;
    for (int row = CECL_ROW_READY; row < CECL_ROW_SIGNAL; row++)
        late = late || cecl_awaited_missing(flags, cecl_awaited_at(flags, row, peer)) > 0;
    return late;
}

/* The receiver comes first in 2^31 messages, so no rank writes the words for messages in which the sender comes first.
 * When the sender comes first again, each rank must still wait for a new value: words that old end no wait. */
TEST(a_word_that_a_peer_has_not_written_for_long_ends_no_wait)
{
    const struct cecl_flags *flags[2] = {&comms[0]->engine.flags, &comms[1]->engine.flags};
    struct cecl_device *dev = comms[0]->dev;
    const uint64_t first = comms[0]->launcher->messenger.posts.numbers[CECL_SENDER * RANKS + 1];
    uint32_t *word;
    begin(11);
    send_to(0, 1);
    receive_from(0, 1);
    for (uint64_t looks = 1; looks <= 4; looks++) {
        count_up(looks * LOOK - 1);
        receive_from(0, 1);
        send_to(0, 1);
        finish_all(NULL);
    }
    count_up(4 * LOOK + first + 1);
    memset(out, 0, sizeof(out));
    OK(dev->ops->words_alloc(dev, 1, &word));
    const struct cecl_memop hold = {word, 1, CECL_MEMOP_WAIT};
    OK(dev->ops->memops(dev, NULL, &hold, 1));
    send_to(0, 1);
    assert_true(is_late(flags[0], 1));
    receive_from(0, 1);
    assert_true(is_late(flags[1], 0));
    dev->ops->host_write(dev, word, 1, 1);
    finish_all(NULL);
    check(0, 1, 11);
    dev->ops->words_free(dev, word);
}

TESTS_BETWEEN(open_all, close_all)
