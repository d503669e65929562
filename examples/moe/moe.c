/* Trains a layer of experts on tokens of four kinds. It should learn a matrix for each kind.
 *
 *     mpirun -n 4 example_moe [--way dispatch|gather] [--steps N]
 *
 * Each rank also trains the whole layer alone, with the tokens of all ranks and all experts. The exit code is 3
 * if a bit of the losses or parameters differs, 4 if the loss did not fall to a quarter. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "moe.h"

#define KINDS 4
#define RATE 2.0f
#define MATRIX (WIDTH * WIDTH)

static ceclComm_t comm;
static int rank, nranks, experts;

float *allocate(ceclComm_t used, size_t numbers)
{
    float *memory = NULL;
    check(ceclMemAlloc(used, (void **)&memory, numbers * sizeof(*memory)));
    return memory;
}

/* ---- tokens and parameters: random numbers that are equal on all ranks */

static float draw(uint64_t *x)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return (float)(*x >> 40) / (float)(1 << 23) - 1;
}

static void draw_tokens(int of_rank, struct tokens *tokens)
{
    float center[KINDS][WIDTH], teacher[KINDS][MATRIX];
    uint64_t x = 7, own = 1000 + (uint64_t)of_rank;
    for (int i = 0; i < KINDS * WIDTH; i++)
        center[i / WIDTH][i % WIDTH] = draw(&x);
    for (int i = 0; i < KINDS * MATRIX; i++)
        teacher[i / MATRIX][i % MATRIX] = draw(&x);
    for (int t = 0; t < TOKENS; t++) {
        for (int i = 0; i < WIDTH; i++)
            tokens->x[t][i] = center[t % KINDS][i] + 0.3f * draw(&own);
        expert_forward(teacher[t % KINDS], tokens->x[t], 1, tokens->wanted[t]);
    }
}

struct layer {
    float router[WIDTH * MOST_EXPERTS];
    float weights[MOST_EXPERTS][MATRIX]; /* of all experts; this rank trains only its own */
};

static void draw_layer(struct layer *layer)
{
    uint64_t x = 11;
    for (int i = 0; i < WIDTH * experts; i++)
        layer->router[i] = 0.3f * draw(&x);
    for (int i = 0; i < experts * MATRIX; i++)
        layer->weights[i / MATRIX][i % MATRIX] = 0.3f * draw(&x);
}

static void descend(float *parameters, const float *gradients, int count)
{
    for (int i = 0; i < count; i++)
        parameters[i] -= RATE * gradients[i];
}

/* ---- a step of all ranks together */

static float *d_router, *losses; /* symmetric: they are reduced over all ranks */

static float step(const struct way *way, struct layer *layer, const struct tokens *tokens)
{
    static struct routes routes;
    static float outputs[TOKENS * WIDTH], d_outputs[TOKENS * WIDTH], d_gates[TOKENS * CHOICES],
        d_weights[LOCAL * MATRIX];
    float *weights = layer->weights[rank * LOCAL];
    route(layer->router, experts, tokens, &routes);
    way->forward(tokens, &routes, weights, outputs);
    losses[0] = loss_of(tokens, outputs, nranks * TOKENS, d_outputs);
    memset(d_weights, 0, sizeof(d_weights));
    memset(d_router, 0, (size_t)(WIDTH * experts) * sizeof(float));
    way->backward(&routes, d_outputs, d_gates, d_weights);
    route_backward(d_router, experts, tokens, &routes, d_gates);
    check(ceclAllReduce(d_router, d_router, (size_t)(WIDTH * experts), ceclFloat, ceclSum, comm,
                        NULL));
    check(ceclAllReduce(losses, losses, 1, ceclFloat, ceclSum, comm, NULL));
    check(ceclStreamSynchronize(comm, NULL));
    descend(layer->router, d_router, WIDTH * experts);
    descend(weights, d_weights, LOCAL * MATRIX); /* no other rank has gradients of these experts */
    return losses[0];
}

/* ---- the same step on one rank */

/* Forward and backward pass of one rank's tokens. Adds to all gradients; returns that rank's part of the loss. */
static float pass(const struct layer *layer, const struct tokens *tokens, float *d_of_router,
                  float d_weights[MOST_EXPERTS][MATRIX])
{
    static struct routes routes;
    static float rows[TOKENS][CHOICES][WIDTH], outputs[TOKENS * WIDTH], d_outputs[TOKENS * WIDTH],
        d_gates[TOKENS * CHOICES];
    float d_row[WIDTH];
    route(layer->router, experts, tokens, &routes);
    memset(outputs, 0, sizeof(outputs));
    for (int i = 0; i < TOKENS * CHOICES; i++) {
        const int t = i / CHOICES, c = i % CHOICES;
        expert_forward(layer->weights[routes.expert[t][c]], tokens->x[t], 1, rows[t][c]);
        for (int j = 0; j < WIDTH; j++)
            outputs[t * WIDTH + j] += routes.gate[t][c] * rows[t][c][j];
    }
    const float loss = loss_of(tokens, outputs, nranks * TOKENS, d_outputs);
    for (int i = 0; i < TOKENS * CHOICES; i++) {
        const int t = i / CHOICES, c = i % CHOICES;
        d_gates[i] = dot(rows[t][c], &d_outputs[t * WIDTH]);
        for (int j = 0; j < WIDTH; j++)
            d_row[j] = routes.gate[t][c] * d_outputs[t * WIDTH + j];
        expert_backward(d_weights[routes.expert[t][c]], tokens->x[t], d_row, 1);
    }
    route_backward(d_of_router, experts, tokens, &routes, d_gates);
    return loss;
}

static float step_alone(struct layer *layer, const struct tokens *all)
{
    static float sum[WIDTH * MOST_EXPERTS], part[WIDTH * MOST_EXPERTS],
        d_weights[MOST_EXPERTS][MATRIX];
    float loss = 0;
    memset(sum, 0, sizeof(sum));
    memset(d_weights, 0, sizeof(d_weights));
    for (int r = 0; r < nranks; r++) {
        memset(part, 0, sizeof(part));
        loss += pass(layer, &all[r], part, d_weights);
        for (int i = 0; i < WIDTH * experts; i++)
            sum[i] += part[i];
    }
    descend(layer->router, sum, WIDTH * experts);
    descend(layer->weights[0], d_weights[0], experts * MATRIX);
    return loss;
}

/* ---- */

static void read_options(int argc, char **argv, const struct way **way, int *steps)
{
    for (int i = 1; i + 1 < argc; i += 2)
        if (strcmp(argv[i], "--way") == 0 && strcmp(argv[i + 1], way_gather.name) == 0)
            *way = &way_gather;
        else if (strcmp(argv[i], "--steps") == 0)
            *steps = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--way") != 0 || strcmp(argv[i + 1], way_dispatch.name) != 0)
            argc = 2;
    if (argc % 2 == 1 && *steps > 0)
        return;
    fprintf(stderr, "usage: example_moe [--way dispatch|gather] [--steps N]\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
}

/* The policy lets SMs move rows. The ranks run on the host device, because the loops run on the host. */
static void open_communicator(void)
{
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    config.device = CECL_DEVICE_HOST;
    config.smPolicy = CECL_SM_ALLOW;
    check(ceclCommInitMpi(&comm, MPI_COMM_WORLD, &config));
    check(ceclCommUserRank(comm, &rank));
    check(ceclCommCount(comm, &nranks));
    if (nranks > MOST_RANKS) {
        fprintf(stderr, "%d ranks: %d at most\n", nranks, MOST_RANKS);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    experts = nranks * LOCAL;
    d_router = allocate(comm, WIDTH * MOST_EXPERTS);
    losses = allocate(comm, 1);
}

int main(int argc, char **argv)
{
    static struct layer layer, alone;
    static struct tokens all[MOST_RANKS];
    const struct way *way = &way_dispatch;
    int steps = 150;
    float loss = 0, first = 0;
    bool same = true;
    MPI_Init(&argc, &argv);
    read_options(argc, argv, &way, &steps);
    open_communicator();
    way->open(comm);
    draw_layer(&layer);
    alone = layer;
    for (int r = 0; r < nranks; r++)
        draw_tokens(r, &all[r]);
    for (int s = 0; s < steps; s++) {
        loss = step(way, &layer, &all[rank]);
        same = loss == step_alone(&alone, all) && same;
        first = s == 0 ? loss : first;
        if (rank == 0 && (s % 30 == 0 || s == steps - 1))
            printf("step %3d: loss %.4f\n", s, (double)loss);
    }
    same = same && memcmp(layer.router, alone.router, sizeof(layer.router)) == 0 &&
           memcmp(layer.weights[rank * LOCAL], alone.weights[rank * LOCAL],
                  LOCAL * sizeof(layer.weights[0])) == 0;
    printf("rank %d of %d, %s: as one rank with all experts, bit for bit: %s\n", rank, nranks,
           way->name, same ? "yes" : "no");
    check(ceclCommDestroy(comm));
    MPI_Finalize();
    return !same ? 3 : loss <= first / 4 ? 0 : 4;
}
