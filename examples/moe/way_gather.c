/* All ranks gather all tokens, and each selects the rows of its experts. A reduce-scatter adds the
 * outputs of each token, and leaves the sum on the token's rank. By the default policy gathers take no SM.
 * docs/experts.md says when this is better than ceclDispatch. */
#include "moe.h"

#include <string.h>

static ceclComm_t comm;
static int rank, nranks;
/* of all ranks, in rank order: the tokens, the gradients of their outputs, and their routes */
static float *all_x, *all_d;
static struct routes *all_routes;
/* for the tokens of all ranks: outputs of this rank's experts, and gradients of these experts' gates */
static float *outputs_of_mine, *d_gates_of_mine, *reduced;
static const float *weights_used; /* by the forward pass */

static void open_way(ceclComm_t used)
{
    comm = used;
    check(ceclCommUserRank(comm, &rank));
    check(ceclCommCount(comm, &nranks));
    all_x = allocate(comm, (size_t)nranks * TOKENS * WIDTH);
    all_d = allocate(comm, (size_t)nranks * TOKENS * WIDTH);
    outputs_of_mine = allocate(comm, (size_t)nranks * TOKENS * WIDTH);
    d_gates_of_mine = allocate(comm, (size_t)nranks * TOKENS * CHOICES);
    reduced = allocate(comm, TOKENS * WIDTH);
    check(ceclMemAlloc(comm, (void **)&all_routes, (size_t)nranks * sizeof(*all_routes)));
}

/* The number of the chosen expert among this rank's experts; -1: another rank has that expert. */
static int mine(int token, int choice)
{
    const int expert =
        (int)all_routes[token / TOKENS].expert[token % TOKENS][choice] - rank * LOCAL;
    return expert >= 0 && expert < LOCAL ? expert : -1;
}

static float gate_of(int token, int choice)
{
    return all_routes[token / TOKENS].gate[token % TOKENS][choice];
}

static void forward(const struct tokens *tokens, const struct routes *routes, const float *weights,
                    float *outputs)
{
    const size_t count = TOKENS * WIDTH;
    float *own = &all_x[(size_t)rank * count], row[WIDTH];
    weights_used = weights;
    memcpy(own, tokens->x, sizeof(tokens->x));
    all_routes[rank] = *routes;
    check(ceclGroupStart());
    check(ceclAllGather(own, all_x, count, ceclFloat, comm, NULL));
    check(ceclAllGather(&all_routes[rank], all_routes, sizeof(*routes), ceclUint8, comm, NULL));
    check(ceclGroupEnd());
    check(ceclStreamSynchronize(comm, NULL));
    memset(outputs_of_mine, 0, (size_t)nranks * count * sizeof(float));
    for (int i = 0; i < nranks * TOKENS * CHOICES; i++) {
        const int t = i / CHOICES, expert = mine(t, i % CHOICES);
        if (expert < 0)
            continue;
        expert_forward(&weights[expert * WIDTH * WIDTH], &all_x[t * WIDTH], 1, row);
        for (int j = 0; j < WIDTH; j++)
            outputs_of_mine[t * WIDTH + j] += gate_of(t, i % CHOICES) * row[j];
    }
    check(ceclReduceScatter(outputs_of_mine, reduced, count, ceclFloat, ceclSum, comm, NULL));
    check(ceclStreamSynchronize(comm, NULL));
    memcpy(outputs, reduced, count * sizeof(float));
}

static void backward(const struct routes *routes, const float *d_outputs, float *d_gates,
                     float *d_weights)
{
    const size_t count = TOKENS * WIDTH;
    float *own = &all_d[(size_t)rank * count], row[WIDTH];
    (void)routes; /* all_routes has them, since the forward pass */
    memcpy(own, d_outputs, count * sizeof(float));
    check(ceclAllGather(own, all_d, count, ceclFloat, comm, NULL));
    check(ceclStreamSynchronize(comm, NULL));
    memset(d_gates_of_mine, 0, (size_t)nranks * TOKENS * CHOICES * sizeof(float));
    for (int i = 0; i < nranks * TOKENS * CHOICES; i++) {
        const int t = i / CHOICES, expert = mine(t, i % CHOICES);
        if (expert < 0)
            continue;
        expert_forward(&weights_used[expert * WIDTH * WIDTH], &all_x[t * WIDTH], 1, row);
        d_gates_of_mine[i] = dot(row, &all_d[t * WIDTH]);
        for (int j = 0; j < WIDTH; j++)
            row[j] = gate_of(t, i % CHOICES) * all_d[t * WIDTH + j];
        expert_backward(&d_weights[expert * WIDTH * WIDTH], &all_x[t * WIDTH], row, 1);
    }
    check(ceclReduceScatter(d_gates_of_mine, reduced, TOKENS * CHOICES, ceclFloat, ceclSum, comm,
                            NULL));
    check(ceclStreamSynchronize(comm, NULL));
    memcpy(d_gates, reduced, TOKENS * CHOICES * sizeof(float));
}

const struct way way_gather = {"gather", open_way, forward, backward};
