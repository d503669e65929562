/* ceclAlltoAllvDevice, ceclDispatch and ceclCombine do what PyTorch documents for all_to_all_vdev, all_to_all_vdev_2d
 * and all_to_all_vdev_2d_offset. The tables list each rank's input rows, and the rows that it must receive. A letter is
 * a row: rank 0's blocks are a, b, c, ..., rank 1's are A, B, C, ... */
#include "../with_cmocka.h"

#define RANKS 2
#include "comms.h"

#define BLOCKS 4
#define ROWS 40
#define NONE '.'

enum op { VDEV, VDEV_2D, VDEV_2D_OFFSET };

struct definition {
    const char *name;
    enum op op;
    size_t experts, align;
    /* By rank: in_splits, or in_splits_offsets as two rows; input; expected out_splits_offsets; expected output. */
    uint64_t splits[RANKS][2 * BLOCKS];
    const char *input[RANKS];
    uint64_t out[RANKS][2 * BLOCKS];
    const char *output[RANKS];
};

static const struct definition definitions[] = {
    {"all_to_all_vdev: rows for each rank, in rank order", VDEV, 1, 1, .splits = {{2, 3}, {1, 4}},
     .input = {"aabbb", "ABBBB"}, .out = {{2, 1, 0, 2}, {3, 4, 0, 3}},
     .output = {"aaA", "bbbBBBB"}},
    {"all_to_all_vdev: one rank sends nothing to the other", VDEV, 1, 1, .splits = {{0, 2}, {3, 0}},
     .input = {"bb", "AAA"}, .out = {{0, 3, 0, 0}, {2, 0, 0, 2}}, .output = {"AAA", "bb"}},
    {"all_to_all_vdev_2d: rank-major to expert-major", VDEV_2D, 2, 1,
     .splits = {{1, 1, 1, 1}, {1, 1, 1, 1}}, .input = {"abcd", "ABCD"},
     .out = {{1, 1, 1, 1, 0, 1, 2, 3}, {1, 1, 1, 1, 0, 1, 2, 3}}, .output = {"aAbB", "cCdD"}},
    {"major_align 16: 5 and 7 rows, and the next expert begins at 16", VDEV_2D, 2, 16,
     .splits = {{5, 3, 17, 1}, {7, 2, 0, 2}},
     .input = {"aaaaabbbcccccccccccccccccd", "AAAAAAABBDD"},
     .out = {{5, 7, 3, 2, 0, 5, 16, 19}, {17, 0, 1, 2, 0, 17, 32, 33}},
     .output = {"aaaaaAAAAAAA....bbbBB", "ccccccccccccccccc...............dDD"}},
    {"an expert without rows takes the room of major_align rows", VDEV_2D, 2, 8,
     .splits = {{0, 1, 0, 0}, {0, 2, 0, 0}}, .input = {"b", "BB"},
     .out = {{0, 0, 1, 2, 0, 0, 8, 9}, {0, 0, 0, 0, 0, 0, 8, 8}}, .output = {"........bBB", ""}},
    {"the example of ceclDispatch in cecl.h", VDEV_2D, 2, 2, .splits = {{1, 2, 0, 1}, {1, 0, 0, 3}},
     .input = {"abbd", "ADDD"}, .out = {{1, 1, 2, 0, 0, 1, 2, 4}, {0, 0, 1, 3, 0, 0, 2, 3}},
     .output = {"aAbb", "..dDDD"}},
    /* cecl.h differs here: PyTorch leaves one row free. */
    {"align 1: an expert without rows takes no room", VDEV_2D, 2, 1,
     .splits = {{0, 1, 0, 0}, {0, 2, 0, 0}}, .input = {"b", "BB"},
     .out = {{0, 0, 1, 2, 0, 0, 0, 1}, {0, 0, 0, 0, 0, 0, 0, 0}}, .output = {"bBB", ""}},
    {"all_to_all_vdev_2d_offset: back from expert-major, without what lies between", VDEV_2D_OFFSET,
     2, 1, .splits = {{5, 7, 3, 2, 0, 5, 16, 19}, {17, 0, 1, 2, 0, 17, 32, 33}},
     .input = {"aaaaabbbbbbb....cccdd", "AAAAAAAAAAAAAAAAA...............CDD"},
     .out = {{5, 3, 17, 1, 0, 5, 8, 25}, {7, 2, 0, 2, 0, 7, 9, 9}},
     .output = {"aaaaacccAAAAAAAAAAAAAAAAAC", "bbbbbbbddDD"}},
    {"all_to_all_vdev_2d_offset: gaps between all blocks, which begin behind a gap", VDEV_2D_OFFSET,
     2, 1, .splits = {{2, 1, 1, 0, 1, 4, 6, 9}, {1, 1, 0, 2, 3, 0, 9, 5}},
     .input = {".aa.b.c...", "B..A.DD..."},
     .out = {{2, 1, 1, 0, 0, 2, 3, 4}, {1, 0, 1, 2, 0, 1, 1, 2}}, .output = {"aacA", "bBDD"}},
};

static struct memory {
    char *input, *output;
    uint64_t *splits, *out;
} memory[RANKS];

static void allocate(void)
{
    const size_t bytes[4] = {ROWS, ROWS, 2 * BLOCKS * sizeof(uint64_t),
                             2 * BLOCKS * sizeof(uint64_t)};
    void *got[4][RANKS];
    for (int i = 0; i < 4; i++)
        allocate_all(got[i], bytes[i]);
    for (int r = 0; r < RANKS; r++)
        memory[r] = (struct memory){got[0][r], got[1][r], got[2][r], got[3][r]};
}

static ceclResult_t make(const struct definition *d, int rank)
{
    const ceclExperts_t experts = {.experts = d->experts, .align = d->align};
    const struct memory *m = &memory[rank];
    if (d->op == VDEV)
        return ceclAlltoAllvDevice(m->input, ROWS, m->splits, m->output, ROWS, m->out, 1, ceclUint8,
                                   comms[rank], NULL);
    return (d->op == VDEV_2D ? ceclDispatch : ceclCombine)(m->input, ROWS, m->splits, m->output,
                                                           ROWS, m->out, &experts, 1, ceclUint8,
                                                           comms[rank], NULL);
}

static void run(const struct definition *d)
{
    for (int r = 0; r < RANKS; r++) {
        memset(memory[r].input, '?', ROWS);
        memcpy(memory[r].input, d->input[r], strlen(d->input[r]));
        memset(memory[r].output, NONE, ROWS);
        memcpy(memory[r].splits, d->splits[r], sizeof(d->splits[r]));
    }
    OK(ceclGroupStart());
    OK_EACH(make(d, r));
    OK(ceclGroupEnd());
    finish_all(NULL);
}

static void check(const struct definition *d, int rank)
{
    const size_t words = 2 * RANKS * d->experts;
    char output[ROWS];
    memset(output, NONE, sizeof(output));
    memcpy(output, d->output[rank], strlen(d->output[rank]));
    if (memcmp(memory[rank].output, output, ROWS) != 0)
        fail_msg("%s: rank %d receives %.*s", d->name, rank, ROWS, memory[rank].output);
    for (size_t i = 0; i < words; i++)
        if (memory[rank].out[i] != d->out[rank][i])
            fail_msg("%s: rank %d, word %zu of out_splits_offsets is %llu", d->name, rank, i,
                     (unsigned long long)memory[rank].out[i]);
}

TEST_BETWEEN(what_pytorch_documents_is_what_arrives, open_all, close_all)
{
    allocate();
    for (size_t i = 0; i < sizeof(definitions) / sizeof(definitions[0]); i++) {
        run(&definitions[i]);
        for (int r = 0; r < RANKS; r++)
            check(&definitions[i], r);
    }
}

int main(void)
{
    setenv("CECL_SM_POLICY", "allow", 1);
    return tests_run(NULL, NULL);
}
