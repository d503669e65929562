/* See learned_file.h. */
#include "nccl/learned_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- setups */

void cecl_nccl_setup_name(struct cecl_nccl_setup *setup, const char *gpu)
{
    snprintf(setup->gpu, sizeof(setup->gpu), "%s", gpu && *gpu ? gpu : "host");
    for (char *c = setup->gpu; *c; c++)
        if (*c <= ' ' || *c == '#' || *c > '~')
            *c = '_';
}

static int ranks_of_node(const int *nodes, int nranks, int node)
{
    int count = 0;
    for (int rank = 0; rank < nranks; rank++)
        count += nodes[rank] == node;
    return count;
}

static struct cecl_nccl_layout layout_of(const int *nodes, int nranks)
{
    struct cecl_nccl_layout layout = {.count = 0, .least = nranks};
    for (int left = nranks; left > 0; layout.count++) {
        const int size = ranks_of_node(nodes, nranks, layout.count);
        layout.least = size < layout.least ? size : layout.least;
        layout.most = size > layout.most ? size : layout.most;
        left -= size;
    }
    return layout;
}

struct cecl_nccl_setup cecl_nccl_setup_make(const char *gpu, int nranks, const int *nodes, int nccl)
{
    struct cecl_nccl_setup setup = {.nranks = nranks, .nccl = nccl};
    cecl_nccl_setup_name(&setup, gpu);
    if (nodes)
        setup.nodes = layout_of(nodes, nranks);
    snprintf(setup.cecl, sizeof(setup.cecl), "%d.%d.%d", CECL_MAJOR, CECL_MINOR, CECL_PATCH);
    return setup;
}

static bool have_equal_nodes(const struct cecl_nccl_setup *its, const struct cecl_nccl_setup *here)
{
    return here->nodes.count == 0 ||
           (its->nodes.count == here->nodes.count && its->nodes.least == here->nodes.least &&
            its->nodes.most == here->nodes.most);
}

/* How many of the five parts are equal. */
static int agreement(const struct cecl_nccl_setup *its, const struct cecl_nccl_setup *here)
{
    return (strcmp(its->gpu, here->gpu) == 0) + (its->nranks == here->nranks) +
           have_equal_nodes(its, here) + (its->nccl == here->nccl) +
           (strcmp(its->cecl, here->cecl) == 0);
}

bool cecl_nccl_setup_is(const struct cecl_nccl_setup *its, const struct cecl_nccl_setup *here)
{
    return agreement(its, here) == 5;
}

#define NODES_WORDS 48

static const char *nodes_words(const struct cecl_nccl_layout *nodes, char words[NODES_WORDS])
{
    const int n = snprintf(words, NODES_WORDS, "%d node%s of %d", nodes->count,
                           nodes->count == 1 ? "" : "s", nodes->least);
    if (nodes->most > nodes->least)
        snprintf(words + n, NODES_WORDS - (size_t)n, " to %d", nodes->most);
    return words;
}

static void tell(const struct cecl_nccl_setup *its, const struct cecl_nccl_setup *here, char *words,
                 size_t bytes)
{
    char rows[NODES_WORDS], ours[NODES_WORDS];
    if (strcmp(its->gpu, here->gpu) != 0)
        snprintf(words, bytes, "its rows are for GPU %s, and this GPU is %s", its->gpu, here->gpu);
    else if (its->nccl != here->nccl)
        snprintf(words, bytes, "its rows are for NCCL %d, and this NCCL is %d", its->nccl,
                 here->nccl);
    else if (strcmp(its->cecl, here->cecl) != 0)
        snprintf(words, bytes, "its rows are for cecl %s, and this cecl is %s", its->cecl,
                 here->cecl);
    else if (its->nranks != here->nranks)
        snprintf(words, bytes, "its rows are for %d ranks, and this communicator has %d",
                 its->nranks, here->nranks);
    else
        snprintf(words, bytes, "its rows are for %s ranks, and this communicator has %s",
                 nodes_words(&its->nodes, rows), nodes_words(&here->nodes, ours));
}

bool cecl_nccl_rows_differ(const struct cecl_nccl_rows *rows, const struct cecl_nccl_setup *here,
                           char *words, size_t bytes)
{
    const struct cecl_nccl_setup *nearest = NULL;
    for (size_t i = 0; i < rows->nverdicts + rows->ngains; i++) {
        const struct cecl_nccl_setup *its = i < rows->nverdicts
                                                ? &rows->verdicts[i].setup
                                                : &rows->gains[i - rows->nverdicts].setup;
        if (!nearest || agreement(its, here) > agreement(nearest, here))
            nearest = its;
    }
    if (!nearest || cecl_nccl_setup_is(nearest, here))
        return false;
    tell(nearest, here, words, bytes);
    return true;
}

/* ---- rows */

void cecl_nccl_rows_forget(struct cecl_nccl_rows *rows)
{
    free(rows->verdicts);
    free(rows->gains);
    *rows = (struct cecl_nccl_rows){0};
}

/* Makes room for one more row. False: no host memory. */
static bool grow(void **rows, size_t count, size_t bytes)
{
    if (count & (count - 1)) /* there is room up to the next power of two */
        return true;
    void *larger = realloc(*rows, (count > 0 ? 2 * count : 1) * bytes);
    if (larger)
        *rows = larger;
    return larger;
}

const struct cecl_nccl_verdict *cecl_nccl_rows_find(const struct cecl_nccl_rows *rows,
                                                    const struct cecl_nccl_setup *setup,
                                                    uint64_t subject)
{
    for (size_t i = 0; i < rows->nverdicts; i++)
        if (rows->verdicts[i].subject == subject &&
            cecl_nccl_setup_is(&rows->verdicts[i].setup, setup))
            return &rows->verdicts[i];
    return NULL;
}

bool cecl_nccl_rows_put(struct cecl_nccl_rows *rows, const struct cecl_nccl_verdict *verdict)
{
    const struct cecl_nccl_verdict *known =
        cecl_nccl_rows_find(rows, &verdict->setup, verdict->subject);
    if (known) {
        rows->verdicts[known - rows->verdicts] = *verdict;
        return true;
    }
    void *all = rows->verdicts;
    if (!grow(&all, rows->nverdicts, sizeof(*verdict)))
        return false;
    rows->verdicts = all;
    rows->verdicts[rows->nverdicts++] = *verdict;
    return true;
}

static bool put_gain(struct cecl_nccl_rows *rows, const struct cecl_nccl_gain *gain)
{
    void *all = rows->gains;
    if (!grow(&all, rows->ngains, sizeof(*gain)))
        return false;
    rows->gains = all;
    rows->gains[rows->ngains++] = *gain;
    return true;
}

/* ---- reading */

#define HEADER_BYTES (sizeof(CECL_NCCL_LEARNED_HEADER "\n") - 1)

/* A crash or a full disk can leave a part of a row, which must not make the other rows useless. */
static void skip(size_t number, const char *line, const char *expected, struct cecl_nccl_rows *rows)
{
    if (rows->nskipped++ == 0)
        snprintf(rows->skipped, sizeof(rows->skipped), "line %zu: %.80s: %s expected", number, line,
                 expected);
}

static ceclResult_t take(const char *path, size_t number, const char *line,
                         struct cecl_nccl_rows *rows)
{
    struct cecl_nccl_verdict verdict;
    struct cecl_nccl_gain gain;
    bool is_gain;
    const char *expected = cecl_nccl_row_parse(line, &verdict, &gain, &is_gain);
    if (expected) {
        skip(number, line, expected, rows);
        return ceclSuccess;
    }
    return (is_gain ? put_gain(rows, &gain) : cecl_nccl_rows_put(rows, &verdict))
               ? ceclSuccess
               : cecl_fail(ceclSystemError, "%s: no host memory", path);
}

/* Whether the file's first bytes are a part of the header: a crash while it was written. */
static bool is_begun(const char *start, ssize_t bytes)
{
    return bytes >= 0 && (size_t)bytes < HEADER_BYTES &&
           memcmp(start, CECL_NCCL_LEARNED_HEADER "\n", (size_t)bytes) == 0;
}

static ceclResult_t take_all(const char *path, FILE *in, struct cecl_nccl_rows *rows)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t bytes;
    ceclResult_t result = ceclSuccess;
    for (size_t number = 1; result == ceclSuccess && (bytes = getline(&line, &room, in)) >= 0;
         number++) {
        const bool is_part = number == 1 && is_begun(line, bytes);
        line[strcspn(line, "\n")] = '\0';
        const bool is_header = is_part || strcmp(line, CECL_NCCL_LEARNED_HEADER) == 0;
        const char first = line[strspn(line, " \t")];
        if (number == 1 && !is_header)
            result = cecl_fail(ceclInvalidArgument, "%s, line 1: %.80s: %s expected", path, line,
                               CECL_NCCL_LEARNED_HEADER);
        /* the header may be there twice, if two processes created the file at the same time */
        else if (!is_header && first != '#' && first != '\0')
            result = take(path, number, line, rows);
    }
    free(line);
    if (result != ceclSuccess || !ferror(in))
        return result;
    return cecl_fail(ceclSystemError, "%s: %s", path, strerror(errno));
}

ceclResult_t cecl_nccl_rows_read(const char *path, struct cecl_nccl_rows *rows)
{
    *rows = (struct cecl_nccl_rows){0};
    /* without O_NONBLOCK it would wait for somebody who writes to a pipe */
    const int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (file < 0)
        return errno == ENOENT ? ceclSuccess
                               : cecl_fail(ceclSystemError, "%s: %s", path, strerror(errno));
    if (lseek(file, 0, SEEK_CUR) < 0) {
        close(file);
        return cecl_fail(ceclInvalidArgument, "%s: a pipe; a file expected", path);
    }
    FILE *in = fdopen(file, "r");
    if (!in) {
        close(file);
        return cecl_fail(ceclOutOfMemory, "%s: no host memory", path);
    }
    const ceclResult_t result = take_all(path, in, rows);
    fclose(in);
    if (result != ceclSuccess)
        cecl_nccl_rows_forget(rows);
    return result;
}

/* ---- writing */

/* What must be written before a new line: the rest of the header, or the end of an unfinished line. */
static const char *before_line(int file)
{
    char start[HEADER_BYTES], last = '\n';
    const ssize_t bytes = pread(file, start, sizeof(start), 0);
    if (is_begun(start, bytes))
        return &(CECL_NCCL_LEARNED_HEADER "\n")[bytes];
    return pread(file, &last, 1, lseek(file, 0, SEEK_END) - 1) == 1 && last != '\n' ? "\n" : "";
}

ceclResult_t cecl_nccl_rows_append(const char *path, const char *line)
{
    char text[CECL_NCCL_ROW_BYTES + HEADER_BYTES + 2];
    const int file = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0)
        return cecl_fail(ceclSystemError, "%s: %s", path, strerror(errno));
    const int bytes = snprintf(text, sizeof(text), "%s%s\n", before_line(file), line);
    const ssize_t written = write(file, text, (size_t)bytes);
    const int error = written < 0 ? errno : ENOSPC;
    close(file);
    return written == bytes ? ceclSuccess
                            : cecl_fail(ceclSystemError, "%s: %s", path, strerror(error));
}
