/* Writes one byte at a time. The network computes logits, one byte is chosen by them, and that byte
 * is part of the input for the next. */
#include "sample.h"

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

static const double temperature = 0.7; /* below 1: likely bytes become even likelier */

/* Chooses the byte at which a random position in the distribution falls. */
static unsigned char choose(const float *logits, uint64_t random)
{
    double weight[SYMBOLS], sum = 0, most = logits[0];
    for (int i = 1; i < SYMBOLS; i++)
        most = logits[i] > most ? logits[i] : most;
    for (int i = 0; i < SYMBOLS; i++)
        sum += weight[i] = exp((logits[i] - most) / temperature);
    double place = (double)(random >> 11) / 9007199254740992.0 * sum; /* 2^53 */
    for (int i = 0; i < SYMBOLS; i++)
        if ((place -= weight[i]) < 0)
            return (unsigned char)i;
    return SYMBOLS - 1;
}

/* Puts the last bytes of the text so far at the front of the sample. The network does not look at
 * bytes behind them. */
static bool next_byte(struct fsdp *f, const unsigned char *written, int length, uint64_t random,
                      unsigned char *next)
{
    const int sequence = f->shape.sequence, seen = length < sequence ? length : sequence;
    float logits[SYMBOLS];
    f->compute->write(f->compute, f->model.tokens, written + length - seen, (size_t)seen);
    const char *row = (char *)f->model.logits + (size_t)(seen - 1) * SYMBOLS * f->compute->wide;
    if (!fsdp_forward(f) || !f->compute->read(f->compute, logits, row, sizeof(logits)))
        return false;
    f->compute->ticks(f->compute, NULL, 0);
    *next = choose(logits, random);
    /* One rank chooses for all, because GPUs need not agree in the last bit. */
    MPI_Bcast(next, 1, MPI_BYTE, 0, MPI_COMM_WORLD);
    return true;
}

static void print(const unsigned char *written, int from, int to)
{
    for (int i = from; i < to; i++)
        putchar(written[i] == '\n' || (written[i] >= ' ' && written[i] < 127) ? written[i] : '?');
}

bool sample_write(struct fsdp *f, const struct text *text, int count, uint64_t seed)
{
    const int prompt = f->shape.sequence < 16 ? f->shape.sequence : 16;
    unsigned char *written = malloc((size_t)prompt + (size_t)count);
    bool fine = written != NULL;
    if (fine)
        memcpy(written, text->bytes, (size_t)prompt);
    for (int i = 0; i < count && fine; i++)
        fine = next_byte(f, written, prompt + i, scramble(scramble(~seed) + (uint64_t)i),
                         &written[prompt + i]);
    if (fine && f->comm->rank == 0) {
        printf("\nIt writes, after \"");
        print(written, 0, prompt);
        printf("\":\n\n");
        print(written, prompt, prompt + count);
        printf("\n");
    }
    free(written);
    return fine;
}
