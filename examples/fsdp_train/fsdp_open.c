/* Makes a rank's part of the training: shards, buffers, the first parameters. */
#include <stdio.h>
#include <stdlib.h>

#include "fsdp.h"

size_t fsdp_shard_elements(const struct fsdp *f)
{
    return f->offset[group_count(&f->shape)];
}

static bool make_shards(struct fsdp *f)
{
    struct compute *c = f->compute;
    const int groups = group_count(&f->shape);
    f->offset = calloc((size_t)groups + 1, sizeof(*f->offset));
    f->buffers = calloc((size_t)fsdp_buffers(f), sizeof(*f->buffers));
    if (!f->offset || !f->buffers) {
        fprintf(stderr, "fsdp_train: no memory for the tables of %d groups\n", groups);
        return false;
    }
    for (int g = 0; g < groups; g++)
        f->offset[g + 1] = f->offset[g] + shard_elements(&f->shape, g);
    const size_t bytes = fsdp_shard_elements(f) * sizeof(float);
    f->parameters = c->alloc(c, bytes);
    f->first = c->alloc(c, bytes);
    f->second = c->alloc(c, bytes);
    return f->parameters && f->first && f->second;
}

/* Symmetric memory: all ranks must call this, and make the same calls in it. */
static bool make_buffers(struct fsdp *f)
{
    struct comm *comm = f->comm;
    const size_t element = f->compute->element, shards = fsdp_shard_elements(f);
    size_t largest = 0;
    for (int g = 0; g < group_count(&f->shape); g++) {
        const size_t whole = shard_elements(&f->shape, g) * (size_t)comm->nranks;
        largest = whole > largest ? whole : largest;
    }
    void *memory[2] = {NULL, NULL}, *gradients = NULL, *losses = NULL;
    if (!comm->prepare(comm, fsdp_lanes(f->prefetch)))
        return false;
    for (int b = 0; b < fsdp_buffers(f); b++) {
        if (!comm->alloc(comm, &memory[0], largest * element))
            return false;
        f->buffers[b] = memory[0];
    }
    for (int b = 0; b < 2; b++) {
        if (!comm->alloc(comm, &memory[b], largest * element))
            return false;
        f->whole_gradients[b] = memory[b];
    }
    if (!comm->alloc(comm, &gradients, shards * element) ||
        !comm->alloc(comm, &losses, LOSSES * sizeof(double)))
        return false;
    f->gradients = gradients;
    f->losses = losses;
    f->compute->zero(f->compute, gradients, shards);
    return true;
}

static bool make_parameters(struct fsdp *f, uint64_t seed)
{
    enum { AT_ONCE = 1 << 20 };
    float *values = malloc(AT_ONCE * sizeof(*values));
    for (int g = 0; g < group_count(&f->shape) && values; g++) {
        const size_t count = shard_elements(&f->shape, g), from = (size_t)f->comm->rank * count;
        for (size_t done = 0; done < count; done += AT_ONCE) {
            const size_t n = count - done < AT_ONCE ? count - done : AT_ONCE;
            initial_parameters(&f->shape, seed, g, from + done, n, values);
            f->compute->write(f->compute, f->parameters + f->offset[g] + done, values,
                              n * sizeof(*values));
        }
    }
    free(values);
    return values != NULL && f->compute->wait(f->compute);
}

bool fsdp_open(struct fsdp *f, const struct shape *shape, struct compute *compute,
               struct comm *comm, int prefetch, uint64_t seed)
{
    *f = (struct fsdp){.shape = *shape, .compute = compute, .comm = comm, .prefetch = prefetch};
    /* Every rank first makes what it needs for itself. Then all make what they share. */
    const bool mine = make_shards(f) && model_open(&f->model, &f->shape, compute);
    return all_agree(mine) && make_buffers(f) && make_parameters(f, seed);
}

void fsdp_close(struct fsdp *f)
{
    if (!f->compute)
        return;
    (void)f->compute->wait(f->compute);
    model_close(&f->model);
    f->compute->free(f->compute, f->parameters);
    f->compute->free(f->compute, f->first);
    f->compute->free(f->compute, f->second);
    free(f->offset);
    free(f->buffers);
    *f = (struct fsdp){0};
}
