/* One row of the file of CECL_NCCL_LEARNED, as text (learned_file.h). */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "nccl/learned_file.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const struct {
    enum cecl_nccl_op op;
    const char *name;
} ops[] = {
    {CECL_NCCL_OP_ncclAllGather, "all_gather"},
    {CECL_NCCL_OP_ncclAllReduce, "all_reduce"},
    {CECL_NCCL_OP_ncclAlltoAll, "alltoall"},
    {CECL_NCCL_OP_ncclReduceScatter, "reduce_scatter"},
};

/* By ncclDataType_t. */
static const char *const types[] = {"int8",    "uint8",    "int32",      "uint32",
                                    "int64",   "uint64",   "float16",    "float32",
                                    "float64", "bfloat16", "float8e4m3", "float8e5m2"};

const char *cecl_nccl_row_op(enum cecl_nccl_op op)
{
    for (size_t i = 0; i < LENGTH(ops); i++)
        if (ops[i].op == op)
            return ops[i].name;
    return NULL;
}

const char *cecl_nccl_row_type(int type)
{
    return type == CECL_NCCL_ANY_TYPE ? "any" : types[type];
}

static const char *take_op(const char *name, enum cecl_nccl_op *op)
{
    for (size_t i = 0; i < LENGTH(ops); i++)
        if (strcmp(ops[i].name, name) == 0) {
            *op = ops[i].op;
            return NULL;
        }
    return "all_gather, all_reduce, alltoall or reduce_scatter";
}

static const char *take_type(const char *name, int *type)
{
    *type = CECL_NCCL_ANY_TYPE;
    if (strcmp(name, "any") == 0)
        return NULL;
    for (size_t i = 0; i < LENGTH(types); i++)
        if (strcmp(types[i], name) == 0) {
            *type = (int)i;
            return NULL;
        }
    return "a type, such as bfloat16, or any";
}

/* Whether the rest of the line is only blanks and a comment. */
static bool is_end(const char *rest)
{
    while (isspace((unsigned char)*rest))
        rest++;
    return *rest == '\0' || *rest == '#';
}

#define RANKS_BYTES 48

static const char *ranks_text(const struct cecl_nccl_setup *setup, char text[RANKS_BYTES])
{
    const struct cecl_nccl_layout *nodes = &setup->nodes;
    int n = snprintf(text, RANKS_BYTES, "%d", setup->nranks);
    if (nodes->count > 1)
        n += snprintf(text + n, RANKS_BYTES - (size_t)n, ":%dx%d", nodes->count, nodes->least);
    if (nodes->most > nodes->least)
        snprintf(text + n, RANKS_BYTES - (size_t)n, "-%d", nodes->most);
    return text;
}

static bool take_ranks(const char *word, struct cecl_nccl_setup *setup)
{
    struct cecl_nccl_layout *nodes = &setup->nodes;
    char text[RANKS_BYTES];
    const int count =
        sscanf(word, "%6d:%6dx%6d-%6d", &setup->nranks, &nodes->count, &nodes->least, &nodes->most);
    if (count == 1)
        *nodes = (struct cecl_nccl_layout){1, setup->nranks, setup->nranks};
    if (count == 3)
        nodes->most = nodes->least;
    return strcmp(ranks_text(setup, text), word) == 0; /* one text for each layout */
}

#define SETUP " %63s %47s %9d %23s "

static const char *take_gain(const char *line, struct cecl_nccl_gain *row)
{
    struct cecl_nccl_setup *setup = &row->setup;
    char ranks[RANKS_BYTES], op[32], type[32], memory[32];
    int end = 0;
    if (sscanf(line, "gains" SETUP "%31s %31s %31s %18zu %18zu%n", setup->gpu, ranks, &setup->nccl,
               setup->cecl, op, type, memory, &row->least, &row->most, &end) != 9 ||
        !is_end(line + end) || !take_ranks(ranks, setup))
        return "gains GPU ranks NCCL cecl operation type memory least-bytes most-bytes";
    row->on_windows = strcmp(memory, "windows") == 0;
    if (!row->on_windows && strcmp(memory, "plain") != 0)
        return "plain or windows";
    const char *expected = take_op(op, &row->op);
    return expected ? expected : take_type(type, &row->type);
}

static const char *take_verdict(const char *line, struct cecl_nccl_verdict *row)
{
    struct cecl_nccl_setup *setup = &row->setup;
    char ranks[RANKS_BYTES];
    int end = 0;
    if (sscanf(line, "verdict" SETUP "%16" SCNx64 " %31s %10u %10u %6d%n", setup->gpu, ranks,
               &setup->nccl, setup->cecl, &row->subject, row->way, &row->before_us, &row->after_us,
               &row->gain, &end) != 9 ||
        !is_end(line + end) || !take_ranks(ranks, setup))
        return "verdict GPU ranks NCCL cecl period way us-before us-after gain-per-1000";
    return NULL;
}

const char *cecl_nccl_row_parse(const char *line, struct cecl_nccl_verdict *verdict,
                                struct cecl_nccl_gain *gain, bool *is_gain)
{
    memset(verdict, 0, sizeof(*verdict));
    memset(gain, 0, sizeof(*gain));
    *is_gain = strncmp(line, "gains ", 6) == 0;
    if (*is_gain)
        return take_gain(line, gain);
    return strncmp(line, "verdict ", 8) == 0 ? take_verdict(line, verdict)
                                             : "a row that begins with verdict or gains";
}

void cecl_nccl_verdict_text(const struct cecl_nccl_verdict *row, char text[CECL_NCCL_ROW_BYTES])
{
    const struct cecl_nccl_setup *setup = &row->setup;
    char ranks[RANKS_BYTES];
    snprintf(text, CECL_NCCL_ROW_BYTES, "verdict %s %s %d %s %016" PRIx64 " %s %u %u %d%s%s",
             setup->gpu, ranks_text(setup, ranks), setup->nccl, setup->cecl, row->subject, row->way,
             row->before_us, row->after_us, row->gain, *row->words ? " # " : "", row->words);
}

void cecl_nccl_gain_text(const struct cecl_nccl_gain *row, char text[CECL_NCCL_ROW_BYTES])
{
    const struct cecl_nccl_setup *setup = &row->setup;
    const char *op = cecl_nccl_row_op(row->op);
    char ranks[RANKS_BYTES];
    snprintf(text, CECL_NCCL_ROW_BYTES, "gains %s %s %d %s %s %s %s %zu %zu", setup->gpu,
             ranks_text(setup, ranks), setup->nccl, setup->cecl, op ? op : "?",
             cecl_nccl_row_type(row->type), row->on_windows ? "windows" : "plain", row->least,
             row->most);
}
