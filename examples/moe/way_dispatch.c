/* Rows travel to their experts and back. Each token is sent only to its CHOICES experts. Kernels move the rows, so the
 * policy is CECL_SM_ALLOW. On GPUs the host need not read how many rows come. (Here the host's loops read it, because
 * they stand for kernels.) */
#include "moe.h"

#include <string.h>

enum { ROWS = TOKENS * CHOICES, ALIGN = 4 };

static ceclComm_t comm;
static int nranks;
static size_t room; /* rows that `inbox` has room for: all rows of all ranks, and padding */
static ceclExperts_t experts = {.experts = LOCAL, .align = ALIGN};
/* sorted: rows of this rank's tokens, by expert; inbox: rows for this rank's experts; result: the experts'
 * outputs, or the gradients of these outputs; back: the outputs for this rank's tokens */
static float *sorted, *inbox, *result, *back, *sums, *gates;
static uint64_t *splits, *received, *returned, *places;

static void open_way(ceclComm_t used)
{
    const size_t blocks = 2 * MOST_EXPERTS * sizeof(uint64_t);
    comm = used;
    check(ceclCommCount(comm, &nranks));
    room = (size_t)nranks * ROWS + LOCAL * ALIGN;
    sorted = allocate(comm, ROWS * WIDTH);
    inbox = allocate(comm, room * WIDTH);
    result = allocate(comm, room * WIDTH);
    back = allocate(comm, ROWS * WIDTH);
    sums = allocate(comm, TOKENS * WIDTH);
    gates = allocate(comm, ROWS);
    check(ceclMemAlloc(comm, (void **)&splits, blocks));
    check(ceclMemAlloc(comm, (void **)&received, blocks));
    check(ceclMemAlloc(comm, (void **)&returned, blocks));
    check(ceclMemAlloc(comm, (void **)&places, ROWS * sizeof(uint64_t)));
}

/* Counts the rows of each expert, and gives each choice its place among the sorted rows. */
static void sort(const struct routes *routes)
{
    uint64_t next[MOST_EXPERTS] = {0};
    memset(splits, 0, (size_t)nranks * LOCAL * sizeof(*splits));
    for (int i = 0; i < ROWS; i++)
        splits[routes->expert[i / CHOICES][i % CHOICES]]++;
    for (int e = 1; e < nranks * LOCAL; e++)
        next[e] = next[e - 1] + splits[e - 1];
    for (int i = 0; i < ROWS; i++)
        places[i] = next[routes->expert[i / CHOICES][i % CHOICES]]++;
}

/* Where the rows of one of this rank's experts lie in the inbox, and how many there are. */
static size_t rows_of(int expert, size_t *begin)
{
    const uint64_t *counts = &received[expert * nranks],
                   *begins = &received[(LOCAL + expert) * nranks];
    size_t rows = 0;
    for (int from = 0; from < nranks; from++)
        rows += counts[from];
    *begin = begins[0] * WIDTH;
    return rows;
}

static void dispatch(float *to)
{
    check(ceclDispatch(sorted, ROWS, splits, to, room, received, &experts, WIDTH, ceclFloat, comm,
                       NULL));
    check(ceclStreamSynchronize(comm, NULL));
}

static void forward(const struct tokens *tokens, const struct routes *routes, const float *weights,
                    float *outputs)
{
    size_t begin;
    sort(routes);
    for (int i = 0; i < ROWS; i++)
        memcpy(&sorted[places[i] * WIDTH], tokens->x[i / CHOICES], sizeof(tokens->x[0]));
    dispatch(inbox);
    for (int e = 0; e < LOCAL; e++) { /* a grouped GEMM */
        const size_t rows = rows_of(e, &begin);
        expert_forward(&weights[e * WIDTH * WIDTH], &inbox[begin], rows, &result[begin]);
    }
    memcpy(gates, routes->gate, sizeof(routes->gate));
    check(ceclCombine(result, room, received, back, ROWS, returned, &experts, WIDTH, ceclFloat,
                      comm, NULL));
    check(ceclSumRows(back, ROWS, places, gates, sums, TOKENS, CHOICES, WIDTH, ceclFloat, comm,
                      NULL));
    check(ceclStreamSynchronize(comm, NULL));
    memcpy(outputs, sums, TOKENS * WIDTH * sizeof(*sums));
}

/* The gradients of outputs travel as the rows did: in `result` each has the place that its row has in the inbox. */
static void backward(const struct routes *routes, const float *d_outputs, float *d_gates,
                     float *d_weights)
{
    size_t begin;
    for (int i = 0; i < ROWS; i++) {
        const float *d_output = &d_outputs[i / CHOICES * WIDTH];
        d_gates[i] = dot(&back[places[i] * WIDTH], d_output);
        for (int j = 0; j < WIDTH; j++)
            sorted[places[i] * WIDTH + (size_t)j] =
                routes->gate[i / CHOICES][i % CHOICES] * d_output[j];
    }
    dispatch(result);
    for (int e = 0; e < LOCAL; e++) {
        const size_t rows = rows_of(e, &begin);
        expert_backward(&d_weights[e * WIDTH * WIDTH], &inbox[begin], &result[begin], rows);
    }
}

const struct way way_dispatch = {"dispatch", open_way, forward, backward};
