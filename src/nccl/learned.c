/* See learned.h. */
#include "nccl/learned.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nccl/gpu.h"
#include "nccl/process.h"
#include "util/log.h"
#include "util/settings.h"

/* The lock is taken only when a communicator is made and when a trial begins or ends, not at each call. */
static struct {
    pthread_mutex_t lock;
    bool is_read, is_usable, has_told;
    char path[PATH_MAX];
    struct cecl_nccl_rows rows;
    size_t nread; /* verdicts that the file had; further ones are of this run */
    struct cecl_nccl_known *known;
} learned = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Makes the file's name absolute, because the program may change its working directory. */
static bool name_file(const char *name)
{
    char folder[PATH_MAX] = "";
    if (*name != '/' && !getcwd(folder, sizeof(folder)))
        return false;
    const int length =
        snprintf(learned.path, sizeof(learned.path), "%s%s%s", folder, *folder ? "/" : "", name);
    const bool fits = length > 0 && (size_t)length < sizeof(learned.path);
    if (!fits)
        learned.path[0] = '\0';
    return fits;
}

static void read_once(void)
{
    const char *name = cecl_setting_text(CECL_SET_NCCL_LEARNED);
    learned.is_read = true;
    if (!name || cecl_nccl_process()->policy != CECL_NCCL_AUTO)
        return;
    learned.is_usable =
        name_file(name) && cecl_nccl_rows_read(learned.path, &learned.rows) == ceclSuccess;
    if (!learned.is_usable)
        cecl_log(
            CECL_LOG_WARN, -1, "CECL_NCCL_LEARNED is ignored: %s",
            *learned.path
                ? cecl_message()
                : "its name is too long, or the name of the working directory cannot be found out");
    if (learned.rows.nskipped > 0)
        cecl_log(CECL_LOG_WARN, -1, "%s, %s. Lines skipped: %zu", learned.path,
                 learned.rows.skipped, learned.rows.nskipped);
    learned.nread = learned.rows.nverdicts;
}

static void warn_of_misfit(const struct cecl_nccl_setup *setup)
{
    char words[256];
    struct cecl_nccl_rows of_file = learned.rows;
    of_file.nverdicts = learned.nread;
    if (learned.has_told || !cecl_nccl_rows_differ(&of_file, setup, words, sizeof(words)))
        return;
    learned.has_told = true;
    cecl_log(CECL_LOG_WARN, -1, "%s is ignored: %s", learned.path, words);
}

static struct cecl_nccl_setup setup_of(int ordinal, int nranks, const int *nodes)
{
    char name[sizeof(((struct cecl_nccl_setup *)NULL)->gpu)] = "unknown";
    if (ordinal >= 0)
        cecl_nccl_gpu_name(ordinal, name, sizeof(name));
    return cecl_nccl_setup_make(ordinal >= 0 ? name : NULL, nranks, nodes,
                                cecl_nccl_process()->real.version);
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0xbf58476d1ce4e5b9);
    return hash ^ hash >> 31;
}

static void add_gain(struct cecl_nccl_known *known, const struct cecl_nccl_gain *gain)
{
    const struct cecl_nccl_layout *nodes = &gain->setup.nodes;
    known->gains[known->ngains++] = *gain;
    known->hash = mix(known->hash + 1, (uint64_t)gain->op << 32 | (uint32_t)gain->type);
    known->hash = mix(mix(known->hash, gain->least * 2 + gain->on_windows), gain->most);
    known->hash = mix(mix(known->hash, (uint64_t)nodes->count),
                      (uint64_t)nodes->most << 32 | (uint32_t)nodes->least) |
                  1;
}

static struct cecl_nccl_known *make_known(const struct cecl_nccl_setup *setup)
{
    const struct cecl_nccl_rows *rows = &learned.rows;
    struct cecl_nccl_known *known = calloc(1, sizeof(*known));
    struct cecl_nccl_gain *gains = calloc(rows->ngains + 1, sizeof(*gains));
    if (!known || !gains) {
        free(known);
        free(gains);
        return NULL;
    }
    *known = (struct cecl_nccl_known){.next = learned.known, .setup = *setup, .gains = gains};
    for (size_t i = 0; i < rows->ngains; i++)
        if (cecl_nccl_setup_is(&rows->gains[i].setup, setup))
            add_gain(known, &rows->gains[i]);
    for (size_t i = 0; i < rows->nverdicts; i++)
        known->has_verdicts =
            known->has_verdicts || cecl_nccl_setup_is(&rows->verdicts[i].setup, setup);
    learned.known = known;
    return known;
}

static struct cecl_nccl_known *find_known(const struct cecl_nccl_setup *setup)
{
    for (struct cecl_nccl_known *known = learned.known; known; known = known->next)
        if (known->setup.nodes.count == setup->nodes.count &&
            cecl_nccl_setup_is(&known->setup, setup))
            return known;
    return make_known(setup);
}

const struct cecl_nccl_known *cecl_nccl_learned_of(int ordinal, int nranks, const int *nodes,
                                                   bool speaks)
{
    struct cecl_nccl_known *known = NULL;
    pthread_mutex_lock(&learned.lock);
    if (!learned.is_read)
        read_once();
    if (learned.is_usable) {
        const struct cecl_nccl_setup setup = setup_of(ordinal, nranks, nodes);
        known = find_known(&setup);
        if (speaks)
            warn_of_misfit(&setup);
    }
    pthread_mutex_unlock(&learned.lock);
    return known;
}

bool cecl_nccl_learned_recall(const struct cecl_nccl_known *known, uint64_t subject,
                              struct cecl_nccl_verdict *verdict)
{
    pthread_mutex_lock(&learned.lock);
    const struct cecl_nccl_verdict *row =
        cecl_nccl_rows_find(&learned.rows, &known->setup, subject);
    if (row)
        *verdict = *row;
    pthread_mutex_unlock(&learned.lock);
    return row;
}

void cecl_nccl_learned_keep(const struct cecl_nccl_known *known, struct cecl_nccl_verdict verdict)
{
    char line[CECL_NCCL_ROW_BYTES];
    verdict.setup = known->setup;
    pthread_mutex_lock(&learned.lock);
    const struct cecl_nccl_verdict *row =
        cecl_nccl_rows_find(&learned.rows, &known->setup, verdict.subject);
    const bool is_new = !row || strcmp(row->way, verdict.way) != 0;
    (void)cecl_nccl_rows_put(&learned.rows, &verdict);
    pthread_mutex_unlock(&learned.lock);
    if (!is_new)
        return;
    cecl_nccl_verdict_text(&verdict, line);
    if (cecl_nccl_rows_append(learned.path, line) != ceclSuccess)
        cecl_log(CECL_LOG_WARN, -1, "a verdict could not be added to CECL_NCCL_LEARNED: %s",
                 cecl_message());
}

const char *cecl_nccl_learned_name(void)
{
    return learned.path;
}
