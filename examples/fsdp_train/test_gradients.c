/* Checks the backward pass against finite differences, in double, on a tiny network. For parameters
 * of every tensor of every group, (loss(p + h) - loss(p - h)) / 2h must be the gradient times the
 * number of ranks, because each rank computes its part of the mean over all ranks. The test runs
 * one rank of a training of several. The exit code is 1 where they differ. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host_matmul.h"
#include "model.h"
#include "random.h"

enum { GROUPS = 4, TRIED = 6 }; /* TRIED: how many parameters of each tensor are tried */
static const struct shape shape = {
    .layers = GROUPS - 2, .width = 16, .heads = 2, .sequence = 8, .batch = 2, .nranks = 4};
static const double step = 1e-5, tolerance = 1e-6;

struct setup {
    struct compute compute;
    struct model model;
    real *parameters[GROUPS], *gradients[GROUPS];
};

static bool setup_open(struct setup *s)
{
    s->compute = compute_host;
    if (!s->compute.open(&s->compute, -1, 1, 1) || !model_open(&s->model, &shape, &s->compute))
        return false;
    for (int g = 0; g < GROUPS; g++) {
        const size_t count = group_elements(&shape, g);
        float *first = calloc(count, sizeof(*first));
        s->parameters[g] = calloc(count, sizeof(real));
        s->gradients[g] = calloc(count, sizeof(real));
        if (!first || !s->parameters[g] || !s->gradients[g])
            return false;
        initial_parameters(&shape, 7, g, 0, count, first);
        /* Values are larger than in training, because a gradient that is lost in rounding proves
         * nothing. No gain is exactly 1, and no bias is 0. */
        for (size_t i = 0; i < count; i++)
            s->parameters[g][i] = 2 * (real)first[i] + 0.1 * (real)(scramble(i + 1) % 1000) / 1000;
        free(first);
    }
    for (int i = 0; i < shape.batch * (shape.sequence + 1); i++)
        /* some symbols occur twice */
        s->model.tokens[i] = (unsigned char)(scramble((uint64_t)i) % 5);
    return true;
}

static void setup_close(struct setup *s)
{
    for (int g = 0; g < GROUPS; g++) {
        free(s->parameters[g]);
        free(s->gradients[g]);
    }
    model_close(&s->model);
    s->compute.close(&s->compute);
}

static double loss_of(struct setup *s)
{
    double loss = 0;
    model_embed(&s->model, s->parameters[0]);
    for (int l = 0; l < shape.layers; l++)
        model_block(&s->model, l, s->parameters[l + 1]);
    model_head(&s->model, s->parameters[GROUPS - 1]);
    model_loss(&s->model, &loss);
    return loss;
}

static void backward(struct setup *s)
{
    model_head_back(&s->model, s->parameters[GROUPS - 1], s->gradients[GROUPS - 1]);
    for (int l = shape.layers - 1; l >= 0; l--)
        model_block_back(&s->model, l, s->parameters[l + 1], s->gradients[l + 1]);
    model_embed_back(&s->model, s->gradients[0]);
}

/* The gradient by finite differences, for parameter `index` of a group. */
static double difference(struct setup *s, int group, size_t index)
{
    real *p = &s->parameters[group][index], kept = *p;
    *p = kept + step;
    const double above = loss_of(s);
    *p = kept - step;
    const double below = loss_of(s);
    *p = kept;
    return (above - below) / (2 * step);
}

/* Tries parameters of one tensor: the first, which belongs to a symbol that occurs, and others. */
static int check_tensor(struct setup *s, int group, int tensor, const char *name)
{
    const size_t from = tensor_offset(&shape, group, tensor);
    const size_t count = tensor_offset(&shape, group, tensor + 1) - from;
    double worst = 0, largest = 0;
    for (int n = 0; n < TRIED; n++) {
        /* half of them are among the first 64: rows of symbols that occur in the text */
        const size_t room = n % 2 && count > 64 ? 64 : count;
        const size_t index = from + scramble((uint64_t)n + 100 * (uint64_t)tensor) % room;
        const double expected = difference(s, group, index);
        const double error = fabs(shape.nranks * (double)s->gradients[group][index] - expected);
        worst = fmax(worst, error);
        largest = fmax(largest, fabs(expected));
    }
    const bool fine = worst <= tolerance * largest + 1e-10 && largest > 1e-7;
    printf("group %d %-8s largest gradient %.3e, largest error %.1e%s\n", group, name, largest,
           worst, fine ? "" : "  WRONG");
    return fine ? 0 : 1;
}

int main(void)
{
    static const char *const embed[] = {"table", "places"}, *const head[] = {"out", "gain", "bias"};
    static const char *const block[] = {"qkv",   "out",   "up",    "down",
                                        "gain1", "bias1", "gain2", "bias2"};
    struct setup s = {0};
    int wrong = 0;
    if (!setup_open(&s))
        return 1;
    const double loss = loss_of(&s);
    backward(&s);
    backward(&s); /* the second run must not depend on what the first left behind */
    printf("loss %.6f, width %d, %d blocks\n", loss, shape.width, shape.layers);
    for (int g = 0; g < GROUPS; g++) {
        const int tensors = g == 0 ? EMBED_TENSORS : g < GROUPS - 1 ? BLOCK_TENSORS : HEAD_TENSORS;
        for (int t = 0; t < tensors; t++)
            wrong += check_tensor(&s, g, t, (g == 0 ? embed : g < GROUPS - 1 ? block : head)[t]);
    }
    setup_close(&s);
    return wrong ? 1 : 0;
}
