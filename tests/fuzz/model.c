#include "model.h"

#include <pthread.h>

#define EXTRA_MOST 16 /* bytes between the places of calls */

void model_prepare(struct model *model)
{
    setenv("CECL_DEVICE", "host", 1);
    setenv("CECL_TIMEOUT_MS", "60000", 1);
    setenv("CECL_INIT_TIMEOUT_MS", "60000", 1);
    setenv("CECL_POOL_BYTES", "64M", 1);
    setenv("CECL_SEGMENT_BYTES", "256K", 1);
    for (int r = 0; r < RANKS; r++) {
        model->mirror[r] = malloc(MODEL_BYTES);
        REQUIRE(model->mirror[r], "no memory");
    }
}

void model_run(const struct model *model, void *(*run)(void *rank))
{
    pthread_t threads[RANKS];
    for (int r = 0; r < model->nranks; r++)
        REQUIRE(pthread_create(&threads[r], NULL, run, (void *)(intptr_t)r) == 0, "no thread");
    for (int r = 0; r < model->nranks; r++)
        pthread_join(threads[r], NULL);
}

void model_begin(struct model *model, uint64_t seed)
{
    uint64_t x = seed | 1;
    for (int r = 0; r < model->nranks; r++) {
        model->used[r] = 0;
        for (size_t i = 0; i < MODEL_BYTES; i += sizeof(x)) {
            random_next(&x);
            memcpy(model->mirror[r] + i, &x, sizeof(x));
        }
        memcpy(model->memory[r], model->mirror[r], MODEL_BYTES);
    }
}

/* Allocates `bytes` of a rank's memory for a buffer, aligned to elements where a reduction needs that. */
static unsigned char *take_place(struct input *in, struct model *model, const struct random_call *c,
                                 size_t bytes, bool *has_room)
{
    const size_t element = random_reduces(c) ? random_result_size(c) : 1;
    size_t at = model->used[c->rank] + 1 + take_below(in, EXTRA_MOST);
    at += (element - at % element) % element;
    *has_room = *has_room && at + bytes + EXTRA_MOST < MODEL_BYTES;
    model->used[c->rank] = *has_room ? at + bytes : model->used[c->rank];
    return model->memory[c->rank] + at;
}

static void write_input(struct model *model, const struct random_call *c)
{
    const size_t bytes = random_sent(c, c->rank);
    model_fill(c->in, c->seed, c->rank, bytes);
    memcpy(model->mirror[c->rank] + (c->in - model->memory[c->rank]), c->in, bytes);
}

bool model_draw(struct input *in, struct model *model, enum kind kind, bool out_of_place,
                struct random_call call[RANKS])
{
    const uint64_t seed = take_word(in) | 1;
    bool has_room = true;
    for (int r = 0; r < model->nranks; r++) {
        struct random_call *c = &call[r];
        uint64_t x = seed;
        *c = (struct random_call){.rank = r, .nranks = model->nranks, .seed = seed};
        random_draw_of(c, kind, &x);
        c->in_place = c->in_place && (kind != ALL_TO_ALL || !out_of_place);
        c->send = take_place(in, model, c, random_sent(c, r), &has_room);
        c->recv = take_place(in, model, c, random_received(c), &has_room);
        random_set_places(c, 0);
    }
    for (int r = 0; r < model->nranks && has_room; r++)
        write_input(model, &call[r]);
    return has_room;
}

void model_apply(struct model *model, const struct random_call call[RANKS])
{
    for (int r = 0; r < model->nranks; r++)
        random_result(&call[r], model->mirror[r] + (call[r].out - model->memory[r]));
}

void model_compare(const struct model *model, const char *what)
{
    for (int r = 0; r < model->nranks; r++) {
        size_t i = 0;
        if (memcmp(model->memory[r], model->mirror[r], MODEL_BYTES) == 0)
            continue;
        while (model->memory[r][i] == model->mirror[r][i])
            i++;
        REQUIRE(false, "%s: byte %zu of rank %d of %d is %02x, not %02x", what, i, r, model->nranks,
                model->memory[r][i], model->mirror[r][i]);
    }
}
