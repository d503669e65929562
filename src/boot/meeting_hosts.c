/* A meeting of ranks on several hosts, who share no memory. The first member is the root. It takes the other members'
 * connections at the listener that its mesh keeps (mesh_hosts.c), and both sides prove the secret (tcp.h).
 *
 *     member -> root    its list, and its part or why it refuses
 *     root -> member    all parts, once all have come with the same list; or why the meeting failed
 *
 * No link of the parent is needed, so leaders may have ended. If the root closes a member's connection without a
 * reply, the member connects again, because the root may be between two calls. */
#include <inttypes.h>
#include <poll.h>

#include "boot/meeting_internal.h"
#include "boot/mesh_internal.h"
#include "boot/net.h"
#include "boot/tcp.h"
#include "util/clock.h"

#define TICK_MS 50
#define REST_MS 20    /* ms between two tries to reach the root */
#define SLICE_MS 1000 /* ms of the first wait for the root; then members are checked */

/* Waits for the root's reply. The root has this rank's list already. */
static ceclResult_t await_reply(const struct cecl_meeting_plan *plan, int root, int fd,
                                int64_t deadline)
{
    struct pollfd reply = {.fd = fd, .events = POLLIN};
    while (poll(&reply, 1, TICK_MS) <= 0) {
        const ceclResult_t there = meeting_check_there(plan, root);
        if (there != ceclSuccess) /* the root may have replied before it left */
            return poll(&reply, 1, 0) > 0 ? ceclSuccess : there;
        if (cecl_ms_left(deadline) == 0)
            return cecl_fail(ceclTimeout,
                             "rank %d, the first of those that stay, still waited for others after "
                             "%" PRId64 " ms (CECL_INIT_TIMEOUT_MS)",
                             root, plan->timeout_ms);
    }
    return ceclSuccess;
}

static size_t parts_bytes(const struct cecl_meeting_plan *plan)
{
    size_t bytes = 0;
    for (int r = 0; r < plan->nranks; r++)
        bytes += cecl_rank_set_has(&plan->members, r) ? plan->bytes : 0;
    return bytes;
}

/* Returns the outcome. *again: the root has closed the connection without a reply, so this rank must connect
 * again. */
static ceclResult_t hear(const struct cecl_meeting_plan *plan, int root, int fd, int64_t deadline,
                         void *parts, bool *again)
{
    struct cecl_tcp_reply reply;
    char words[CECL_MESSAGE_BYTES] = "", who[32];
    const size_t most = sizeof(words) - 1;
    snprintf(who, sizeof(who), "rank %d", root);
    CECL_TRY(await_reply(plan, root, fd, deadline));
    *again = cecl_net_recv(fd, -1, &reply, sizeof(reply), deadline, who) != ceclSuccess;
    if (*again)
        return ceclRemoteError;
    if (reply.status == ceclSuccess)
        return parts && reply.bytes == parts_bytes(plan)
                   ? cecl_net_recv(fd, -1, parts, (size_t)reply.bytes, deadline, who)
                   : cecl_fail(ceclInternalError, "rank %d sent no parts of a meeting", root);
    CECL_TRY(cecl_net_recv(fd, -1, words, reply.bytes < most ? (size_t)reply.bytes : most, deadline,
                           who));
    return cecl_fail_with((ceclResult_t)reply.status, words);
}

static ceclResult_t check_members(const struct cecl_meeting_plan *plan)
{
    for (int r = 0; r < plan->nranks; r++)
        if (cecl_rank_set_has(&plan->members, r))
            CECL_TRY(meeting_check_there(plan, r));
    return ceclSuccess;
}

/* Connects to the root, whose call may begin later. */
static ceclResult_t call_root(const struct cecl_meeting_plan *plan, int root,
                              struct meeting_said *said, int64_t deadline, int *fd)
{
    struct cecl_tcp_answer answer = {.magic = CECL_TCP_MAGIC,
                                     .rank = plan->rank,
                                     .nranks = plan->nranks,
                                     .timeout_ms = plan->timeout_ms};
    const struct mesh_door *door = &plan->mesh->hosts->doors[root];
    struct cecl_tcp_id id = {.magic = CECL_TCP_MAGIC, .at.kept = door->at};
    int64_t slice_ms = SLICE_MS;
    if (cecl_tcp_length(id.at.any.sa_family) == 0)
        return cecl_fail(ceclInvalidUsage,
                         "rank %d, the first of those that stay, cannot be reached from other "
                         "hosts: set CECL_SOCKET_IFNAME on all ranks",
                         root);
    memcpy(id.secret, door->secret, sizeof(id.secret));
    for (;; slice_ms *= 2) {
        CECL_TRY(check_members(plan));
        const int64_t slice = cecl_deadline(slice_ms), end = slice < deadline ? slice : deadline;
        said->more_ms = deadline == CECL_NO_DEADLINE ? -1
                        : deadline - end < INT32_MAX ? (int32_t)(deadline - end)
                                                     : INT32_MAX;
        memcpy(answer.part, said, sizeof(*said));
        if (cecl_tcp_call(&id, &answer, end, fd) == ceclSuccess)
            return ceclSuccess;
        if (cecl_ms_left(deadline) == 0)
            return cecl_fail(ceclTimeout,
                             "rank %d did not come within %" PRId64 " ms (CECL_INIT_TIMEOUT_MS)",
                             root, plan->timeout_ms);
        poll(NULL, 0, REST_MS);
    }
}

/* Connects to the root, again if necessary, until the root has said how the meeting ended. */
static ceclResult_t be_member(const struct cecl_meeting_plan *plan, int root,
                              struct meeting_said *said, int64_t deadline, void *parts)
{
    bool again = true;
    ceclResult_t result = ceclSuccess;
    while (again) {
        int fd;
        again = false;
        CECL_TRY(call_root(plan, root, said, deadline, &fd));
        result = hear(plan, root, fd, deadline, parts, &again);
        cecl_net_close(fd);
    }
    return result;
}

static int root_of(const struct cecl_meeting_plan *plan)
{
    return first_of_both(&plan->members, &plan->members);
}

bool meeting_is_over_hosts(const struct cecl_meeting_plan *plan)
{
    for (int r = 0; r < plan->nranks; r++)
        if (cecl_rank_set_has(&plan->members, r) && cecl_mesh_is_away(plan->mesh, r))
            return true;
    return false;
}

ceclResult_t meeting_join_over_hosts(const struct cecl_meeting_plan *plan, void *parts)
{
    const int root = root_of(plan);
    struct meeting_said said = {.members = plan->members};
    memcpy(said.bytes, plan->part, plan->bytes);
    return root == plan->rank ? meeting_be_root(plan, parts)
                              : be_member(plan, root, &said, plan->deadline, parts);
}

/* Removes the ranks that have gone from the plan's members. If a rank refuses because its list is invalid, its
 * plan has all ranks as members. The other ranks' lists leave out the ranks that have gone. */
static void drop_gone(struct cecl_meeting_plan *plan)
{
    for (int r = 0; r < plan->nranks; r++)
        if (cecl_rank_set_has(&plan->members, r) && meeting_check_there(plan, r) != ceclSuccess)
            cecl_rank_set_remove(&plan->members, r);
}

bool meeting_refuse_over_hosts(const struct cecl_meeting_plan *plan, ceclResult_t result)
{
    struct cecl_meeting_plan living = *plan;
    struct meeting_said said = {.members = plan->members, .result = (int32_t)result};
    char words[CECL_MESSAGE_BYTES];
    cecl_keep_message(words);
    snprintf(said.bytes, sizeof(said.bytes), "%s", words);
    if (cecl_rank_set_has(&plan->members, plan->rank)) /* so the list does not become empty */
        drop_gone(&living);
    (void)!cecl_fail_with(result, words);
    if (!meeting_is_over_hosts(&living))
        return false;
    const int root = root_of(&living);
    if (root < plan->rank)
        (void)!be_member(&living, root, &said, cecl_deadline(MEETING_TOLD_MS), NULL);
    else
        meeting_refuse_as_root(&living, result);
    return true;
}
