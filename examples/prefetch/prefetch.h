/* What the files of the prefetch example share: the network's shape, its data, and the compute of
 * both devices. */
#ifndef CECL_PREFETCH_H
#define CECL_PREFETCH_H

#include <cecl/cecl_mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SYMBOLS 256 /* the network reads and predicts bytes */
#define CONTEXT 8   /* how many bytes back it looks */

/* embedding -> `layers` x (x = x + relu(x W)) -> output. Matrices are row-major: [width][width];
 * embedding [CONTEXT][SYMBOLS][width]; output [width][SYMBOLS]. An element is a half on GPUs and a
 * float on the host. */
struct shape {
    int layers, width, batch;
    size_t element; /* in bytes */
    int nranks;
};

/* The parameter groups, in the order of their use: 0 embedding, 1 .. layers, layers + 1 output.
 * Each is sharded evenly over the ranks. */
static inline int group_count(const struct shape *s)
{
    return s->layers + 2;
}
size_t group_elements(const struct shape *s, int group);
size_t shard_elements(const struct shape *s, int group); /* of one rank, with padding */
/* Parameter `index` of a group. It depends on the seed alone, so every rank can compute any
 * part. */
float parameter(const struct shape *s, uint64_t seed, int group, size_t index);

/* Computes the sum over the batch of -ln p(next byte), and a hash of the bits of all logits. */
void logits_loss(const struct shape *s, const float *logits, const unsigned char *text, double *sum,
                 uint64_t *hash);

/* Loads a text of *count bytes. Returns NULL with a message on stderr. */
unsigned char *text_load(const char *path, size_t least, size_t *count);

/* The compute of one of the two devices. All work is asynchronous where the device is; loss()
 * waits. */
struct compute {
    const char *name;
    size_t element;
    bool (*open)(struct compute *c, const struct shape *s, int device);
    void (*close)(struct compute *c);
    void *(*alloc)(struct compute *c, size_t bytes); /* plain memory of the device */
    void (*free)(struct compute *c, void *memory);
    bool (*fill)(struct compute *c, void *dst, const float *values,
                 size_t count); /* converts to elements; waits */
    /* The layers of a step. `text` is CONTEXT + batch bytes on the host. */
    bool (*embed)(struct compute *c, const void *weights, const unsigned char *text);
    bool (*layer)(struct compute *c, const void *weights);
    bool (*output)(struct compute *c, const void *weights);
    /* Runs logits_loss on this batch; waits. */
    bool (*loss)(struct compute *c, const unsigned char *text, double *sum, uint64_t *hash);
    bool (*wait)(struct compute *c); /* until all compute is done */
    /* Orders compute and a communication stream, without the host: compute enqueued later runs
     * after what `stream` holds now, and the reverse. On the host, where compute is synchronous,
     * the first function waits and the second does nothing. */
    bool (*after_stream)(struct compute *c, ceclComm_t comm, ceclStream_t stream, int slot);
    bool (*stream_after)(struct compute *c, ceclStream_t stream, int slot);
    const struct shape *shape;
    void *state;
};
extern const struct compute compute_host;
const struct compute *compute_cuda(void); /* NULL in a build without CUDA */

/* cores.c. On the host the threads of streams move data, and need cores of their own, besides the
 * cores of the ranks. */
struct cores {
    int here;    /* that this process may use */
    double load; /* of the last minute */
};
struct cores cores_now(void);
bool cores_suffice(const struct cores *cores, int nranks);
void cores_refuse(const struct cores *cores, int nranks); /* says why no time is measured */

#ifdef __cplusplus
}
#endif

#endif
