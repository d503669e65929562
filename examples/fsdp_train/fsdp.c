/* The steps: when each group is gathered and reduced. */
#include "fsdp.h"

#include <math.h>

static char *shard_gradients(const struct fsdp *f, int group)
{
    return f->gradients + f->offset[group] * f->compute->element;
}

/* ---- parameters: gathered before they are used */

/* A training pass uses the groups 0 .. head, then the blocks from the last to the first. The head's
 * backward pass follows its forward pass at once, and the backward pass of the embedding needs no
 * parameters. */
static int pass_length(const struct fsdp *f, bool back)
{
    const int groups = group_count(&f->shape);
    return back ? 2 * groups - 2 : groups;
}

static int group_at(const struct fsdp *f, int position)
{
    const int groups = group_count(&f->shape);
    return position < groups ? position : 2 * groups - 2 - position;
}

static char *buffer_of(const struct fsdp *f, int position)
{
    return f->buffers[f->comm->once ? group_at(f, position) : position % (f->prefetch + 1)];
}

/* Enqueues the gather for a position. Compute that reads the gather's buffer is already enqueued,
 * and the lane waits for it, so the host need not. This rank's own part is written where it is
 * gathered. */
static bool issue(struct fsdp *f)
{
    const int position = f->issued++, group = group_at(f, position);
    const int lane = position % (f->prefetch + 1);
    const size_t count = shard_elements(&f->shape, group);
    char *whole = buffer_of(f, position),
         *own = whole + (size_t)f->comm->rank * count * f->compute->element;
    f->compute->to_elements(f->compute, own, f->parameters + f->offset[group], count);
    return f->alone || comm_gather(f->comm, lane, whole, count);
}

/* Returns the whole parameters of the group at `position`, after it has enqueued the gathers up to
 * `prefetch` positions ahead. They stay valid for prefetch + 1 positions. */
static const char *take(struct fsdp *f, int position, int length)
{
    while (f->issued < length && f->issued <= position + f->prefetch)
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
 * So the next group's parameters never wait behind p's gradients. The parameters of p + 1 +
 * prefetch do, but their gather could not begin before the reduction: both wait for p's backward
 * pass, which writes the gradients and reads the buffer of the gather. Besides, the reduction is
 * needed first: p + 2 writes its gradients where the reduction reads, and those parameters are
 * needed then or later. */

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

/* Enqueues the reduction of `group`'s gradients, which are complete in their buffer. The previous
 * reduction ran during this group's backward pass; once it is done, its buffer is free for the next
 * group. */
static bool reduce(struct fsdp *f, int group)
{
    const size_t count = shard_elements(&f->shape, group);
    if (!f->alone &&
        !comm_reduce_scatter(f->comm, reduce_lane(f, group), f->whole_gradients[group % 2],
                             shard_gradients(f, group), count))
        return false;
    return finish_reduce(f, f->prefetch > 0 ? group + 1 : group);
}

/* Where a group's backward pass writes. The padding of the last shard has no gradients, and is
 * zeroed. */
static char *gradients_of(struct fsdp *f, int group)
{
    char *whole = f->whole_gradients[group % 2];
    const size_t used = group_elements(&f->shape, group);
    const size_t all = shard_elements(&f->shape, group) * (size_t)f->comm->nranks;
    f->compute->zero(f->compute, whole + used * f->compute->element, all - used);
    return whole;
}

/* ---- a step */

static bool forward(struct fsdp *f, int length, const char **head)
{
    const int groups = group_count(&f->shape);
    for (int g = 0; g < groups; g++) {
        const char *parameters = take(f, g, length);
        if (!parameters)
            return false;
        if (g == 0)
            model_embed(&f->model, parameters);
        else if (g <= f->shape.layers)
            model_block(&f->model, g - 1, parameters);
        else
            model_head(&f->model, parameters);
        *head = parameters;
    }
    return true;
}

static bool backward(struct fsdp *f, int length, const char *head)
{
    const int groups = group_count(&f->shape);
    model_head_back(&f->model, head, gradients_of(f, groups - 1));
    if (!reduce(f, groups - 1))
        return false;
    for (int position = groups; position < length; position++) {
        const int group = group_at(f, position);
        const char *parameters = take(f, position, length);
        if (!parameters)
            return false;
        model_block_back(&f->model, group - 1, parameters, gradients_of(f, group));
        if (!reduce(f, group))
            return false;
    }
    model_embed_back(&f->model, gradients_of(f, 0));
    return reduce(f, 0);
}

static struct adam adam_of(const struct step *s)
{
    const double beta1 = 0.9, beta2 = 0.99, n = (double)s->number + 1;
    return (struct adam){.rate = s->rate,
                         .beta1 = (float)beta1,
                         .beta2 = (float)beta2,
                         .epsilon = 1e-8f,
                         .correction1 = (float)(1 / (1 - pow(beta1, n))),
                         .correction2 = (float)(1 / (1 - pow(beta2, n)))};
}

/* Updates the second half of the groups first, while the last reduction runs. Then it updates the
 * first half. Each of these is followed by its gather for the next step, which runs during the rest
 * of the update. */
static bool update(struct fsdp *f, const struct step *s)
{
    const int groups = group_count(&f->shape);
    const struct adam adam = adam_of(s);
    f->issued = 0;
    for (int i = 0; i < groups; i++) {
        const int g = (i + groups / 2) % groups;
        if (g == 0 && f->prefetch > 0 && !finish_reduce(f, 0))
            return false;
        f->compute->adam(f->compute, f->parameters + f->offset[g], f->first + f->offset[g],
                         f->second + f->offset[g], shard_gradients(f, g),
                         shard_elements(&f->shape, g), &adam);
        if (f->prefetch > 0 && !s->last && g == f->issued && g <= f->prefetch && !issue(f))
            return false;
    }
    return true;
}

bool fsdp_step(struct fsdp *f, const struct step *s)
{
    const int length = pass_length(f, true);
    const uint64_t batch = (uint64_t)f->shape.batch;
    const uint64_t global = batch * (uint64_t)f->comm->nranks;
    const char *head = NULL;
    f->model.dims.samples = f->shape.batch;
    f->compute->batch(f->compute, f->model.tokens, s->text, s->text_bytes, s->seed,
                      s->number * global + batch * (uint64_t)f->comm->rank, f->model.dims);
    if (!forward(f, length, &head))
        return false;
    model_loss(&f->model, f->losses + s->loss);
    if (!backward(f, length, head) || !update(f, s))
        return false;
    f->alone = f->comm->once;
    return true;
}

bool fsdp_forward(struct fsdp *f)
{
    const char *head;
    f->model.dims.samples = 1;
    f->issued = 0;
    return forward(f, pass_length(f, false), &head);
}

bool fsdp_losses(struct fsdp *f, double *means, int count)
{
    const int lane = fsdp_lanes(f->prefetch) - 1;
    return comm_mean(f->comm, lane, f->losses, (size_t)count) && comm_await(f->comm, lane) &&
           f->compute->read(f->compute, means, f->losses, (size_t)count * sizeof(*means)) &&
           f->comm->healthy(f->comm);
}
