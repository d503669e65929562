/* cecl_device.h as host code, without a communicator: it finds peers by the table of slices, wherever the slices lie. */
#include "../with_cmocka.h"

#include <cecl/cecl_device.h>

#define RANKS 3
#define RANK 1
#define BLOCKS 2
#define SIGNALS 2
#define WORDS ((BLOCKS + SIGNALS) * RANKS + 1)
#define PADS 8 /* offset of the pads in each slice, in words */
#define SLICE (PADS + WORDS)

/* The slices lie in no order, and with different gaps. */
static uint32_t memory[10 * SLICE];
static char *const slices[RANKS] = {(char *)(memory + 7 * SLICE), (char *)(memory + SLICE),
                                    (char *)(memory + 4 * SLICE)};

static ceclDeviceComm_t device_comm(void)
{
    memset(memory, 0, sizeof(memory));
    return (ceclDeviceComm_t){.rank = RANK,
                              .nranks = RANKS,
                              .blocks = BLOCKS,
                              .signals = SIGNALS,
                              .slices = slices,
                              .pads = (uint32_t *)(void *)slices[RANK] + PADS,
                              .timeoutNs = 1000000};
}

/* Returns the word in `holder`'s slice that `writer` writes, and sets it to 0. */
static uint32_t take(int holder, int slot, int writer)
{
    uint32_t *word =
        (uint32_t *)(void *)slices[holder] + PADS + (size_t)slot * RANKS + (size_t)writer;
    const uint32_t value = *word;
    *word = 0;
    return value;
}

static void assert_nothing_else_was_written(void)
{
    for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); i++)
        assert_int_equal(memory[i], 0);
}

TEST(a_peer_is_where_the_table_says)
{
    const ceclDeviceComm_t dc = device_comm();
    for (int p = 0; p < RANKS; p++)
        assert_ptr_equal(ceclPeerPointer(dc, slices[RANK] + 5, p), slices[p] + 5);
}

TEST(a_signal_goes_to_the_peers_slice_alone)
{
    const ceclDeviceComm_t dc = device_comm();
    ceclDeviceSignal(dc, 2, 1, 77);
    assert_int_equal(take(2, BLOCKS + 1, RANK), 77);
    ceclDeviceSignal(dc, RANK, 0, 78);
    assert_int_equal(take(RANK, BLOCKS, RANK), 78);
    assert_nothing_else_was_written();
}

TEST(a_barrier_tells_every_peer_and_no_other_memory)
{
    const ceclDeviceComm_t dc = device_comm();
    for (int p = 0; p < RANKS; p++) /* as if all peers had arrived */
        dc.pads[RANKS + p] = p != RANK;
    assert_true(ceclBarrierBlock(dc, 1));
    for (int p = 0; p < RANKS; p++) {
        assert_int_equal(take(p, 1, RANK), 1);
        assert_int_equal(take(RANK, 1, p), p != RANK);
    }
    assert_nothing_else_was_written();
}
