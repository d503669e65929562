/* Compares the GPU's operations with the host's. With the same parameters and text, each side makes
 * a forward and a backward pass, then steps of Adam. Rounding to bfloat16 changes the gradients by
 * 0.5 % (measured with the host's operations, rounded). A wrong formula changes them by much more.
 * The exit code is 1 where they differ. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../bfloat16.h"
#include "model.h"
#include "random.h"

enum { GROUPS = 4 };
/* The sequence is longer than a block of threads, and the width is not a multiple of a block. */
static const struct shape shape = {
    .layers = GROUPS - 2, .width = 320, .heads = 5, .sequence = 300, .batch = 3, .nranks = 1};

struct side {
    struct compute compute;
    struct model model;
    void *parameters[GROUPS], *gradients[GROUPS];
    double loss;
    float *back[GROUPS]; /* gradients on the host */
};

/* Rounds a float to a value of bfloat16, so that both sides have the same parameters. */
static float coarse(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    bits = (bits + 0x8000u) & 0xffff0000u;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Reads elements and converts them to floats. */
static bool read_elements(struct side *s, float *out, const void *src, size_t count)
{
    if (s->compute.element == sizeof(float))
        return s->compute.read(&s->compute, out, src, count * sizeof(*out));
    uint16_t *raw = malloc(count * sizeof(*raw));
    const bool fine = raw && s->compute.read(&s->compute, raw, src, count * sizeof(*raw));
    for (size_t i = 0; i < count && fine; i++)
        out[i] = widen(raw[i]);
    free(raw);
    return fine;
}

static bool fill(struct side *s, int group)
{
    /* one rank has the whole group, with padding */
    const size_t count = shard_elements(&shape, group);
    float *values = malloc(count * sizeof(*values));
    float *wide = s->compute.alloc(&s->compute, count * sizeof(*wide));
    s->parameters[group] = s->compute.alloc(&s->compute, count * s->compute.element);
    s->gradients[group] = s->compute.alloc(&s->compute, count * s->compute.element);
    s->back[group] = malloc(count * sizeof(float));
    if (!values || !wide || !s->parameters[group] || !s->gradients[group] || !s->back[group])
        return false;
    initial_parameters(&shape, 3, group, 0, count, values);
    for (size_t i = 0; i < count; i++)
        values[i] = coarse(values[i]);
    s->compute.write(&s->compute, wide, values, count * sizeof(*values));
    s->compute.to_elements(&s->compute, s->parameters[group], wide, count);
    const bool fine = s->compute.wait(&s->compute);
    s->compute.free(&s->compute, wide);
    free(values);
    return fine;
}

static bool there_and_back(struct side *s)
{
    enum { TEXT = 2000 };
    unsigned char text[TEXT];
    struct compute *c = &s->compute;
    unsigned char *device_text = c->alloc(c, TEXT);
    double *loss = c->alloc(c, sizeof(*loss));
    if (!device_text || !loss)
        return false;
    for (size_t i = 0; i < TEXT; i++)
        text[i] = (unsigned char)(scramble(i) % 60 + 40);
    c->write(c, device_text, text, TEXT);
    c->batch(c, s->model.tokens, device_text, TEXT, 5, 7, s->model.dims);
    model_embed(&s->model, s->parameters[0]);
    for (int l = 0; l < shape.layers; l++)
        model_block(&s->model, l, s->parameters[l + 1]);
    model_head(&s->model, s->parameters[GROUPS - 1]);
    model_loss(&s->model, loss);
    model_head_back(&s->model, s->parameters[GROUPS - 1], s->gradients[GROUPS - 1]);
    for (int l = shape.layers - 1; l >= 0; l--)
        model_block_back(&s->model, l, s->parameters[l + 1], s->gradients[l + 1]);
    model_embed_back(&s->model, s->gradients[0]);
    bool fine = c->read(c, &s->loss, loss, sizeof(*loss));
    for (int g = 0; g < GROUPS && fine; g++)
        fine = read_elements(s, s->back[g], s->gradients[g], group_elements(&shape, g));
    c->free(c, device_text);
    c->free(c, loss);
    return fine;
}

static bool run(struct side *s, const struct compute *compute)
{
    s->compute = *compute;
    bool fine = s->compute.open(&s->compute, 0, 1, 1) && model_open(&s->model, &shape, &s->compute);
    for (int g = 0; g < GROUPS && fine; g++)
        fine = fill(s, g);
    return fine && there_and_back(s);
}

/* |a - b| / |b| of vectors */
static double distance(const float *a, const float *b, size_t count)
{
    double difference = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)b[i] * b[i];
    }
    return sqrt(difference / (size > 0 ? size : 1));
}

static int check(const char *what, double distance, double most)
{
    const bool fine = distance <= most; /* false for nan */
    printf("%-24s differs by %.4f%s\n", what, distance, fine ? "" : "  WRONG");
    return fine ? 0 : 1;
}

static int check_gradients(const struct side *gpu, const struct side *host)
{
    int wrong = 0;
    for (int g = 0; g < GROUPS; g++) {
        const int tensors = g == 0 ? EMBED_TENSORS : g < GROUPS - 1 ? BLOCK_TENSORS : HEAD_TENSORS;
        for (int t = 0; t < tensors; t++) {
            const size_t from = tensor_offset(&shape, g, t);
            const size_t to =
                t + 1 < tensors ? tensor_offset(&shape, g, t + 1) : group_elements(&shape, g);
            char what[64];
            snprintf(what, sizeof(what), "group %d, tensor %d", g, t);
            wrong +=
                check(what, distance(gpu->back[g] + from, host->back[g] + from, to - from), 0.02);
        }
    }
    return wrong;
}

/* Two steps of Adam, from parameters of zero. */
static bool update(struct side *s, float *parameters, size_t count)
{
    struct compute *c = &s->compute;
    const struct adam adam = {0.01f, 0.9f, 0.99f, 1e-8f, 10, 100};
    float *values = malloc(count * sizeof(*values));
    float *wide = c->alloc(c, count * sizeof(*wide));
    void *gradients = c->alloc(c, count * c->element);
    float *first = c->alloc(c, count * sizeof(*first)),
          *second = c->alloc(c, count * sizeof(*first));
    float *p = c->alloc(c, count * sizeof(*p));
    if (!values || !wide || !gradients || !first || !second || !p)
        return false;
    for (size_t i = 0; i < count; i++)
        values[i] = coarse((float)(scramble(i) % 2001) / 1000 - 1);
    c->write(c, wide, values, count * sizeof(*values));
    c->to_elements(c, gradients, wide, count);
    c->adam(c, p, first, second, gradients, count, &adam);
    c->adam(c, p, first, second, gradients, count, &adam);
    const bool fine = c->read(c, parameters, p, count * sizeof(*p));
    void *const all[] = {wide, gradients, first, second, p};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        c->free(c, all[i]);
    free(values);
    return fine;
}

static int check_update(struct side *gpu, struct side *host)
{
    enum { COUNT = 128 * 37 };
    static float parameters[2][COUNT];
    if (!update(gpu, parameters[0], COUNT) || !update(host, parameters[1], COUNT))
        return 1;
    return check("Adam", distance(parameters[0], parameters[1], COUNT), 0.01);
}

static void end(struct side *s)
{
    for (int g = 0; g < GROUPS; g++) {
        s->compute.free(&s->compute, s->parameters[g]);
        s->compute.free(&s->compute, s->gradients[g]);
        free(s->back[g]);
    }
    model_close(&s->model);
    s->compute.close(&s->compute);
}

int main(void)
{
    struct side host = {.loss = 0}, gpu = {.loss = 0};
    if (!run(&host, &compute_host) || !run(&gpu, compute_cuda()))
        return 1;
    printf("loss: GPU %.5f, host %.5f\n", gpu.loss, host.loss);
    int wrong = check("loss", fabs(gpu.loss - host.loss) / host.loss, 0.01);
    wrong += check_gradients(&gpu, &host);
    wrong += check_update(&gpu, &host);
    end(&gpu);
    end(&host);
    return wrong ? 1 : 0;
}
