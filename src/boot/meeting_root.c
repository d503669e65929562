/* The root of a meeting over hosts: takes the connections of the other members, judges what they say, and tells all of
 * them how the meeting ended; see meeting_hosts.c. */
#include <inttypes.h>
#include <stdlib.h>

#include "boot/meeting_internal.h"
#include "boot/mesh_internal.h"
#include "boot/net.h"
#include "boot/tcp.h"
#include "util/clock.h"

#define TICK_MS 50
#define WORDS_MS 1000 /* how long sending to one member may take */
/* ms after which a list that differs fails the meeting. Ranks learn of a death at different times, so news that
 * explains the difference may still come. */
#define NEWS_MS 1000

/* What the root knows of one rank. */
struct seat {
    int fd;          /* -1: the rank has not come, or has gone again */
    int64_t news_by; /* when a rank's list differs: time at which that fails the meeting */
    bool knows;      /* the rank was told why the meeting failed */
    struct meeting_said said;
};

struct root {
    const struct cecl_meeting_plan *plan;
    struct cecl_door door;
    int64_t deadline; /* a little before the first member gives up */
    enum {
        NO_FAULT,
        REFUSED,
        LISTS_DIFFER,
        EXCLUDES_ITSELF
    } fault;            /* a mistake of the program, of which all ranks are told */
    struct seat *seats; /* [nranks] */
};

static bool is_awaited(const struct root *root, int rank)
{
    const struct seat *seat = &root->seats[rank];
    return rank != root->plan->rank && cecl_rank_set_has(&root->plan->members, rank) &&
           (seat->fd < 0 || !equal(&seat->said.members, &root->plan->members));
}

static void hang_up(struct seat *seat)
{
    if (seat->fd >= 0)
        cecl_net_close(seat->fd);
    seat->fd = -1;
}

/* Sends how the meeting ended, and then the parts or the error message. Returns whether all bytes were sent. */
static bool send_reply(const struct seat *seat, ceclResult_t result, const void *bytes,
                       size_t count)
{
    const int64_t deadline = cecl_deadline(WORDS_MS);
    const struct cecl_tcp_reply reply = {.status = (int32_t)result, .bytes = count};
    return cecl_net_send(seat->fd, &reply, sizeof(reply), deadline, "a rank") == ceclSuccess &&
           cecl_net_send(seat->fd, bytes, count, deadline, "a rank") == ceclSuccess;
}

/* Tells a rank why its meeting failed, and closes the connection. Without the reply, the rank comes again. */
static void tell(struct seat *seat, ceclResult_t result, const char *words)
{
    seat->knows = send_reply(seat, result, words, strlen(words));
    hang_up(seat);
}

static void name_lists(const struct root *root, int rank)
{
    const struct cecl_meeting_plan *plan = root->plan;
    struct cecl_rank_list mine = list_of(&plan->members, plan->nranks, false),
                          theirs = list_of(&root->seats[rank].said.members, plan->nranks, false);
    (void)!cecl_fail(ceclInvalidUsage,
                     "ranks differ in which ranks they exclude: %s on rank %d, %s on rank %d",
                     cecl_rank_list_words(&mine), plan->rank, cecl_rank_list_words(&theirs), rank);
}

/* Judges a rank that has come with another list than the root's. An error fails the meeting. */
static ceclResult_t judge_list(struct root *root, int rank)
{
    const struct cecl_meeting_plan *plan = root->plan;
    struct seat *seat = &root->seats[rank];
    for (int r = 0; r < plan->nranks; r++)
        if (cecl_rank_set_has(&seat->said.members, r) && !cecl_rank_set_has(&plan->members, r)) {
            const ceclResult_t there = meeting_check_there(plan, r);
            if (there != ceclSuccess) { /* `rank` does not know yet that rank r has gone */
                tell(seat, there, cecl_message());
                return ceclSuccess;
            }
        }
    /* a rank that is not a member may have come to this rank's next call */
    if (!cecl_rank_set_has(&plan->members, rank) || cecl_ms_left(seat->news_by) > 0)
        return ceclSuccess;
    name_lists(root, rank);
    root->fault = LISTS_DIFFER;
    return ceclInvalidUsage;
}

static ceclResult_t judge_refusal(struct root *root, int rank)
{
    struct seat *seat = &root->seats[rank];
    const struct meeting_said *said = &seat->said;
    if (!cecl_rank_set_has(&root->plan->members, rank)) {
        tell(seat, (ceclResult_t)said->result, "");
        return ceclSuccess;
    }
    if (cecl_rank_set_has(&said->members, rank)) {
        root->fault = REFUSED;
        return cecl_fail((ceclResult_t)said->result, "rank %d: %.200s", rank, said->bytes);
    }
    root->fault = LISTS_DIFFER;
    name_lists(root, rank);
    return ceclInvalidUsage;
}

/* Judges a rank, whether it has come or not. An error fails the meeting. */
static ceclResult_t judge(struct root *root, int rank)
{
    struct seat *seat = &root->seats[rank];
    const struct meeting_said *said = &seat->said;
    if (seat->fd >= 0 && said->result == ceclSuccess && cecl_net_look(seat->fd) == 0)
        hang_up(seat); /* the rank has given up, or has ended */
    if (seat->fd < 0)
        return is_awaited(root, rank) ? meeting_check_there(root->plan, rank) : ceclSuccess;
    if (said->result != ceclSuccess)
        return judge_refusal(root, rank);
    return equal(&said->members, &root->plan->members) ? ceclSuccess : judge_list(root, rank);
}

/* Gives a caller its seat, if the caller knows the secret. If the rank has come before, closes its old connection,
 * which the rank no longer uses. */
static void admit(struct root *root, const struct cecl_caller *caller)
{
    const struct cecl_meeting_plan *plan = root->plan;
    const uint8_t *secret = plan->mesh->hosts->doors[plan->rank].secret;
    struct cecl_tcp_answer answer;
    if (!cecl_tcp_verify(secret, caller, &answer) || answer.rank < 0 ||
        answer.rank >= plan->nranks || answer.rank == plan->rank) {
        cecl_net_close(caller->fd);
        return;
    }
    struct seat *seat = &root->seats[answer.rank];
    hang_up(seat);
    seat->fd = caller->fd;
    seat->news_by = cecl_deadline(NEWS_MS);
    memcpy(&seat->said, answer.part, sizeof(seat->said));
    if (seat->said.result != ceclSuccess) /* then `bytes` is a message */
        seat->said.bytes[sizeof(seat->said.bytes) - 1] = '\0';
    const int64_t left = seat->said.more_ms < 0 ? 0 : answer.patience_ms + seat->said.more_ms,
                  margin = left / 10 < WORDS_MS ? left / 10 : WORDS_MS;
    if (left > 0 && cecl_deadline(left - margin) < root->deadline)
        root->deadline = cecl_deadline(left - margin);
}

static void attend(struct root *root, int64_t deadline)
{
    struct cecl_caller caller;
    const int left = cecl_ms_left(deadline);
    cecl_door_attend(&root->door, left < 0 || left > TICK_MS ? TICK_MS : left);
    while (cecl_door_next(&root->door, &caller))
        admit(root, &caller);
}

static ceclResult_t await_members(struct root *root)
{
    const struct cecl_meeting_plan *plan = root->plan;
    for (;;) {
        struct cecl_rank_list late = {.count = 0};
        for (int r = 0; r < plan->nranks; r++)
            CECL_TRY(judge(root, r));
        for (int r = 0; r < plan->nranks; r++)
            if (is_awaited(root, r))
                cecl_rank_list_add(&late, r);
        if (late.count == 0)
            return ceclSuccess;
        if (cecl_ms_left(root->deadline) == 0)
            return cecl_fail(ceclTimeout,
                             "%s did not come within %" PRId64 " ms (CECL_INIT_TIMEOUT_MS)",
                             cecl_rank_list_words(&late), plan->timeout_ms);
        const int trouble = cecl_door_trouble(&root->door);
        if (trouble)
            return cecl_fail(ceclSystemError, "rank %d cannot take the connections of others: %s",
                             plan->rank, strerror(trouble));
        attend(root, root->deadline);
    }
}

/* Whether some living rank that may wait for this rank was not told yet. */
static bool awaits_some(const struct root *root)
{
    const struct cecl_meeting_plan *plan = root->plan;
    for (int r = 0; r < plan->nranks; r++)
        if (r != plan->rank && !root->seats[r].knows &&
            (root->fault == EXCLUDES_ITSELF || cecl_rank_set_has(&plan->members, r)) &&
            cecl_mesh_check_peer(plan->mesh, r, "") == ceclSuccess)
            return true;
    return false;
}

/* Tells a rank that has come why the meeting failed. If the rank has another list, and the program made no
 * mistake, only closes the connection: the rank may have made its next call already, and will connect again. */
static void tell_one(struct root *root, int rank, ceclResult_t result, const char *words)
{
    struct seat *seat = &root->seats[rank];
    if (root->fault == EXCLUDES_ITSELF) {
        name_lists(root, rank);
        tell(seat, ceclInvalidUsage, cecl_message());
    } else if (root->fault || equal(&seat->said.members, &root->plan->members)) {
        tell(seat, result, words);
    } else {
        hang_up(seat);
    }
}

/* Tells the ranks that have come why the meeting failed. If the program made a mistake, also tells ranks that come
 * within MEETING_TOLD_MS. If a rank that was told comes again, it has made its next call, and waits for this
 * rank's next call. */
static void tell_all(struct root *root, ceclResult_t result, const char *words)
{
    const int64_t deadline = cecl_deadline(MEETING_TOLD_MS);
    bool goes_on = true;
    while (goes_on) {
        for (int r = 0; r < root->plan->nranks; r++)
            if (root->seats[r].fd >= 0 && !root->seats[r].knows)
                tell_one(root, r, result, words);
        goes_on = root->fault && cecl_ms_left(deadline) > 0 && awaits_some(root);
        if (goes_on)
            attend(root, deadline);
    }
}

/* Sends all parts to all members, and copies them to `parts`. */
static void hand_out(struct root *root, void *parts)
{
    const struct cecl_meeting_plan *plan = root->plan;
    char *at = parts;
    memcpy(root->seats[plan->rank].said.bytes, plan->part, plan->bytes);
    for (int r = 0; r < plan->nranks; r++)
        if (cecl_rank_set_has(&plan->members, r)) {
            memcpy(at, root->seats[r].said.bytes, plan->bytes);
            at += plan->bytes;
        }
    for (int r = 0; r < plan->nranks; r++)
        if (root->seats[r].fd >= 0 && cecl_rank_set_has(&plan->members, r))
            (void)send_reply(&root->seats[r], ceclSuccess, parts, (size_t)(at - (char *)parts));
}

static ceclResult_t open_root(struct root *root, const struct cecl_meeting_plan *plan)
{
    struct cecl_mesh *mesh = plan->mesh;
    *root = (struct root){.plan = plan,
                          .deadline = plan->deadline,
                          .seats = calloc((size_t)plan->nranks, sizeof(*root->seats))};
    if (!root->seats)
        return cecl_fail(ceclOutOfMemory, "no host memory to meet %d ranks", plan->nranks);
    for (int r = 0; r < plan->nranks; r++)
        root->seats[r].fd = -1;
    if (mesh->reach_fd < 0)
        return cecl_fail(ceclSystemError, "rank %d takes no connections of other hosts any more",
                         plan->rank);
    const int listener = mesh->reach_fd;
    mesh->reach_fd = -1;
    return cecl_door_open(&root->door, listener, sizeof(struct cecl_tcp_answer), cecl_tcp_greet);
}

static void close_root(struct root *root)
{
    if (root->door.bytes > 0)
        root->plan->mesh->reach_fd = cecl_door_leave(&root->door);
    for (int r = 0; r < root->plan->nranks && root->seats; r++)
        hang_up(&root->seats[r]);
    free(root->seats);
}

ceclResult_t meeting_be_root(const struct cecl_meeting_plan *plan, void *parts)
{
    struct root root;
    char words[CECL_MESSAGE_BYTES];
    ceclResult_t result = open_root(&root, plan);
    if (result == ceclSuccess)
        result = await_members(&root);
    cecl_keep_message(words);
    if (result == ceclSuccess)
        hand_out(&root, parts);
    else if (root.door.bytes > 0)
        tell_all(&root, result, words);
    close_root(&root);
    return cecl_fail_with(result, words);
}

void meeting_refuse_as_root(const struct cecl_meeting_plan *plan, ceclResult_t result)
{
    struct root root;
    char words[CECL_MESSAGE_BYTES];
    (void)!cecl_fail(result, "rank %d: %.200s", plan->rank, cecl_message());
    cecl_keep_message(words);
    const bool counts_itself = cecl_rank_set_has(&plan->members, plan->rank);
    if (open_root(&root, plan) == ceclSuccess) {
        root.fault = counts_itself ? REFUSED : EXCLUDES_ITSELF;
        tell_all(&root, result, words);
    }
    close_root(&root);
}
