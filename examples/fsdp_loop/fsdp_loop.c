/* The loop of docs/guide.md, "Fully sharded training", as a program that checks its numbers. A test
 * fails unless the guide shows the lines that stand under "the guide's lines".
 *
 *     mpirun --allow-run-as-root --oversubscribe -n 4 build/examples/example_fsdp_loop */
#include "fsdp_loop.h"

#include <cecl/cecl_mpi.h>
#include <stdio.h>

enum { LAYERS = 5, STEPS = 2, SHARD = 20000 };

/* If `call` fails, prints its text and cecl's message, and returns 1. */
#define CHECK(call) \
    do { \
        if ((call) != 0) { \
            fprintf(stderr, "%s: %s\n", #call, ceclGetLastError(comm)); \
            return 1; \
        } \
    } while (0)

static int rank, nranks;
static float *activations;

static void compute_layer(int layer, const void *whole, ceclStream_t stream);
static void compute_layer_back(int layer, const void *whole, void *gradients, ceclStream_t stream);
static void update_parameters(int layers, void *const shards[], void *const gradient_shards[],
                              ceclStream_t stream);
int open_buffers(size_t element_bytes);
int step(int layers, void *const shards[], void *const gradient_shards[]);

/* ---- the guide's lines */

enum { BUFFERS = 2 }; /* layers that are whole at a time: prefetch + 1 */
ceclComm_t comm;
ceclStream_t compute, transfer;
ceclEvent_t gathered[BUFFERS], used[BUFFERS], reduced[BUFFERS];
void *whole[BUFFERS];     /* a layer's parameters, flat, symmetric */
void *gradients[BUFFERS]; /* a layer's gradients, likewise */
size_t count;             /* elements of a shard, equal on all ranks: pad the last */

int open_buffers(size_t element_bytes)
{
    CHECK(ceclStreamCreate(comm, &compute)); /* or cudaStreamCreateWithFlags: non-blocking */
    CHECK(ceclStreamCreate(comm, &transfer));
    for (int b = 0; b < BUFFERS; b++) {
        CHECK(ceclEventCreate(comm, &gathered[b]));
        CHECK(ceclEventCreate(comm, &used[b]));
        CHECK(ceclEventCreate(comm, &reduced[b]));
        CHECK(ceclMemAlloc(comm, &whole[b], (size_t)nranks * count * element_bytes));
        CHECK(ceclMemAlloc(comm, &gradients[b], (size_t)nranks * count * element_bytes));
    }
    return 0;
}

/* Begins to gather a layer into its buffer, as soon as compute no longer uses that buffer. */
static int gather(int layer, const void *shard)
{
    const int b = layer % BUFFERS;
    CHECK(ceclStreamWaitEvent(comm, transfer, used[b]));
    CHECK(ceclAllGather(shard, whole[b], count, ceclBfloat16, comm, transfer));
    CHECK(ceclEventRecord(comm, gathered[b], transfer));
    return 0;
}

static int forward(int layers, void *const shards[])
{
    CHECK(gather(0, shards[0]));
    for (int l = 0; l < layers; l++) {
        const int b = l % BUFFERS;
        if (l + 1 < layers)
            CHECK(gather(l + 1, shards[l + 1])); /* runs while layer l computes */
        CHECK(ceclStreamWaitEvent(comm, compute, gathered[b]));
        compute_layer(l, whole[b], compute);
        CHECK(ceclEventRecord(comm, used[b], compute));
    }
    return 0;
}

/* Begins to reduce a layer's gradients to this rank's shard of their mean, once they are computed. */
static int reduce(int layer, void *gradient_shard)
{
    const int b = layer % BUFFERS;
    CHECK(ceclStreamWaitEvent(comm, transfer, used[b]));
    CHECK(ceclReduceScatter(gradients[b], gradient_shard, count, ceclBfloat16, ceclAvg, comm,
                            transfer));
    CHECK(ceclEventRecord(comm, reduced[b], transfer));
    return 0;
}

static int backward(int layers, void *const shards[], void *const gradient_shards[])
{
    CHECK(gather(layers - 1, shards[layers - 1]));
    for (int l = layers - 1; l >= 0; l--) {
        const int b = l % BUFFERS;
        if (l > 0)
            CHECK(gather(l - 1, shards[l - 1]));
        CHECK(ceclStreamWaitEvent(comm, compute, gathered[b]));
        CHECK(ceclStreamWaitEvent(comm, compute, reduced[b])); /* gradients[b] is free again */
        compute_layer_back(l, whole[b], gradients[b], compute);
        CHECK(ceclEventRecord(comm, used[b], compute));
        CHECK(reduce(l, gradient_shards[l])); /* runs while the layer before computes */
    }
    return 0;
}

int step(int layers, void *const shards[], void *const gradient_shards[])
{
    CHECK(forward(layers, shards));
    CHECK(backward(layers, shards, gradient_shards));
    for (int b = 0; b < BUFFERS; b++)
        CHECK(ceclStreamWaitEvent(comm, compute, reduced[b]));
    update_parameters(layers, shards, gradient_shards, compute);
    for (int b = 0; b < BUFFERS; b++)
        CHECK(ceclEventRecord(comm, used[b], compute)); /* the next gathers read what it wrote */
    return 0;
}

/* ---- the network */

static void compute_layer(int layer, const void *parameters, ceclStream_t stream)
{
    (void)layer;
    layer_forward(activations, parameters, (size_t)nranks * count, stream);
}

static void compute_layer_back(int layer, const void *parameters, void *gradient,
                               ceclStream_t stream)
{
    (void)layer;
    layer_backward(gradient, parameters, (size_t)nranks * count, rank, stream);
}

static void update_parameters(int layers, void *const shards[], void *const gradient_shards[],
                              ceclStream_t stream)
{
    for (int l = 0; l < layers; l++)
        layer_update(shards[l], gradient_shards[l], count, stream);
}

/* ---- the expected numbers: plain loops over the same numbers, without shards */

/* A value depends on layer and place. */
static float first_parameter(int layer, size_t place)
{
    return (float)((place / 3 + place % 7 + 3 * (size_t)layer) % 8);
}

static float rounded(float value)
{
    return widen(narrow(value));
}

/* The parameter after `steps` steps. Each step subtracted the mean over the ranks of (rank + 1)
 * times the parameter. */
static float parameter(int layer, size_t place, int steps)
{
    float value = first_parameter(layer, place);
    for (int s = 0; s < steps; s++) {
        float sum = 0;
        for (int r = 0; r < nranks; r++)
            sum += rounded((float)(r + 1) * value);
        value = rounded(value - rounded(sum / (float)nranks));
    }
    return value;
}

static float activation(size_t place)
{
    float x = 0;
    for (int s = 0; s < STEPS; s++)
        for (int l = 0; l < LAYERS; l++)
            x = 2 * x + parameter(l, place, s);
    return x;
}

/* ---- the program */

/* Copies to or from the device, and waits until the copy is done. */
static int copy(void *dst, const void *src, size_t bytes)
{
    CHECK(ceclMemcpyAsync(comm, dst, src, bytes, transfer));
    CHECK(ceclStreamSynchronize(comm, transfer));
    return 0;
}

static int make_shards(void *shards[], void *gradient_shards[], element *host)
{
    for (int l = 0; l < LAYERS; l++) {
        shards[l] = device_alloc(count * sizeof(element));
        gradient_shards[l] = device_alloc(count * sizeof(element));
        for (size_t i = 0; i < count; i++)
            host[i] = narrow(first_parameter(l, (size_t)rank * count + i));
        CHECK(!shards[l] || !gradient_shards[l]);
        CHECK(copy(shards[l], host, count * sizeof(element)));
    }
    return 0;
}

static int count_wrong(void *const shards[], element *host, float *x, int *wrong)
{
    CHECK(copy(x, activations, (size_t)nranks * count * sizeof(*x)));
    for (size_t i = 0; i < (size_t)nranks * count; i++)
        *wrong += x[i] != activation(i);
    for (int l = 0; l < LAYERS; l++) {
        CHECK(copy(host, shards[l], count * sizeof(element)));
        for (size_t i = 0; i < count; i++)
            *wrong += widen(host[i]) != parameter(l, (size_t)rank * count + i, STEPS);
    }
    return 0;
}

static int close_events(void)
{
    for (int b = 0; b < BUFFERS; b++) {
        CHECK(ceclEventDestroy(comm, gathered[b]));
        CHECK(ceclEventDestroy(comm, used[b]));
        CHECK(ceclEventDestroy(comm, reduced[b]));
    }
    return 0;
}

static int perform(int *wrong)
{
    static element host[SHARD];
    static float x[SHARD * 64];
    void *shards[LAYERS], *gradient_shards[LAYERS];
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    int device = -1;
    config.cudaDevice = CECL_CUDA_DEVICE_BY_RANK;
    CHECK(ceclCommInitMpi(&comm, MPI_COMM_WORLD, &config));
    CHECK(ceclCommUserRank(comm, &rank));
    CHECK(ceclCommCount(comm, &nranks));
    CHECK(nranks > 64);
    count = SHARD;
    CHECK(ceclCommCuDevice(comm, &device));
    if ((device >= 0) != device_is_gpu) {
        fprintf(stderr, "fsdp_loop: example_fsdp_loop runs on the host (CECL_DEVICE=host), "
                        "example_fsdp_loop_cuda on GPUs\n");
        return 1;
    }
    CHECK(open_buffers(sizeof(element)));
    activations = device_alloc((size_t)nranks * count * sizeof(*activations));
    CHECK(!activations);
    CHECK(make_shards(shards, gradient_shards, host));

    for (int s = 0; s < STEPS; s++)
        CHECK(step(LAYERS, shards, gradient_shards));
    CHECK(ceclStreamSynchronize(comm, compute));
    CHECK(count_wrong(shards, host, x, wrong));

    for (int l = 0; l < LAYERS; l++) {
        device_free(shards[l]);
        device_free(gradient_shards[l]);
    }
    device_free(activations);
    CHECK(close_events());
    CHECK(ceclCommDestroy(comm)); /* its streams and its memory end with it */
    return 0;
}

int main(int argc, char **argv)
{
    int wrong = 0;
    MPI_Init(&argc, &argv);
    if (perform(&wrong))
        MPI_Abort(MPI_COMM_WORLD, 1); /* other ranks may wait for this one */
    printf("rank %d of %d: %d steps of %d layers, %d numbers wrong\n", rank, nranks, STEPS, LAYERS,
           wrong);
    MPI_Finalize();
    return wrong != 0;
}
