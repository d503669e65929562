/* The text of a file that CECL_NCCL_LEARNED names: what was learned, and on what machine. It is
 * text:
 *
 *     cecl-learned 1
 *     # verdict  GPU ranks NCCL cecl   period way us-before us-after gain-per-1000
 *     verdict NVIDIA_H200 4 22809 0.1.0 05b1fce29c5c6a17 with_sms 78200 69700 109
 *     # gains    GPU ranks NCCL cecl   operation type memory least-bytes most-bytes
 *     gains NVIDIA_H200 4 22809 0.1.0 all_gather any plain 16777216 268435456
 *
 * The first four words of a row are its setup: a row counts only where GPU, number of ranks, NCCL and
 * cecl are the same. A verdict says which way made the steps of a program, or a class of calls, shortest. A row of gains
 * says in what sizes cecl is faster than NCCL; `0 0`: in none that was measured. Lines are only added,
 * and of two verdicts on one period the later one counts. Numbers are whole, because a program's locale
 * may write others with a comma. What stands behind # is not read. */
#ifndef CECL_NCCL_LEARNED_FILE_H
#define CECL_NCCL_LEARNED_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nccl/call.h"
#include "util/error.h"

#define CECL_NCCL_LEARNED_HEADER "cecl-learned 1"
#define CECL_NCCL_ROW_BYTES 320
#define CECL_NCCL_ANY_TYPE (-1)

/* Where a row is valid. */
struct cecl_nccl_setup {
    char gpu[64]; /* name without blanks; "host": the host device */
    int nranks;
    int nccl;      /* the version, as ncclGetVersion gives it */
    char cecl[24]; /* the version, for example 0.1.0 */
};

struct cecl_nccl_verdict {
    struct cecl_nccl_setup setup;
    uint64_t subject; /* a hash of the period's calls, or of a class of calls */
    char way[32];     /* learn.c names them */
    unsigned before_us, after_us;
    int gain;       /* 109: steps became 10.9 % shorter */
    char words[80]; /* of a class: what it is, for people; it is not read */
};

struct cecl_nccl_gain {
    struct cecl_nccl_setup setup;
    enum cecl_nccl_op op;
    int type; /* an ncclDataType_t, or CECL_NCCL_ANY_TYPE */
    bool on_windows;
    size_t least, most; /* bytes of one rank or one block, as the function's count */
};

struct cecl_nccl_rows {
    struct cecl_nccl_verdict *verdicts;
    size_t nverdicts;
    struct cecl_nccl_gain *gains;
    size_t ngains;
};

/* Copies a GPU's name; blanks and # become _. NULL: the host device. */
void cecl_nccl_setup_name(struct cecl_nccl_setup *setup, const char *gpu);
/* The setup of this cecl with an NCCL. */
struct cecl_nccl_setup cecl_nccl_setup_make(const char *gpu, int nranks, int nccl);
bool cecl_nccl_setup_is(const struct cecl_nccl_setup *a, const struct cecl_nccl_setup *b);

/* Describes how `here` differs from the most similar row. False: some row agrees, or there is no
 * row. */
bool cecl_nccl_rows_differ(const struct cecl_nccl_rows *rows, const struct cecl_nccl_setup *here,
                           char *words, size_t bytes);

/* Reads rows, which cecl_nccl_rows_forget frees. A missing or empty file has no rows.
 * ceclInvalidArgument: the message names file, line, and what was expected; no row is kept. */
ceclResult_t cecl_nccl_rows_read(const char *path, struct cecl_nccl_rows *rows);
void cecl_nccl_rows_forget(struct cecl_nccl_rows *rows);

/* Adds a verdict, or replaces the one on the same period. False: no host memory. */
bool cecl_nccl_rows_put(struct cecl_nccl_rows *rows, const struct cecl_nccl_verdict *verdict);
const struct cecl_nccl_verdict *cecl_nccl_rows_find(const struct cecl_nccl_rows *rows,
                                                    const struct cecl_nccl_setup *setup,
                                                    uint64_t subject);

/* The text of a row, without a line end. */
void cecl_nccl_verdict_text(const struct cecl_nccl_verdict *row, char text[CECL_NCCL_ROW_BYTES]);
void cecl_nccl_gain_text(const struct cecl_nccl_gain *row, char text[CECL_NCCL_ROW_BYTES]);

/* Adds a line at the end of the file, and creates the file if need be. Makes one write, so nothing
 * is lost if several processes add lines at once. Errors: ceclSystemError. */
ceclResult_t cecl_nccl_rows_append(const char *path, const char *line);

/* -- learned_row.c -- */

/* Reads one line that is not empty. Returns NULL, or what was expected. *is_gain: the line is a
 * gain and no verdict. */
const char *cecl_nccl_row_parse(const char *line, struct cecl_nccl_verdict *verdict,
                                struct cecl_nccl_gain *gain, bool *is_gain);
/* An operation's name in the file; NULL for an operation that has no gains. */
const char *cecl_nccl_row_op(enum cecl_nccl_op op);
/* A type's name in the file, by the number of its ncclDataType_t. */
const char *cecl_nccl_row_type(int type);

#endif
