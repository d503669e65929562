/* An FSDP-style forward pass over a real text. The parameters are sharded over the ranks. While one
 * layer computes, a communication stream gathers the shards of the next layer into the other of two
 * symmetric buffers, A and B. The next gather into a buffer waits until compute has read it:
 *
 *     compute:  | layer 0 from A | layer 1 from B | layer 2 from A | ...
 *     gather:   | layer 1 into B | layer 2 into A | layer 3 into B | ...
 *
 * The program shows that the sharded network computes, bit for bit, what the whole network
 * computes. It also measures how much longer a pass takes with the gathers (on the host only if
 * enough cores are idle for compute and gathers). */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cecl/cecl_mpi.h>

#include "../sort.h"
#include "compute.h"
#include "prefetch.h"

struct options {
    int layers, width, batch, steps;
    uint64_t seed;
    const char *data;
    bool in_place, measure;
};

enum mode { WHOLE, PREFETCH, NO_OVERLAP, MODES };

struct job {
    struct options options;
    struct shape shape;
    struct compute compute;
    struct cores cores; /* as counted before the ranks keep them busy */
    int rank;
    bool on_gpus;
    ceclComm_t comm;
    ceclStream_t stream;
    void **shards;         /* [groups] this rank's shards */
    void **whole;          /* [groups] all parameters, for mode WHOLE */
    void *x, *y, *logits;  /* [batch][width], its activation, [batch][SYMBOLS] */
    unsigned char *tokens; /* in the device's memory */
    unsigned char *sample; /* the same bytes in the host's memory */
    char *buffers[2];      /* symmetric */
    unsigned char *text;
    size_t text_bytes;
};

static bool refuse(const char *what, const char *why)
{
    fprintf(stderr, "prefetch: %s: %s\n", what, why);
    return false;
}

#define CECL_OR_FALSE(job, call) \
    do { \
        if ((call) != ceclSuccess) \
            return refuse(#call, ceclGetLastError((job)->comm)); \
    } while (0)

/* ---- the steps */

/* Where this rank's shard of a group lies in the buffer that the group is gathered into. */
static char *slot_of(const struct job *j, int group)
{
    const size_t bytes = shard_elements(&j->shape, group) * j->shape.element;
    return j->buffers[group % 2] + (size_t)j->rank * bytes;
}

static bool gather(struct job *j, int group)
{
    const size_t bytes = shard_elements(&j->shape, group) * j->shape.element;
    if (j->options.in_place)
        CECL_OR_FALSE(
            j, ceclMemcpyAsync(j->comm, slot_of(j, group), j->shards[group], bytes, j->stream));
    CECL_OR_FALSE(j, ceclAllGather(j->options.in_place ? slot_of(j, group) : j->shards[group],
                                   j->buffers[group % 2], shard_elements(&j->shape, group),
                                   j->compute.type, j->comm, j->stream));
    return true;
}

/* Lets later compute run only after the work that the stream holds now. On the host device compute is
 * synchronous, so the host waits. */
static bool compute_after_stream(struct job *j, int lane)
{
    struct compute *c = &j->compute;
    if (!c->mark)
        return ceclStreamSynchronize(j->comm, j->stream) == ceclSuccess;
    c->mark(c, j->stream, lane);
    c->compute_after_mark(c, lane);
    return true;
}

static void multiply(struct job *j, int group, const void *weights)
{
    struct compute *c = &j->compute;
    const struct shape *s = &j->shape;
    const bool is_output = group > s->layers;
    struct matmul m = {.m = s->batch,
                       .n = is_output ? SYMBOLS : s->width,
                       .k = s->width,
                       .a = is_output ? j->x : j->y,
                       .b = weights,
                       .c = is_output ? j->logits : j->x,
                       .lda = s->width,
                       .batch = 1,
                       .alpha = 1,
                       .beta = is_output ? 0 : 1,
                       .wide = is_output};
    m.ldb = m.ldc = m.n;
    if (!is_output)
        c->gelu(c, j->y, j->x, (size_t)s->batch * (size_t)s->width);
    c->matmul(c, &m);
}

/* Computes a group: the embedding, a layer or the output. */
static void compute_group(struct job *j, int group, const void *weights)
{
    const struct shape *s = &j->shape;
    const struct dims d = {s->batch / SAMPLE, SAMPLE, s->width};
    const char *places = (const char *)weights + (size_t)SYMBOLS * (size_t)s->width * s->element;
    if (group == 0)
        j->compute.embed(&j->compute, j->x, weights, places, j->tokens, d);
    else
        multiply(j, group, weights);
}

/* Gathers a group's parameters, if there is such a group. The gather begins once all earlier compute
 * is done, because that compute reads the buffer that the gather fills. */
static bool gather_after(struct job *j, int group)
{
    struct compute *c = &j->compute;
    if (group == group_count(&j->shape))
        return true;
    if (c->stream_after_compute)
        c->stream_after_compute(c, j->stream);
    return gather(j, group);
}

/* One forward pass. In mode WHOLE this rank has all parameters. */
static bool forward(struct job *j, enum mode mode)
{
    const int groups = group_count(&j->shape);
    if (mode != WHOLE && !gather_after(j, 0))
        return false;
    for (int g = 0; g < groups; g++) {
        const int slot = g % 2;
        if (mode != WHOLE && !compute_after_stream(j, slot)) /* waits for this group's gather */
            return false;
        if (mode == PREFETCH && !gather_after(j, g + 1)) /* runs during this group's matmuls */
            return false;
        compute_group(j, g, mode == WHOLE ? j->whole[g] : j->buffers[slot]);
        if (mode == NO_OVERLAP && !gather_after(j, g + 1)) /* runs after this group's matmuls */
            return false;
    }
    return true;
}

/* Copies this rank's samples of a step from the text to the device. */
static void take_text(struct job *j, int step)
{
    const size_t batch = (size_t)j->shape.batch, places = j->text_bytes - batch;
    const size_t turn = (size_t)step * (size_t)j->shape.nranks + (size_t)j->rank;
    const unsigned char *text = j->text + turn * batch % places;
    for (size_t b = 0; b < batch; b += SAMPLE)
        memcpy(j->sample + b / SAMPLE * (SAMPLE + 1), text + b, SAMPLE + 1);
    j->compute.copy(&j->compute, j->tokens, j->sample, batch + batch / SAMPLE);
}

/* Computes the loss and the hash of step 0 in a mode. The loss is the mean over all ranks, summed in
 * rank order so that it repeats. */
static bool evaluate(struct job *j, enum mode mode, double *loss, uint64_t *hash)
{
    const size_t bytes = (size_t)j->shape.batch * SYMBOLS * sizeof(float);
    double mine = 0, all[1024], sum = 0;
    float *logits = malloc(bytes);
    take_text(j, 0);
    bool fine = logits && forward(j, mode);
    if (fine)
        j->compute.copy(&j->compute, logits, j->logits, bytes);
    fine = fine && j->compute.wait(&j->compute);
    if (fine)
        logits_loss(&j->shape, logits, j->sample, &mine, hash);
    free(logits);
    if (!fine)
        return false;
    MPI_Allgather(&mine, 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, MPI_COMM_WORLD);
    for (int r = 0; r < j->shape.nranks; r++)
        sum += all[r];
    *loss = sum / ((double)j->shape.nranks * j->shape.batch);
    return true;
}

/* ---- setup */

/* Converts values to elements of the device. */
static bool fill(struct compute *c, void *dst, const float *values, size_t count)
{
    void *staged = c->alloc(c, count * sizeof(*values));
    if (!staged)
        return false;
    c->copy(c, staged, values, count * sizeof(*values));
    c->to_elements(c, dst, staged, count);
    const bool fine = c->wait(c);
    c->free(c, staged);
    return fine;
}

static bool make_part(struct job *j, void **out, int group, size_t from, size_t count)
{
    float *values = malloc(count * sizeof(*values));
    *out = j->compute.alloc(&j->compute, count * j->shape.element);
    if (!values || !*out) {
        free(values);
        return refuse("memory",
                      "not enough for the parameters; take a smaller --width or --layers");
    }
    for (size_t i = 0; i < count; i++)
        values[i] = parameter(&j->shape, j->options.seed, group, from + i);
    const bool fine = fill(&j->compute, *out, values, count);
    free(values);
    return fine;
}

static bool make_activations(struct job *j)
{
    struct compute *c = &j->compute;
    const size_t batch = (size_t)j->shape.batch, cells = batch * (size_t)j->shape.width;
    j->x = c->alloc(c, cells * c->element);
    j->y = c->alloc(c, cells * c->element);
    j->logits = c->alloc(c, batch * SYMBOLS * sizeof(float));
    j->tokens = c->alloc(c, batch + batch / SAMPLE);
    j->sample = malloc(batch + batch / SAMPLE);
    return j->x && j->y && j->logits && j->tokens && j->sample;
}

static bool make_parameters(struct job *j)
{
    const int groups = group_count(&j->shape);
    size_t largest = 0;
    if (!make_activations(j))
        return refuse("memory", "not enough for the activations; take a smaller --batch");
    j->shards = calloc((size_t)groups, sizeof(*j->shards));
    j->whole = calloc((size_t)groups, sizeof(*j->whole));
    if (!j->shards || !j->whole)
        return refuse("memory", "the host has not enough");
    for (int g = 0; g < groups; g++) {
        const size_t count = shard_elements(&j->shape, g);
        if (!make_part(j, &j->shards[g], g, (size_t)j->rank * count, count) ||
            !make_part(j, &j->whole[g], g, 0, group_elements(&j->shape, g)))
            return false;
        largest = count > largest ? count : largest;
    }
    for (int b = 0; b < 2; b++)
        CECL_OR_FALSE(j, ceclMemAlloc(j->comm, (void **)&j->buffers[b],
                                      largest * (size_t)j->shape.nranks * j->shape.element));
    return true;
}

static bool make_job(struct job *j)
{
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    struct options *o = &j->options;
    int device = -1, nranks = 1;
    config.cudaDevice = CECL_CUDA_DEVICE_BY_RANK;
    CECL_OR_FALSE(j, ceclCommInitMpi(&j->comm, MPI_COMM_WORLD, &config));
    CECL_OR_FALSE(j, ceclCommCuDevice(j->comm, &device));
    CECL_OR_FALSE(j, ceclCommCount(j->comm, &nranks));
    CECL_OR_FALSE(j, ceclStreamCreate(j->comm, &j->stream));
    const struct compute *gpu = device >= 0 ? compute_cuda() : NULL;
    if (device >= 0 && !gpu)
        return refuse("device", "this program was built without CUDA: set CECL_DEVICE=host");
    j->compute = gpu ? *gpu : compute_host;
    const bool big = device >= 0;
    j->on_gpus = big;
    j->shape = (struct shape){.layers = o->layers ? o->layers
                                        : big     ? 16
                                                  : 8,
                              .width = o->width ? o->width
                                       : big    ? 8192
                                                : 384,
                              .batch = o->batch ? o->batch
                                       : big    ? 8192
                                                : 192,
                              .element = j->compute.element,
                              .nranks = nranks};
    o->steps = o->steps ? o->steps : big ? 10 : 5;
    j->text = text_load(o->data, (size_t)j->shape.batch + 1, &j->text_bytes);
    return j->text && j->compute.open(&j->compute, device, 2, 0) && make_parameters(j);
}

static void end_job(struct job *j)
{
    for (int g = 0; g < group_count(&j->shape); g++) {
        j->compute.free(&j->compute, j->shards[g]);
        j->compute.free(&j->compute, j->whole[g]);
    }
    free(j->shards);
    free(j->whole);
    j->compute.free(&j->compute, j->x);
    j->compute.free(&j->compute, j->y);
    j->compute.free(&j->compute, j->logits);
    j->compute.free(&j->compute, j->tokens);
    free(j->sample);
    free(j->text);
    j->compute.close(&j->compute);
    (void)!ceclStreamDestroy(j->comm, j->stream);
    (void)!ceclCommDestroy(j->comm);
}

/* ---- what the program shows */

/* Compares the logits of the sharded network with the logits of the whole network on every rank,
 * bit for bit. */
static bool compare(struct job *j, double *loss, bool *equal)
{
    uint64_t whole = 0, sharded = 0, serial = 0;
    double reference = 0, other = 0;
    if (!evaluate(j, WHOLE, &reference, &whole) || !evaluate(j, PREFETCH, loss, &sharded) ||
        !evaluate(j, NO_OVERLAP, &other, &serial))
        return false;
    int mine = whole == sharded && whole == serial && memcmp(&reference, loss, sizeof(*loss)) == 0,
        all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    *equal = all;
    return true;
}

/* Measures how long a step takes on the slowest rank, in ms. */
static bool time_step(struct job *j, enum mode mode, int step, double *ms)
{
    double mine, slowest = 0;
    take_text(j, step);
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    if (!forward(j, mode) || !j->compute.wait(&j->compute))
        return false;
    mine = (MPI_Wtime() - start) * 1e3;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    *ms = slowest;
    return true;
}

/* Measures the median duration of a step in each mode. The modes alternate, so a GPU that slows down
 * as it warms up slows all modes alike. */
static bool time_modes(struct job *j, double medians[MODES])
{
    const int steps = j->options.steps;
    double *ms = malloc((size_t)steps * MODES * sizeof(*ms)), warm;
    bool fine = ms != NULL;
    for (int m = 0; m < MODES && fine; m++)
        fine = time_step(j, (enum mode)m, 0, &warm);
    for (int s = 0; s < steps && fine; s++)
        for (int m = 0; m < MODES && fine; m++)
            fine = time_step(j, (enum mode)m, s, &ms[m * steps + s]);
    for (int m = 0; m < MODES && fine; m++) {
        sort_numbers(ms + m * steps, (size_t)steps);
        medians[m] = ms[m * steps + steps / 2];
    }
    free(ms);
    return fine;
}

static void print_head(const struct job *j)
{
    double count = 0, gathered = 0;
    for (int g = 0; g < group_count(&j->shape); g++) {
        count += (double)group_elements(&j->shape, g);
        gathered +=
            (double)shard_elements(&j->shape, g) * (j->shape.nranks - 1) * (double)j->shape.element;
    }
    printf("A byte-level network of %.1f million parameters (%d layers of %d x %d), sharded over "
           "%d ranks.\n",
           count * 1e-6, j->shape.layers, j->shape.width, j->shape.width, j->shape.nranks);
    printf("Compute: %s. Text: %s, %d bytes a rank and step.\n", j->compute.name, j->options.data,
           j->shape.batch);
    printf("Each step gathers %.1f MB to every rank, %s.\n\n", gathered * 1e-6,
           j->options.in_place ? "in place" : "out of place");
}

static void print_table(const double ms[MODES])
{
    printf("\n  %-44s %12s\n", "one forward pass", "ms (median)");
    printf("  %-44s %12.2f\n", "compute alone, parameters whole on each rank", ms[WHOLE]);
    printf("  %-44s %12.2f\n", "sharded, next layer prefetched by cecl", ms[PREFETCH]);
    printf("  %-44s %12.2f\n", "sharded, gather then compute (no overlap)", ms[NO_OVERLAP]);
    printf("  %-44s %11.1f%%\n", "communication left exposed by the prefetch",
           100 * (ms[PREFETCH] - ms[WHOLE]) / ms[PREFETCH]);
}

static void print_waits(void)
{
    printf(
        "Compute waits only for a layer's own gather, which was begun one layer before. A gather "
        "waits until\nthe layer that last used its buffer has been computed.\n");
}

/* Rank 0 decides for all ranks. */
static bool times_are_wanted(const struct job *j)
{
    int wanted = j->on_gpus || j->options.measure || cores_suffice(&j->cores, j->shape.nranks);
    MPI_Bcast(&wanted, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (!wanted && j->rank == 0)
        cores_refuse(&j->cores, j->shape.nranks);
    return wanted;
}

static bool show_times(struct job *j)
{
    double ms[MODES];
    if (!times_are_wanted(j))
        return true;
    if (!time_modes(j, ms))
        return false;
    if (j->rank == 0)
        print_table(ms);
    return true;
}

static int perform(struct job *j)
{
    double loss = 0;
    bool equal = false;
    if (!make_job(j))
        return 1;
    if (j->rank == 0)
        print_head(j);
    if (!compare(j, &loss, &equal))
        return 1;
    if (j->rank == 0) {
        printf("Loss (untrained): %.4f nats per byte; ln 256 = %.4f.\n", loss, log(256.0));
        printf("Sharded equals whole, bit for bit, on every rank: %s.\n", equal ? "yes" : "NO");
        print_waits();
    }
    if (!show_times(j))
        return 1;
    end_job(j);
    return equal ? 0 : 3;
}

/* ---- options */

static const char usage[] =
    "usage: mpirun -n RANKS example_prefetch [--layers N] [--width N] "
    "[--batch N] [--steps N] [--data FILE] [--seed N] [--in-place] "
    "[--measure]\n"
    "An FSDP-style forward pass: sharded parameters, the next layer's "
    "gathered while one computes.\n"
    "Defaults on GPUs: 16 layers, width 8192, batch 8192; on the host: 8, "
    "384, 192. --in-place copies a rank's shard to its slot first.\n"
    "On the host times are measured only if each rank, and each thread that "
    "moves its data, can\nhave an idle core, or with --measure.\n";

static bool take_number(const char *text, long least, long most, int *out)
{
    char *end;
    const long value = strtol(text, &end, 10);
    if (end == text || *end || value < least || value > most)
        return false;
    *out = (int)value;
    return true;
}

static bool take_eights(const char *text, long most, int *out)
{
    return take_number(text, 8, most, out) && *out % 8 == 0;
}

static bool help(bool quiet, int *code)
{
    *code = 0;
    if (!quiet)
        fputs(usage, stdout);
    return false;
}

static void complain(const char *option)
{
    fprintf(stderr,
            "prefetch: %s: not an option, or a value it cannot have (--width, --batch: multiples "
            "of 8)\n%s",
            option, usage);
}

static bool parse(struct options *o, int argc, char **argv, bool quiet, int *code)
{
    static const struct option longs[] = {{"layers", 1, NULL, 'l'},   {"width", 1, NULL, 'w'},
                                          {"batch", 1, NULL, 'b'},    {"steps", 1, NULL, 's'},
                                          {"data", 1, NULL, 'd'},     {"seed", 1, NULL, 'e'},
                                          {"in-place", 0, NULL, 'i'}, {"measure", 0, NULL, 'm'},
                                          {"help", 0, NULL, 'h'},     {NULL, 0, NULL, 0}};
    int option, seed = 1;
    bool fine = true;
    *o = (struct options){.data = "/usr/share/common-licenses/GPL-3"};
    opterr = 0;
    while (fine && (option = getopt_long(argc, argv, "", longs, NULL)) != -1)
        switch (option) {
        case 'l': fine = take_number(optarg, 1, 10000, &o->layers); break;
        case 'w': fine = take_eights(optarg, 65536, &o->width); break;
        case 'b': fine = take_eights(optarg, 1 << 20, &o->batch); break;
        case 's': fine = take_number(optarg, 1, 100000, &o->steps); break;
        case 'e': fine = take_number(optarg, 0, 2147483647, &seed); break;
        case 'd': o->data = optarg; break;
        case 'i': o->in_place = true; break;
        case 'm': o->measure = true; break;
        case 'h': return help(quiet, code);
        default: fine = false;
        }
    o->seed = (uint64_t)seed;
    if (fine && optind == argc)
        return true;
    if (!quiet)
        complain(argv[optind - (fine ? 0 : 1)]);
    *code = 2;
    return false;
}

int main(int argc, char **argv)
{
    struct job job = {.cores = cores_now()};
    int code = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &job.rank);
    if (parse(&job.options, argc, argv, job.rank != 0, &code))
        code = perform(&job);
    if (code == 1)
        MPI_Abort(MPI_COMM_WORLD, 1); /* other ranks may wait for this one */
    MPI_Finalize();
    return code;
}
