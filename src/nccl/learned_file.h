/* The file that CECL_NCCL_LEARNED names: what was learned, and on which machine. It is text:
 *
 *     cecl-learned 1
 *     # verdict  GPU ranks NCCL cecl   period way us-before us-after gain-per-1000
 *     verdict NVIDIA_H200 4 22809 0.1.0 05b1fce29c5c6a17 with_sms 78200 69700 109
 *     # gains    GPU ranks NCCL cecl   operation type memory least-bytes most-bytes
 *     gains NVIDIA_H200 4 22809 0.1.0 all_gather any plain 16777216 268435456
 *
 * The four words after the kind of a row are its setup: the row counts only if GPU, ranks, NCCL and cecl are
 * the same. Over several nodes the number of ranks is followed by the nodes, because another way may be the
 * fastest with other nodes:
 *
 *     8        8 ranks on one node
 *     8:2x4    on 2 nodes of 4
 *     8:2x3-5  on 2 nodes; the smallest has 3 ranks, and the largest 5. Layouts that are equal in this share rows
 *
 * A verdict says which way made the steps of a program, or the calls of a class, shortest. A row of gains says
 * for which sizes cecl is faster than NCCL; `0 0`: for none that was measured. Lines are only added; of two
 * verdicts on one period the later one counts. Numbers are integers, because a program's locale may print
 * others with a comma. Text after # is not read. A line that is no row, such as the part of one that a crash
 * can leave, is skipped. */
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

/* How ranks are spread over nodes. */
struct cecl_nccl_layout {
    int count;       /* of nodes; 0: any layout, in a setup that rows are compared with */
    int least, most; /* ranks of the smallest node, and of the largest */
};

/* For which machine and versions a row is valid. */
struct cecl_nccl_setup {
    char gpu[64]; /* the GPU's name, without blanks; "host": the host device */
    int nranks;
    struct cecl_nccl_layout nodes;
    int nccl;      /* the version, as ncclGetVersion gives it */
    char cecl[24]; /* the version, for example 0.1.0 */
};

struct cecl_nccl_verdict {
    struct cecl_nccl_setup setup;
    uint64_t subject; /* a hash of the period's calls, or of the class */
    char way[32];     /* one of cecl_nccl_arm_names */
    unsigned before_us, after_us;
    int gain;       /* 109: steps became 10.9 % shorter */
    char words[80]; /* describes a class, for people; not read from the file */
};

struct cecl_nccl_gain {
    struct cecl_nccl_setup setup;
    enum cecl_nccl_op op;
    int type; /* an ncclDataType_t, or CECL_NCCL_ANY_TYPE */
    bool on_windows;
    size_t least, most; /* bytes of one rank or one block, as the function counts */
};

struct cecl_nccl_rows {
    struct cecl_nccl_verdict *verdicts;
    size_t nverdicts;
    struct cecl_nccl_gain *gains;
    size_t ngains;
    size_t nskipped;   /* lines that are no rows */
    char skipped[256]; /* names the first of them, and says what was expected */
};

/* Copies a GPU's name; blanks and # become _. NULL: the host device. */
void cecl_nccl_setup_name(struct cecl_nccl_setup *setup, const char *gpu);
/* The setup for this version of cecl.
 * nodes  [nranks] the number of each rank's node; NULL: any layout of nodes */
struct cecl_nccl_setup cecl_nccl_setup_make(const char *gpu, int nranks, const int *nodes,
                                            int nccl);
/* Whether rows of the setup `its` count here. */
bool cecl_nccl_setup_is(const struct cecl_nccl_setup *its, const struct cecl_nccl_setup *here);

/* Describes how `here` differs from the most similar row. False: a row has the same setup, or there is no
 * row. */
bool cecl_nccl_rows_differ(const struct cecl_nccl_rows *rows, const struct cecl_nccl_setup *here,
                           char *words, size_t bytes);

/* Reads rows, which cecl_nccl_rows_forget frees. A missing or empty file has no rows.
 * ceclInvalidArgument: the file does not begin with the header, or is a pipe. */
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

/* Adds a line at the end of the file, and creates the file if necessary. Makes a single write, so no line
 * is lost if several processes add lines at once. Errors: ceclSystemError; a part of the line may be written. */
ceclResult_t cecl_nccl_rows_append(const char *path, const char *line);

/* -- learned_row.c -- */

/* Reads a line that is not empty. Returns NULL, or what was expected. *is_gain: whether the line has a
 * gain, and not a verdict. */
const char *cecl_nccl_row_parse(const char *line, struct cecl_nccl_verdict *verdict,
                                struct cecl_nccl_gain *gain, bool *is_gain);
/* An operation's name in the file; NULL for an operation that has no gains. */
const char *cecl_nccl_row_op(enum cecl_nccl_op op);
/* A type's name in the file, by ncclDataType_t. */
const char *cecl_nccl_row_type(int type);

#endif
