/* Checks the backward pass against finite differences, on a tiny network. The test moves each
 * tensor's parameters p along the tensor's gradient g: (loss(p + h g) - loss(p - h g)) / 2h must be
 * |g|^2 times the number of ranks. (The test runs one rank of several, and g is only that rank's part
 * of the mean over all ranks.) The test misses an error of g only if the error is orthogonal to the
 * true gradient. The exit code is 1 if a gradient is wrong. */
#include <math.h>
#include <stdio.h>

#include "model.h"

enum { GROUPS = 4 };
static const struct shape shape = {
    .layers = GROUPS - 2, .width = 16, .heads = 2, .sequence = 8, .batch = 2, .nranks = 4};

static float parameters[GROUPS][5000], gradients[GROUPS][5000]; /* the largest group has 4224 */

static void fill(struct model *m)
{
    for (int g = 0; g < GROUPS; g++) {
        const size_t count = group_elements(&shape, g);
        initial_parameters(&shape, 7, g, 0, count, parameters[g]);
        /* larger values than in training, so that rounding hides no gradient; no gain is exactly 1, and
         * no bias 0 */
        for (size_t i = 0; i < count; i++)
            parameters[g][i] = 2 * parameters[g][i] + 0.1f * (float)(scramble(i + 1) % 1000) / 1000;
    }
    for (int i = 0; i < shape.batch * (shape.sequence + 1); i++)
        m->tokens[i] = (unsigned char)(scramble((uint64_t)i) % 5); /* some symbols occur twice */
}

static double loss_of(struct model *m)
{
    double loss;
    model_embed(m, parameters[0]);
    for (int l = 0; l < shape.layers; l++)
        model_block(m, l, parameters[l + 1]);
    model_head(m, parameters[GROUPS - 1]);
    model_loss(m, &loss);
    return loss;
}

static void backward(struct model *m)
{
    model_head_back(m, parameters[GROUPS - 1], gradients[GROUPS - 1]);
    for (int l = shape.layers - 1; l >= 0; l--)
        model_block_back(m, l, parameters[l + 1], gradients[l + 1]);
    model_embed_back(m, gradients[0]);
}

static double loss_along(struct model *m, int group, size_t from, size_t to, double h)
{
    for (size_t i = from; i < to; i++)
        parameters[group][i] += (float)(h * (double)gradients[group][i]);
    return loss_of(m);
}

static int check_tensor(struct model *m, int group, int tensor)
{
    const size_t from = tensor_offset(&shape, group, tensor);
    const size_t to = tensor_offset(&shape, group, tensor + 1);
    double square = 0;
    for (size_t i = from; i < to; i++)
        square += (double)gradients[group][i] * (double)gradients[group][i];
    const double h = 0.004 / sqrt(square), above = loss_along(m, group, from, to, h);
    const double below = loss_along(m, group, from, to, -2 * h);
    (void)loss_along(m, group, from, to, h); /* back to the first values */
    const double found = (above - below) / (2 * h), expected = shape.nranks * square;
    const bool fine = fabs(found - expected) <= 0.003 * expected; /* false for nan */
    printf("group %d, tensor %d: %.4e, by finite differences %.4e%s\n", group, tensor, expected,
           found, fine ? "" : "  WRONG");
    return fine ? 0 : 1;
}

int main(void)
{
    struct compute compute = compute_host;
    struct model m;
    int wrong = 0;
    if (!compute.open(&compute, -1, 1, 1) || !model_open(&m, &shape, &compute))
        return 1;
    fill(&m);
    printf("loss %.6f, width %d, %d blocks\n", loss_of(&m), shape.width, shape.layers);
    backward(&m);
    backward(&m); /* twice: gradients must not depend on what the first run left in memory */
    for (int g = 0; g < GROUPS; g++)
        for (int t = 0; tensor_offset(&shape, g, t) < group_elements(&shape, g); t++)
            wrong += check_tensor(&m, g, t);
    model_close(&m);
    compute.close(&compute);
    return wrong ? 1 : 0;
}
