/* What the files of the prefetch example share: the network's shape, and its data. The operations that
 * compute are in ../fsdp_train/compute.h. */
#ifndef CECL_PREFETCH_H
#define CECL_PREFETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SYMBOLS 256 /* the network reads and predicts bytes */
#define SAMPLE 8    /* bytes of a sample; each byte is predicted from the byte before it */

/* embedding -> `layers` x (x = x + gelu(x) W) -> output. Matrices are row-major: [width][width];
 * embedding [SYMBOLS][width] of bytes, then [SAMPLE][width] of their places; output [width][SYMBOLS]. An
 * element is a bfloat16 on GPUs and a float on the host. */
struct shape {
    int layers, width, batch; /* batch: bytes, a multiple of SAMPLE */
    size_t element;           /* in bytes */
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
/* Returns parameter `index` of a group. It depends only on the seed and the index, so every rank can
 * compute every parameter. */
float parameter(const struct shape *s, uint64_t seed, int group, size_t index);

/* Computes the sum over the batch of -ln p(next byte), and a hash of the bits of all logits.
 * tokens  [batch / SAMPLE][SAMPLE + 1] */
void logits_loss(const struct shape *s, const float *logits, const unsigned char *tokens,
                 double *sum, uint64_t *hash);

/* Loads a text of *count bytes. Returns NULL with a message on stderr. */
unsigned char *text_load(const char *path, size_t least, size_t *count);

/* cores.c. On the host device the streams' threads move data, and need cores of their own, in addition
 * to one core for each rank. */
struct cores {
    int here;    /* how many cores this process may use */
    double load; /* load average of the last minute */
};
struct cores cores_now(void);
bool cores_suffice(const struct cores *cores, int nranks);
void cores_refuse(const struct cores *cores, int nranks); /* prints why no time is measured */

#endif
