/* The environment's settings. One table feeds parsing, cecl_info and docs/env.md. */
#ifndef CECL_UTIL_SETTINGS_H
#define CECL_UTIL_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "util/error.h"

enum cecl_setting_kind {
    CECL_SETTING_INT,
    CECL_SETTING_BYTES,
    CECL_SETTING_CHOICE,
    CECL_SETTING_ORDINAL, /* a number, or a word that stands for one */
    CECL_SETTING_TEXT
};

/* Whether all ranks must have equal values of a setting (checked by compare_config in
 * src/api/introduce.c). */
enum cecl_setting_ranks { CECL_SETTING_EQUAL, CECL_SETTING_OWN };

/* The table. A setting is X(id, "NAME", kind, ranks, "default as text", "what holds when that is
 * -", "range or choices", "what it does"). Choices are separated by '|', and a choice's value is
 * its position. CECL_SETTING_BYTES accepts the suffixes K, M, G and T. A range of
 * CECL_SETTING_ORDINAL has words first and numbers last; the words' values are -1, -2, ... "-" as
 * default means that there is none. */
#define CECL_SETTINGS(X)                                                                           \
    X(CHECK, "CECL_CHECK", INT, EQUAL, "0", "", "0..1",                                            \
      "1: every collective compares its arguments with the peers' before it starts; blocks the "   \
      "host, finds mismatches")                                                                    \
    X(CUDA_DEVICE, "CECL_CUDA_DEVICE", ORDINAL, OWN, "-", "current", "current|rank|0..65536",      \
      "which GPU a rank takes: the thread's current one, rank modulo the number of visible GPUs, " \
      "or the GPU with this number")                                                               \
    X(DEBUG, "CECL_DEBUG", CHOICE, OWN, "warn", "", "none|warn|info|plan",                         \
      "what is written to stderr; plan: info, and each plan when it is made; read once in a "      \
      "process")                                                                                   \
    X(DEVICE, "CECL_DEVICE", CHOICE, EQUAL, "-", "auto", "auto|cuda|host",                         \
      "where ranks run: cuda or an error, host without a GPU, auto: cuda if each rank has a GPU "  \
      "of its own")                                                                                \
    X(DIRECTION, "CECL_DIRECTION", CHOICE, EQUAL, "auto", "", "auto|push|pull",                    \
      "who moves a block: its owner (push) or its receiver (pull); auto: the tuning table "        \
      "decides. Blocks that peers return to their owner (see CECL_SM_POLICY) are always pushed; "  \
      "an all-to-all is pulled only where peers can reach every sendbuff")                         \
    X(FLAGS, "CECL_FLAGS", CHOICE, EQUAL, "auto", "", "auto|write|copy|host",                      \
      "how flags reach peers: remote stream writes, copy-engine copies of a word (auto; falls "    \
      "back to write), or stream writes to memory of the host (auto with CECL_URGENT=1, or where " \
      "CUDA_DEVICE_MAX_CONNECTIONS is below 8 on some rank; copy or write may hang there when a "  \
      "rank fails)")                                                                               \
    X(HOST_ID, "CECL_HOST_ID", TEXT, OWN, "-", "found out", "text",                                \
      "ranks with different texts count as on different hosts, even on one host. For containers "  \
      "or cloned machines with equal ids, and to try a program as over several hosts")             \
    X(INIT_TIMEOUT_MS, "CECL_INIT_TIMEOUT_MS", INT, OWN, "60000", "", "1..86400000",               \
      "bound of every wait while a communicator is made, ms; read by ceclGetUniqueId too")         \
    X(LOCAL_COPY, "CECL_LOCAL_COPY", CHOICE, EQUAL, "auto", "", "auto|probe|off",                  \
      "whether a communicator tries, as it is made, if copies within a GPU run on a copy engine: " \
      "a "                                                                                         \
      "kernel holds all SMs meanwhile, for 50 ms at most. auto: with drivers newer than CUDA "     \
      "13.0; "                                                                                     \
      "probe: with any, and the host device says yes. If so on all ranks, small blocks of a "      \
      "rank's own are copied so, where peers would return them")                                   \
    X(MAX_SMS, "CECL_MAX_SMS", INT, EQUAL, "-", "what measurements chose", "1..1024",              \
      "most SMs that a kernel of cecl's may take; results do not depend on it")                    \
    X(NCCL, "CECL_NCCL", CHOICE, OWN, "auto", "", "off|auto|all|strict",                           \
      "read by cecl's libnccl.so.2 at a process's first call of NCCL, as are the next five: "      \
      "which calls of NCCL cecl carries out. off: none; auto: those with which trials or "         \
      "measurements say it is faster; all: all that it can; strict: as all, but a call that only " \
      "moves data returns "                                                                        \
      "ncclInvalidUsage if it would not be zero SM. Where ranks differ, all pass all calls to "    \
      "NCCL")                                                                                      \
    X(NCCL_LEARNED, "CECL_NCCL_LEARNED", TEXT, OWN, "-", "nothing is kept", "file name",           \
      "under CECL_NCCL=auto: keeps what trials found, with the GPU, the ranks, NCCL and cecl "     \
      "that "                                                                                      \
      "it holds for, and begins there next time, also with CECL_NCCL_TRIALS=0. Made where there "  \
      "is none; rows of gains in it, as cecl_tune --against nccl writes them, stand in for the "   \
      "built-in table")                                                                            \
    X(NCCL_PATH, "CECL_NCCL_PATH", TEXT, OWN, "-", "searched for", "file name",                    \
      "the NCCL to which calls are passed, and which carries data between nodes of GPUs. If not "  \
      "set: the NCCL of a Python wheel beside a library of the process, then that of "             \
      "LD_LIBRARY_PATH, then the system's; between nodes first the one that the program has "      \
      "loaded")                                                                                    \
    X(NCCL_STATS, "CECL_NCCL_STATS", INT, OWN, "0", "", "0..1",                                    \
      "1: a process that called collectives of NCCL prints what became of them to stderr when "    \
      "it ends")                                                                                   \
    X(NCCL_STATS_FILE, "CECL_NCCL_STATS_FILE", TEXT, OWN, "-", "none", "file name",                \
      "with CECL_NCCL_STATS=1: each process also appends the table to this file, as one line of "  \
      "JSON")                                                                                      \
    X(NCCL_TRIALS, "CECL_NCCL_TRIALS", INT, OWN, "1", "", "0..1",                                  \
      "1: under CECL_NCCL=auto NCCL and cecl take turns in the program's own steps, or in calls "  \
      "of "                                                                                        \
      "a class where there are no steps, and the one that makes them shorter is kept; 0: "         \
      "CECL_NCCL_LEARNED or the built-in table decides, so "                                       \
      "a run has the same calls served as the next. Where ranks differ, 0")                        \
    X(NET, "CECL_NET", CHOICE, EQUAL, "auto", "", "auto|mpi",                                      \
      "what carries data between nodes on the host device. mpi: MPI, also between pretended "      \
      "nodes, in communicators that ceclCommInitMpi makes; it needs MPI_THREAD_MULTIPLE. auto: "   \
      "MPI between hosts, shared memory between pretended nodes")                                  \
    X(NODE_SIZE, "CECL_NODE_SIZE", TEXT, EQUAL, "-", "one node", "ranks",                          \
      "makes pretended nodes of one host: so many ranks in each, as in 4, or a list, as in 3,5. "  \
      "What leaves a node goes over the network: shared memory on the host device, NCCL on GPUs")  \
    X(NVTX, "CECL_NVTX", INT, OWN, "0", "", "0..1",                                                \
      "1: calls are NVTX ranges of the domain cecl, for NVIDIA's profilers, for as long as they "  \
      "take on the host; needs a library built with CUDA")                                         \
    X(POOL_BYTES, "CECL_POOL_BYTES", BYTES, EQUAL, "-", "the smallest GPU's memory; host 4G",      \
      "1M..16T", "address range reserved for one rank's symmetric pool, bytes")                    \
    X(REGISTER_ON_USE, "CECL_REGISTER_ON_USE", INT, OWN, "-", "1", "0..1",                         \
      "1: memory that a call uses is registered by itself; 0: only memory of ceclMemAlloc and "    \
      "ceclCommRegister is within reach of peers")                                                 \
    X(SEGMENT_BYTES, "CECL_SEGMENT_BYTES", BYTES, EQUAL, "-", "by the tuning table", "4K..1T",     \
      "first growth step of the pool, bytes; doubles with each growth, up to 16 times this")       \
    X(SHARE_GPU, "CECL_SHARE_GPU", INT, EQUAL, "0", "", "0..1",                                    \
      "1: ranks may be on one GPU, each in a process of its own, to try programs where there are " \
      "fewer GPUs than ranks. Copies then stay within the GPU and run on its SMs: nothing is "     \
      "zero "                                                                                      \
      "SM, and times say nothing")                                                                 \
    X(SM_POLICY, "CECL_SM_POLICY", CHOICE, EQUAL, "-", "reduce_only", "never|reduce_only|allow",   \
      "which SM use is allowed; never: a call that needs an SM is refused")                        \
    X(SOCKET_IFNAME, "CECL_SOCKET_IFNAME", TEXT, OWN, "-", "loopback", "interface name",           \
      "network interface on which ceclGetUniqueId listens, and by which hosts are linked. For "    \
      "ranks on several hosts set it where the id is made; with ceclCommInitMpi and "              \
      "ceclCommInitOob set it on all ranks")                                                       \
    X(STAGING_BYTES, "CECL_STAGING_BYTES", BYTES, EQUAL, "-", "by the tuning table", "4K..64G",    \
      "staging memory for all-to-all, gather, scatter and reductions, bytes a rank")               \
    X(TIMEOUT_MS, "CECL_TIMEOUT_MS", INT, EQUAL, "-", "30000", "0..86400000",                      \
      "bound of every wait on peers, ms; 0: none")                                                 \
    X(TRACE, "CECL_TRACE", TEXT, OWN, "-", "no trace", "file name",                                \
      "host times of calls, for chrome://tracing and Perfetto: a file for each rank; %r in the "   \
      "name is the rank (without it, .rank is appended), %p the process id; an older file is "     \
      "replaced. Written every 8192 calls, and when the communicator is destroyed or aborted")     \
    X(TUNING, "CECL_TUNING", TEXT, EQUAL, "-", "the built-in tuning table", "file name",           \
      "file of thresholds that replace those of the built-in table, as cecl_tune writes it; "      \
      "cecl_info --tuning prints the table in force, and what each threshold decides")             \
    X(URGENT, "CECL_URGENT", INT, EQUAL, "-", "0", "0..1",                                         \
      "1: small calls that only move data go through memory of the host, and flags lie there, so " \
      "that they do not wait behind large copies of other communicators")

/* Other names that begin with CECL_ and may be in the environment: options of CMake, variables of
 * tests and scripts, and where cecl is installed. A name that ends with _ covers all names that
 * begin with it. scripts/check_env.sh finds a missing one. */
#define CECL_OTHER_NAMES                                                                           \
    "CECL_BASELINE_NCCL", "CECL_BENCH", "CECL_CMOCKA_ROOT", "CECL_COMPUTE_SANITIZER", "CECL_CUDA", \
        "CECL_DIR", "CECL_EXAMPLES", "CECL_FUZZ", "CECL_HOME", "CECL_KERNELS",                     \
        "CECL_KERNEL_FOLDER", "CECL_MPI", "CECL_PACKAGER", "CECL_ROOT", "CECL_RUN_NOTE",           \
        "CECL_SANITIZE", "CECL_SOAK_SECONDS", "CECL_TESTS", "CECL_TEST_", "CECL_WERROR",           \
        "CECL_WHEEL"

enum cecl_setting_id {
#define CECL_SETTING_ENUM(id, name, kind, ranks, fallback, otherwise, range, doc) CECL_SET_##id,
    CECL_SETTINGS(CECL_SETTING_ENUM)
#undef CECL_SETTING_ENUM
        CECL_SETTING_COUNT
};

struct cecl_setting {
    const char *name;
    enum cecl_setting_kind kind;
    enum cecl_setting_ranks ranks;
    const char *fallback; /* default as text; "-": no default */
    /* text: what holds without a default, if ceclConfig_t does not say either */
    const char *otherwise;
    const char *range;
    const char *doc;
};
extern const struct cecl_setting cecl_settings[CECL_SETTING_COUNT];

/* Reads a number, a byte size or a choice. When the environment does not set it and there is no
 * default, *is_set is false and *value is untouched. A bad value gives ceclInvalidArgument; the
 * message names the variable, the value and the range. */
ceclResult_t cecl_setting_read(enum cecl_setting_id id, int64_t *value, bool *is_set);

/* The value of a text setting; NULL when it is not set. */
const char *cecl_setting_text(enum cecl_setting_id id);

/* As text: the value that is in force if nobody sets it. */
const char *cecl_setting_default(enum cecl_setting_id id);

/* Parses `text` as setting `id` would. Used by cecl_setting_read and its tests. */
ceclResult_t cecl_setting_parse(enum cecl_setting_id id, const char *text, int64_t *value);

/* settings_unknown.c. Warns of each variable in the environment that begins with CECL_ and that
 * nothing reads. Does so once in a process. */
void cecl_settings_warn(void);
bool cecl_setting_is_known(const char *name);

/* The setting that the writer of `name` may have meant; NULL when there is none. */
const char *cecl_setting_nearest(const char *name);

#endif
