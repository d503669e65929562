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
    CECL_SETTING_ORDINAL, /* a number, or a word that stands for a number */
    CECL_SETTING_TEXT
};

/* Whether all ranks must have equal values of a setting; compare_config in src/api/introduce.c checks it. */
enum cecl_setting_ranks { CECL_SETTING_EQUAL, CECL_SETTING_OWN };

/* The table. A setting is X(id, "NAME", kind, ranks, "default as text", "what applies if that is -", "range
 * or choices", "what it does"). Choices are separated by '|', and a choice's value is its position.
 * CECL_SETTING_BYTES accepts the suffixes K, M, G and T. A range of CECL_SETTING_ORDINAL has words first and
 * numbers last; the words' values are -1, -2, ... A setting with the default "-" has no default. */
#define CECL_SETTINGS(X) \
    X(CHECK, "CECL_CHECK", INT, EQUAL, "0", "", "0..1", \
      "1: ranks compare the arguments of each collective before it starts, and a difference is " \
      "an error; the host waits for the comparison. On the host device a line tells of a call " \
      "whose memory GPUs would refuse") \
    X(CUDA_DEVICE, "CECL_CUDA_DEVICE", ORDINAL, OWN, "-", "current", "current|rank|0..65536", \
      "which GPU a rank takes: the thread's current one, rank modulo the number of visible GPUs, " \
      "or the GPU with this number") \
    X(DEBUG, "CECL_DEBUG", CHOICE, OWN, "warn", "", "none|warn|info|plan", \
      "what is written to stderr. plan: as info, and each plan when it is made. Read once in a " \
      "process") \
    X(DEVICE, "CECL_DEVICE", CHOICE, EQUAL, "-", "auto", "auto|cuda|host", \
      "where ranks run. cuda: on GPUs, or init fails; host: on the CPU; auto: on GPUs if each " \
      "rank has a GPU of its own, else on the CPU") \
    X(DIRECTION, "CECL_DIRECTION", CHOICE, EQUAL, "auto", "", "auto|push|pull", \
      "which rank copies a block: its owner (push) or its receiver (pull). auto: push, but " \
      "reductions as the tuning table says. Whatever is set, calls out of place without SMs " \
      "push, and so does an all-to-all with a sendbuff that peers cannot reach") \
    X(FLAGS, "CECL_FLAGS", CHOICE, EQUAL, "auto", "", "auto|host", \
      "how flags reach peers. host: a stream writes them to memory of the host. auto: a copy " \
      "engine copies them; but as host with CECL_URGENT=1, and if some rank has " \
      "CUDA_DEVICE_MAX_CONNECTIONS below 8 (copied flags could then hang after a failure)") \
    X(HOST_ID, "CECL_HOST_ID", TEXT, OWN, "-", "the machine's id", "text", \
      "the name of the rank's host: ranks with different names count as ranks of different " \
      "hosts. Set it for containers or cloned machines whose ids are equal, or to try a program " \
      "as if over several hosts") \
    X(INIT_TIMEOUT_MS, "CECL_INIT_TIMEOUT_MS", INT, OWN, "60000", "", "1..86400000", \
      "limit of each wait while a communicator is made, ms; ceclGetUniqueId reads it, too") \
    X(MAX_SMS, "CECL_MAX_SMS", INT, EQUAL, "-", "by the tuning table", "1..1024", \
      "the most SMs that a kernel of cecl may take; results do not depend on it") \
    X(NCCL, "CECL_NCCL", CHOICE, OWN, "auto", "", "off|auto|all|strict", \
      "which calls of NCCL cecl carries out. off: none; auto: those that are faster by trials or " \
      "measurements; all: all that it can; strict: as all, but a call that only moves data " \
      "returns ncclInvalidUsage if it would take an SM or be passed. If ranks differ, all ranks " \
      "pass all calls to NCCL, but strict beside off refuses. cecl's libnccl.so.2 reads " \
      "CECL_NCCL and CECL_NCCL_... at a process's first call of NCCL") \
    X(NCCL_PATH, "CECL_NCCL_PATH", TEXT, OWN, "-", "searched for", "file name", \
      "the NCCL to which calls are passed, and which carries communicators over several hosts. " \
      "If not set, the first of: for several hosts, an NCCL that the program has loaded; the " \
      "NCCL of a Python wheel beside a library of the process; one in LD_LIBRARY_PATH; the " \
      "system's") \
    X(NCCL_STATS, "CECL_NCCL_STATS", INT, OWN, "0", "", "0..1", \
      "1: when a process that called collectives of NCCL ends, it prints to stderr which of them " \
      "cecl carried out") \
    X(NCCL_STATS_FILE, "CECL_NCCL_STATS_FILE", TEXT, OWN, "-", "none", "file name", \
      "with CECL_NCCL_STATS=1: each process also appends the table to this file, as one line of " \
      "JSON; /dev/stdout and pipes that are being read are served, too") \
    X(NCCL_TRIALS, "CECL_NCCL_TRIALS", INT, OWN, "1", "", "0..1", \
      "1: under CECL_NCCL=auto NCCL and cecl take turns in the program's own steps, and the " \
      "faster one is kept; 0: the built-in table decides, so all runs have the same calls " \
      "served. If ranks differ, 0 applies") \
    X(NODE_SIZE, "CECL_NODE_SIZE", INT, EQUAL, "-", "not set", "1..1024", \
      "how many ranks count as one host, to try a program as if over several hosts") \
    X(NVTX, "CECL_NVTX", INT, OWN, "0", "", "0..1", \
      "1: NVIDIA's profilers show the host time of each call, as an NVTX range of the domain " \
      "cecl; needs a library built with CUDA") \
    X(POOL_BYTES, "CECL_POOL_BYTES", BYTES, EQUAL, "-", "the smallest GPU's memory; host 4G", \
      "1M..16T", "address range reserved for one rank's symmetric pool, bytes") \
    X(REGISTER_ON_USE, "CECL_REGISTER_ON_USE", INT, OWN, "-", "1", "0..1", \
      "1: a call registers the memory that it uses; 0: peers reach only memory of ceclMemAlloc " \
      "and ceclCommRegister") \
    X(SEGMENT_BYTES, "CECL_SEGMENT_BYTES", BYTES, EQUAL, "-", "64M; host device 1M", "4K..1T", \
      "first growth step of the pool, bytes; doubles with each growth, up to 16 times this") \
    X(SHARE_GPU, "CECL_SHARE_GPU", INT, EQUAL, "0", "", "0..1", \
      "1: ranks may share a GPU, each in a process of its own, to try programs with more ranks " \
      "than GPUs. Copies then stay within the GPU and run on its SMs, so no call is zero SM, and " \
      "times have no meaning") \
    X(SM_POLICY, "CECL_SM_POLICY", CHOICE, EQUAL, "-", "reduce_only", "never|reduce_only|allow", \
      "which calls may take SMs. never: none, a call that needs an SM is refused; reduce_only: " \
      "reductions; allow: all") \
    X(SOCKET_IFNAME, "CECL_SOCKET_IFNAME", TEXT, OWN, "-", "loopback", "interface name", \
      "network interface on which ceclGetUniqueId listens. For ranks on several hosts, set it in " \
      "the process that makes the id; with ceclCommInitMpi and ceclCommInitOob, on rank 0") \
    X(STAGING_BYTES, "CECL_STAGING_BYTES", BYTES, EQUAL, "-", "by the tuning table", "4K..64G", \
      "staging memory for all-to-all, gather, scatter and reductions, bytes a rank") \
    X(TIMEOUT_MS, "CECL_TIMEOUT_MS", INT, EQUAL, "-", "30000", "0..86400000", \
      "limit of each wait for peers, ms; 0: no limit") \
    X(TUNING, "CECL_TUNING", TEXT, EQUAL, "-", "the built-in tuning table", "file name", \
      "file of thresholds that replace those of the built-in table, as cecl_tune writes it; " \
      "cecl_info --tuning prints the table in force, and what each threshold decides") \
    X(URGENT, "CECL_URGENT", INT, EQUAL, "-", "0", "0..1", \
      "1: small calls that only move data, and flags, go through memory of the host, so that " \
      "they do not wait behind large copies of other communicators")

/* Other names that begin with CECL_ and may be in the environment: options of CMake, variables of
 * tests and scripts, and where cecl is installed. A name that ends with _ covers all names that begin with it.
 * scripts/check_env.sh finds names that are missing here. */
#define CECL_OTHER_NAMES \
    "CECL_ARCHITECTURES", "CECL_BASELINE_NCCL", "CECL_BENCH", "CECL_CMOCKA_ROOT", \
        "CECL_COMPUTE_SANITIZER", "CECL_CUDA", "CECL_DIR", "CECL_EXAMPLES", "CECL_FUZZ", \
        "CECL_HOME", "CECL_KERNELS", "CECL_KERNEL_FOLDER", "CECL_MPI", "CECL_PACKAGER", \
        "CECL_ROOT", "CECL_RUN_NOTE", "CECL_SANITIZE", "CECL_SOAK_SECONDS", "CECL_SOAK_SEED", \
        "CECL_TESTS", "CECL_TEST_", "CECL_WERROR", "CECL_WHEEL"

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
    /* for settings without a default: what applies if neither the environment nor ceclConfig_t has a value, as text */
    const char *otherwise;
    const char *range;
    const char *doc;
};
extern const struct cecl_setting cecl_settings[CECL_SETTING_COUNT];

/* Reads a number, a byte size or a choice. If the environment does not set the setting and there is no default, *value
 * is unchanged. An invalid value gives ceclInvalidArgument; the message names the variable, the value and the range. */
ceclResult_t cecl_setting_read(enum cecl_setting_id id, int64_t *value);

/* The value of a text setting; NULL when it is not set. */
const char *cecl_setting_text(enum cecl_setting_id id);

/* The value that applies if the setting is not set, as text. */
const char *cecl_setting_default(enum cecl_setting_id id);

/* Parses `text` as a value of setting `id`. */
ceclResult_t cecl_setting_parse(enum cecl_setting_id id, const char *text, int64_t *value);

/* Warns, once in a process, of each variable in the environment that begins with CECL_ but that nothing reads. */
void cecl_settings_warn(void);
bool cecl_setting_is_known(const char *name);

#endif
