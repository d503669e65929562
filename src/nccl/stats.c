/* Counts calls by function, size and result. Threads share the counters by atomic additions, without a lock that one of
 * them could hold when the process ends. */
#include "nccl/report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nccl/process.h"
#include "util/file.h"
#include "util/grow.h"
#include "util/log.h"

/* Classes of sizes. A class has the sizes up to `most` bytes that are in no earlier class. */
static const struct {
    size_t most;
    const char *words;
} classes[] = {
    {0, "0"},
    {(size_t)4 << 10, "to 4 KiB"},
    {(size_t)64 << 10, "to 64 KiB"},
    {(size_t)1 << 20, "to 1 MiB"},
    {(size_t)16 << 20, "to 16 MiB"},
    {(size_t)256 << 20, "to 256 MiB"},
    {SIZE_MAX, "more"},
};
#define CLASSES (sizeof(classes) / sizeof(classes[0]))

struct counter {
    _Atomic uint64_t calls;
    _Atomic uint64_t bytes;
};
static _Atomic bool has_counted; /* this process has counted a call; cleared in a forked child */
/* bits of the last index of `counters`: MARK is `mark` of cecl_nccl_stats_count; CAPTURED: the calls were captured */
enum { MARK = 1, CAPTURED = 2, KINDS = 4 };
static struct counter counters[CECL_NCCL_OPS][CLASSES][CECL_NCCL_REASON_COUNT][KINDS];

/* All symbols whose calls jump.c passes on; symbol.c counts the collectives among them. */
#define JUMP(name, answer) extern struct cecl_nccl_symbol cecl_nccl_at_##name;
#include "nccl/names.h"
static struct cecl_nccl_symbol *const symbols[] = {
#define JUMP(name, answer) &cecl_nccl_at_##name,
#include "nccl/names.h"
};
#define SYMBOLS (sizeof(symbols) / sizeof(symbols[0]))

/* This process's ranks in the largest communicators that it has made, in ascending order, for the table's title. */
static struct {
    pthread_mutex_t lock;
    int nranks;
    int *ranks, count, room;
} largest = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- printing */

/* Prints "rank 3 of 8", or "ranks 0 1 of 2" if threads are ranks. */
static void print_ranks(FILE *out)
{
    CECL_LOCKED(&largest.lock);
    fprintf(out, largest.count == 0 ? "rank unknown" : largest.count == 1 ? "rank" : "ranks");
    for (int i = 0; i < largest.count; i++)
        fprintf(out, " %d", largest.ranks[i]);
    if (largest.count > 0)
        fprintf(out, " of %d", largest.nranks);
}

/* A row of the table: the calls of one function with the same size class, result and reason. */
struct row {
    const char *name, *class, *by, *zero_sm, *why;
    uint64_t calls, bytes;
    bool is_known; /* `bytes` is known; false if this library does not know the calls' arguments */
    bool is_failure, is_first;
    bool is_captured; /* the calls were captured; replays are not counted */
};

static struct row row_of(const char *name, const char *class, uint64_t calls, size_t reason,
                         bool mark)
{
    const bool served = reason == CECL_NCCL_NO_REASON;
    return (struct row){.name = name,
                        .class = class,
                        .by = served ? "cecl"
                              : mark ? "refused"
                                     : "NCCL",
                        /* only NCCL knows whether its calls used SMs */
                        .zero_sm = served ? (mark ? "no" : "yes")
                                   : mark ? "-"
                                          : "unknown",
                        .why = cecl_nccl_reason_words[reason],
                        .calls = calls,
                        .is_failure = reason == CECL_NCCL_NOT_MADE};
}

/* Writes a row, if it counts at least one call. */
static void put(FILE *out, void (*write)(FILE *, const struct row *), struct row *row, bool *any)
{
    row->is_first = !*any;
    if (row->calls > 0)
        write(out, row);
    *any = *any || row->calls > 0;
}

static void each_row(FILE *out, void (*write)(FILE *, const struct row *))
{
    bool any = false;
    for (size_t i = 0; i < CECL_NCCL_OPS * CLASSES * CECL_NCCL_REASON_COUNT * KINDS; i++) {
        const size_t op = i / (CLASSES * CECL_NCCL_REASON_COUNT * KINDS),
                     which = i / (CECL_NCCL_REASON_COUNT * KINDS) % CLASSES,
                     reason = i / KINDS % CECL_NCCL_REASON_COUNT;
        const struct counter *counter = &counters[op][which][reason][i % KINDS];
        struct row row =
            row_of(cecl_nccl_op_names[op], classes[which].words, counter->calls, reason, i & MARK);
        row.is_captured = (i & CAPTURED) != 0;
        row.bytes = counter->bytes;
        row.is_known = true;
        put(out, write, &row, &any);
    }
    for (size_t i = 0; i < 2 * SYMBOLS; i++) {
        struct cecl_nccl_symbol *symbol = symbols[i / 2];
        struct row row =
            row_of(symbol->name, "unknown", symbol->calls[i % 2], CECL_NCCL_NO_SUCH_OP, i % 2);
        put(out, write, &row, &any);
    }
}

static void print_row(FILE *out, const struct row *row)
{
    char bytes[21] = "unknown";
    if (row->is_known)
        snprintf(bytes, sizeof(bytes), "%" PRIu64, row->bytes);
    fprintf(out, "cecl: %-18s %-10s %8" PRIu64 " %16s  %-7s %-8s %s%s%s%s\n", row->name, row->class,
            row->calls, bytes, row->by, row->zero_sm, row->is_captured ? "captured: " : "",
            row->why, row->is_failure ? ": " : "", row->is_failure ? cecl_nccl_failure() : "");
}

static void print_table(FILE *out)
{
    fprintf(out, "cecl: ");
    print_ranks(out);
    fprintf(out, ", process %d: calls of NCCL\n", (int)getpid());
    fprintf(out, "cecl: %-18s %-10s %8s %16s  %-7s %-8s %s\n", "function", "bytes", "calls",
            "bytes in all", "by", "zero SM", "why");
    each_row(out, print_row);
    cecl_nccl_report_print(out);
}

static void json_row(FILE *out, const struct row *row)
{
    fprintf(out,
            "%s{\"function\": \"%s\", \"class\": \"%s\", \"calls\": %" PRIu64
            ", \"bytes\": %" PRIu64
            ", \"by\": \"%s\", \"zero_sm\": \"%s\", \"captured\": %s, \"why\": \"%s\"}",
            row->is_first ? "" : ", ", row->name, row->class, row->calls, row->bytes, row->by,
            row->zero_sm, row->is_captured ? "true" : "false", row->why);
}

static void json_table(FILE *out)
{
    fprintf(out, "{\"process\": %d, \"calls\": [", (int)getpid());
    each_row(out, json_row);
    fprintf(out, "], \"communicators\": ");
    cecl_nccl_report_json(out);
    fprintf(out, "}\n");
}

/* ---- the job */

/* A command that cecl-run starts may have many processes. If none of them has printed a table of calls, the command's
 * first process says so, in one line, when it ends.
 *
 * cecl-run becomes the command (exec), so it cannot print anything afterwards. With --stats it sets CECL_RUN_NOTE in
 * the environment: the command's process id, a space, and the name of a file that does not exist. A process that prints
 * a table creates the file. When the command's process ends, it removes the file, or prints the line if there is no
 * file. If it ends without its exit handlers (by a signal, or as dash does), it prints no line and the file stays. */

/* Splits CECL_RUN_NOTE. Returns the file's name, or NULL if cecl-run left no note. */
static const char *read_note(long *process)
{
    const char *note = getenv("CECL_RUN_NOTE");
    char *end;
    if (!note)
        return NULL;
    *process = strtol(note, &end, 10);
    return *end == ' ' ? end + 1 : NULL;
}

/* Notes that this process has printed a table. */
static void note_table(void)
{
    long process;
    const char *file = read_note(&process);
    const int fd = file ? open(file, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600) : -1;
    if (fd >= 0)
        close(fd);
}

/* Runs at the end of every process that has the library preloaded, even of a job's shells and helper programs. Does
 * nothing except in the process that CECL_RUN_NOTE names. */
__attribute__((destructor)) static void tell_if_there_is_no_table(void)
{
    static const char words[] =
        "cecl: no call of NCCL was counted: the command made none, or NCCL is linked into its "
        "program statically, or LD_PRELOAD did not reach it (sudo, ssh, a container)\n";
    const int error = errno;
    long process;
    const char *file = read_note(&process);
    if (file && process == (long)getpid() && unlink(file) != 0 && errno == ENOENT)
        (void)!write(STDERR_FILENO, words, sizeof(words) - 1);
    errno = error;
}

/* ---- at the process's end */

/* Writes a table in one piece, because processes share a terminal or a file, and their tables must not mix. */
static ceclResult_t write_whole(int fd, void (*table)(FILE *out))
{
    struct cecl_writing writing;
    CECL_OWNED char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (!out)
        return cecl_fail(ceclOutOfMemory, "no host memory");
    cecl_writing_begin(&writing);
    table(out);
    cecl_writing_end(&writing);
    return fclose(out) == 0 && text ? cecl_file_write(fd, text, length)
                                    : cecl_fail(ceclOutOfMemory, "no host memory");
}

/* Duplicates the descriptor if the file is /dev/stdout or /dev/stderr: a file that is opened again has its own offset,
 * so the program's later output would overwrite the table. Opening a pipe that nobody reads fails at once. */
static int open_stats(const char *file)
{
    const int own = strcmp(file, "/dev/stdout") == 0   ? STDOUT_FILENO
                    : strcmp(file, "/dev/stderr") == 0 ? STDERR_FILENO
                                                       : -1;
    const int fd =
        own >= 0
            ? fcntl(own, F_DUPFD_CLOEXEC, 0)
            : open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
    if (fd < 0)
        cecl_record("%s%s", strerror(errno), errno == ENXIO ? " (a pipe that nobody reads?)" : "");
    return fd;
}

static void append_json(const char *file)
{
    const int fd = open_stats(file);
    if (fd < 0 || write_whole(fd, json_table) != ceclSuccess)
        cecl_log(CECL_LOG_WARN, -1, "CECL_NCCL_STATS_FILE=%s: not written: %s", file,
                 cecl_message());
    if (fd >= 0)
        close(fd);
}

/* Prints the table, if this process has counted a call. */
static void print_tables(void)
{
    const char *file = cecl_nccl_process()->stats_file;
    if (!atomic_load(&has_counted))
        return;
    (void)!write_whole(STDERR_FILENO, print_table);
    note_table();
    if (file[0] != '\0')
        append_json(file);
}

/* ---- counting */

void cecl_nccl_stats_note_rank(int rank, int nranks)
{
    int at = 0;
    if (!cecl_nccl_process()->counts)
        return;
    CECL_LOCKED(&largest.lock);
    if (nranks > largest.nranks)
        largest.count = 0;
    largest.nranks = nranks > largest.nranks ? nranks : largest.nranks;
    while (at < largest.count && largest.ranks[at] < rank)
        at++;
    const bool is_new = at == largest.count || largest.ranks[at] != rank;
    if (nranks == largest.nranks && is_new &&
        CECL_HAS_ROOM(largest.ranks, largest.count, largest.room)) {
        memmove(&largest.ranks[at + 1], &largest.ranks[at],
                (size_t)(largest.count++ - at) * sizeof(*largest.ranks));
        largest.ranks[at] = rank;
    }
}

static size_t class_of(size_t bytes)
{
    size_t which = 0;
    while (bytes > classes[which].most)
        which++;
    return which;
}

/* Forgets the calls so far in a forked child: its parent made them. */
static void forget_calls(void)
{
    memset(counters, 0, sizeof(counters));
    for (size_t i = 0; i < SYMBOLS; i++)
        memset(symbols[i]->calls, 0, sizeof(symbols[i]->calls));
    /* another thread of the parent may have held the lock */
    largest.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    largest.nranks = largest.count = 0;
    cecl_nccl_report_forget();
    atomic_store(&has_counted, false);
}

static void register_handlers(void)
{
    pthread_atfork(NULL, NULL, forget_calls);
    atexit(print_tables);
}

/* Called for each counted call. The first call registers the handlers. */
static void note_count(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_handlers);
    if (!atomic_load_explicit(&has_counted, memory_order_relaxed))
        atomic_store(&has_counted, true);
}

void cecl_nccl_stats_count_symbol(struct cecl_nccl_symbol *symbol, bool refused)
{
    note_count();
    atomic_fetch_add(&symbol->calls[refused], 1);
}

void cecl_nccl_stats_count(const struct cecl_nccl_call *call, bool mark)
{
    const enum cecl_nccl_reason reason = call->way.reason;
    note_count();
    const size_t bytes = cecl_nccl_call_bytes(call);
    const int kind = (mark ? MARK : 0) | (call->way.is_captured ? CAPTURED : 0);
    struct counter *counter = &counters[call->op][class_of(bytes)][reason][kind];
    atomic_fetch_add_explicit(&counter->calls, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&counter->bytes, bytes, memory_order_relaxed);
}
