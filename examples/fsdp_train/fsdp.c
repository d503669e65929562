/* What is sharded, and the steps: when each group is gathered and reduced. */
#include "fsdp.h"

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- making a rank's part */

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
    const size_t all = fsdp_shard_elements(f);
    f->parameters = c->alloc(c, 3 * all * sizeof(float));
    f->first = f->parameters + all;
    f->second = f->first + all;
    f->losses = c->alloc(c, LOSSES * sizeof(*f->losses));
    return f->parameters && f->losses;
}

/* Allocates symmetric memory. Collective: all ranks make equal allocations. */
static bool make_buffers(struct fsdp *f)
{
    struct comm *comm = f->comm;
    const size_t element = f->compute->element, shards = fsdp_shard_elements(f);
    size_t largest = 0;
    for (int g = 0; g < group_count(&f->shape); g++) {
        const size_t whole = shard_elements(&f->shape, g) * (size_t)comm->nranks;
        largest = whole > largest ? whole : largest;
    }
    for (int b = 0; b < fsdp_buffers(f); b++)
        if (!comm->alloc(comm, &f->buffers[b], largest * element))
            return false;
    if (!comm->alloc(comm, &f->whole_gradients[0], largest * element) ||
        !comm->alloc(comm, &f->whole_gradients[1], largest * element) ||
        !comm->alloc(comm, &f->gradients, shards * element))
        return false;
    f->compute->zero(f->compute, f->gradients, shards * element);
    return true;
}

static bool make_parameters(struct fsdp *f)
{
    enum { AT_ONCE = 1 << 20 };
    float *values = malloc(AT_ONCE * sizeof(*values));
    for (int g = 0; g < group_count(&f->shape) && values; g++) {
        const size_t count = shard_elements(&f->shape, g), from = (size_t)f->comm->rank * count;
        for (size_t done = 0; done < count; done += AT_ONCE) {
            const size_t n = count - done < AT_ONCE ? count - done : AT_ONCE;
            initial_parameters(&f->shape, f->seed, g, from + done, n, values);
            f->compute->copy(f->compute, f->parameters + f->offset[g] + done, values,
                             n * sizeof(*values));
            if (!f->compute->wait(f->compute)) /* the next round overwrites `values` */
                break;
        }
    }
    free(values);
    return values != NULL && f->compute->wait(f->compute);
}

bool fsdp_open(struct fsdp *f)
{
    /* First each rank makes its private memory, then all ranks make the symmetric memory together. */
    const bool mine = make_shards(f) && model_open(&f->model, &f->shape, f->compute);
    return all_agree(mine) && all_agree(make_buffers(f) && make_parameters(f));
}

void fsdp_close(struct fsdp *f)
{
    (void)f->compute->wait(f->compute);
    model_close(&f->model);
    f->compute->free(f->compute, f->parameters);
    f->compute->free(f->compute, f->losses);
    f->compute->free(f->compute, f->text);
    free(f->offset);
    free(f->buffers);
}

/* ---- parameters: gathered before they are used */

/* A training pass takes the parameters of the groups 0 .. head, then those of the blocks from the
 * last to the first. A position is an index in this sequence. The head's backward pass comes right
 * after its forward pass, and the embedding's backward pass needs no parameters. */
static int pass_length(const struct fsdp *f)
{
    return 2 * group_count(&f->shape) - 2;
}

static int group_at(const struct fsdp *f, int position)
{
    return position < group_count(&f->shape) ? position : pass_length(f) - position;
}

static void *buffer_of(const struct fsdp *f, int position)
{
    return f->buffers[f->comm->once ? group_at(f, position) : position % (f->prefetch + 1)];
}

/* Enqueues the gather for the next position. The compute that still reads that position's buffer is
 * already enqueued, and the lane waits for it, so the host need not wait. The gather is in place:
 * this rank's part is first written to its place in the buffer. */
static bool issue(struct fsdp *f)
{
    const int position = f->issued++, group = group_at(f, position);
    const int lane = position % (f->prefetch + 1);
    const size_t count = shard_elements(&f->shape, group);
    void *whole = buffer_of(f, position);
    char *own = (char *)whole + (size_t)f->comm->rank * count * f->compute->element;
    f->compute->to_elements(f->compute, own, f->parameters + f->offset[group], count);
    return f->alone || comm_start(f->comm, lane, (struct transfer){GATHER, NULL, whole, count});
}

/* Returns the whole parameters of the group at `position`, after it has enqueued the gathers up to
 * `prefetch` positions ahead. The parameters stay valid for prefetch + 1 positions. */
static const void *take(struct fsdp *f, int position)
{
    while (f->issued < pass_length(f) && f->issued <= position + f->prefetch)
        if (!issue(f))
            return NULL;
    const int lane = position % (f->prefetch + 1);
    return comm_await(f->comm, lane) ? buffer_of(f, position) : NULL;
}

/* ---- gradients: reduced during the next group's backward pass
 *
 * Gathers and reductions run one after the other, in the order of their calls (on one communicator
 * they do so on any streams). In the backward pass, position p enqueues
 *
 *    gather of p + prefetch | reduction of p | gather of p + 1 + prefetch | reduction of p + 1 | ...
 *
 * So no gather for the positions up to p + prefetch waits for p's reduction. The gather of p + 1 +
 * prefetch waits for it, but this costs no time: that gather overwrites the parameters that p's
 * backward pass reads, so it cannot begin before p's reduction can. Compute waits for p's reduction
 * at p + 2, which reuses its buffer, and for that gather no earlier: at p + 1 + prefetch. */

static int reduce_lane(const struct fsdp *f, int group)
{
    return f->prefetch + 1 + group % 2;
}

static bool finish_reduce(struct fsdp *f, int group)
{
    if (group >= group_count(&f->shape))
        return true;
    return comm_await(f->comm, reduce_lane(f, group));
}

static void *shard_gradients(const struct fsdp *f, int group)
{
    return (char *)f->gradients + f->offset[group] * f->compute->element;
}

/* Enqueues the reduction of `group`'s gradients, after the compute that fills their buffer. Without
 * prefetch, later compute waits for this reduction. With prefetch it waits for the previous one: the
 * next group's gradients go to the buffer that the previous reduction reads. */
static bool reduce(struct fsdp *f, int group)
{
    const struct transfer sum = {REDUCE_SCATTER, f->whole_gradients[group % 2],
                                 shard_gradients(f, group), shard_elements(&f->shape, group)};
    if (!f->alone && !comm_start(f->comm, reduce_lane(f, group), sum))
        return false;
    return finish_reduce(f, f->prefetch > 0 ? group + 1 : group);
}

/* Returns the buffer to which a group's backward pass writes. Zeroes the padding of the last shard,
 * because no gradient is written to it. */
static void *gradients_of(struct fsdp *f, int group)
{
    void *whole = f->whole_gradients[group % 2];
    const size_t used = group_elements(&f->shape, group);
    const size_t all = shard_elements(&f->shape, group) * (size_t)f->comm->nranks;
    f->compute->zero(f->compute, (char *)whole + used * f->compute->element,
                     (all - used) * f->compute->element);
    return whole;
}

/* ---- a step */

static bool forward_and_back(struct fsdp *f, int loss)
{
    const int layers = f->shape.layers, head = layers + 1;
    const void *parameters = take(f, 0);
    if (parameters)
        model_embed(&f->model, parameters);
    for (int l = 0; l < layers && parameters; l++)
        if ((parameters = take(f, l + 1)))
            model_block(&f->model, l, parameters);
    if (!parameters || !(parameters = take(f, head)))
        return false;
    model_head(&f->model, parameters);
    model_loss(&f->model, f->losses + loss);
    model_head_back(&f->model, parameters, gradients_of(f, head));
    if (!reduce(f, head))
        return false;
    for (int l = layers - 1; l >= 0; l--) {
        if (!(parameters = take(f, pass_length(f) - (l + 1))))
            return false;
        model_block_back(&f->model, l, parameters, gradients_of(f, l + 1));
        if (!reduce(f, l + 1))
            return false;
    }
    model_embed_back(&f->model, gradients_of(f, 0));
    return reduce(f, 0);
}

static struct adam adam_of(int number, float rate)
{
    const double beta1 = 0.9, beta2 = 0.99, n = number + 1.0;
    return (struct adam){.rate = rate,
                         .beta1 = (float)beta1,
                         .beta2 = (float)beta2,
                         .epsilon = 1e-8f,
                         .correction1 = (float)(1 / (1 - pow(beta1, n))),
                         .correction2 = (float)(1 / (1 - pow(beta2, n)))};
}

/* Updates the second half of the groups first, while the last reduction runs, and then the first
 * half. Once one of the first prefetch + 1 groups is updated, its gather for the next step is
 * enqueued, and runs during the rest of the update. */
static bool update(struct fsdp *f, int number, float rate, bool last)
{
    const int groups = group_count(&f->shape);
    const struct adam adam = adam_of(number, rate);
    f->issued = 0;
    for (int i = 0; i < groups; i++) {
        const int g = (i + groups / 2) % groups;
        if (g == 0 && f->prefetch > 0 && !finish_reduce(f, 0))
            return false;
        f->compute->adam(f->compute, f->parameters + f->offset[g], f->first + f->offset[g],
                         f->second + f->offset[g], shard_gradients(f, g),
                         shard_elements(&f->shape, g), &adam);
        if (f->prefetch > 0 && !last && g == f->issued && g <= f->prefetch && !issue(f))
            return false;
    }
    return true;
}

bool fsdp_step(struct fsdp *f, int number, float rate, bool last)
{
    const uint64_t batch = (uint64_t)f->shape.batch;
    const uint64_t first = (uint64_t)number * (uint64_t)f->comm->nranks + (uint64_t)f->comm->rank;
    f->compute->batch(f->compute, f->model.tokens, f->text, f->text_bytes, f->seed, first * batch,
                      f->model.dims);
    if (!forward_and_back(f, number % LOSSES) || !update(f, number, rate, last))
        return false;
    f->alone = f->comm->once;
    return true;
}

bool fsdp_losses(struct fsdp *f, double *means, int count)
{
    f->compute->copy(f->compute, means, f->losses, (size_t)count * sizeof(*means));
    if (!f->compute->wait(f->compute) || !f->comm->healthy(f->comm))
        return false;
    MPI_Allreduce(MPI_IN_PLACE, means, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++)
        means[i] /= f->comm->nranks;
    return true;
}
