/* How a mesh over several hosts is made. Ranks of one host connect as in a mesh on one host, and each also
 * has lines to the leader's thread. A leader connects to all leaders with lower ranks. Both sides prove
 * that they know the secret of the side that listens, as a rank and the root of a unique id do (tcp.h). */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "boot/mesh_internal.h"
#include "boot/net.h"
#include "boot/rank_list.h"
#include "util/clock.h"
#include "util/fds.h"

#define GIVES_UP (-1) /* instead of nranks: the caller gives up, and its part says why */
/* ms to wait for the reason why a leader gives up, or to tell a leader such a reason */
#define REASON_MS 500
#define TICK_MS 50 /* ms within which it is noticed that a rank of this host gives up */
/* ms of silence after which a host counts as lost; fewer if the time limit is shorter */
#define SILENCE_MAX_MS 10000
#define SILENCE_MIN_MS 500

_Static_assert(sizeof(struct mesh_life) <= CECL_OOB_PART_BYTES, "an answer holds a reason");

static bool is_leader(const struct cecl_mesh *mesh)
{
    return mesh->hosts && mesh->hosts->leader == mesh->rank;
}

/* ---- before the ranks connect */

static union cecl_tcp_address read_address(const struct cecl_address *at)
{
    return (union cecl_tcp_address){.kept = *at};
}

static bool is_address(const struct cecl_address *at)
{
    return cecl_tcp_length(read_address(at).any.sa_family) > 0;
}

static bool allocate(struct mesh_hosts *hosts, size_t n)
{
    hosts->host = calloc(n, sizeof(*hosts->host));
    hosts->doors = calloc(n, sizeof(*hosts->doors));
    hosts->early = calloc(n, sizeof(*hosts->early));
    hosts->calls = calloc(n, sizeof(*hosts->calls));
    hosts->lines = calloc(n, sizeof(*hosts->lines));
    hosts->links = calloc(n, sizeof(*hosts->links));
    return hosts->host && hosts->doors && hosts->early && hosts->calls && hosts->lines &&
           hosts->links;
}

static void free_hosts(struct mesh_hosts *hosts)
{
    if (!hosts)
        return;
    free(hosts->host);
    free(hosts->doors);
    free(hosts->early);
    free(hosts->calls);
    free(hosts->lines);
    free(hosts->links);
    free(hosts);
}

static ceclResult_t make_room(struct cecl_mesh *mesh)
{
    const size_t n = (size_t)mesh->nranks;
    struct mesh_hosts *hosts = calloc(1, sizeof(*hosts));
    if (!hosts || !allocate(hosts, n)) {
        free_hosts(hosts);
        return cecl_fail(ceclOutOfMemory, "no host memory for %zu ranks on several hosts", n);
    }
    hosts->line[CECL_LINE_FRAMES] = hosts->line[CECL_LINE_LIFE] = -1;
    for (size_t r = 0; r < n; r++)
        hosts->links[r] = hosts->lines[r][0] = hosts->lines[r][1] = -1;
    mesh->room = hosts;
    return ceclSuccess;
}

ceclResult_t cecl_mesh_reach(struct cecl_mesh *mesh, struct cecl_reach *reach)
{
    if (mesh->oob->find_address)
        CECL_TRY(mesh->oob->find_address(mesh->oob, &mesh->at));
    union cecl_tcp_address at = read_address(&mesh->at);
    if (!is_address(&mesh->at))
        return ceclSuccess;
    CECL_TRY(make_room(mesh));       /* now, while ranks do not rely on each other yet */
    if (at.any.sa_family == AF_INET) /* the kernel chooses the port */
        at.v4.sin_port = 0;
    else
        at.v6.sin6_port = 0;
    CECL_TRY(
        cecl_net_listen(SOCK_STREAM, &at.any, cecl_tcp_length(at.any.sa_family), &mesh->reach_fd));
    reach->at = at.kept;
    return ceclSuccess;
}

static int first_of(const uint16_t *host, int number)
{
    int rank = 0;
    while (host[rank] != number)
        rank++;
    return rank;
}

/* Each leader must have an address at which the others reach it. */
static ceclResult_t check_reaches(const struct cecl_mesh *mesh, const uint16_t *host)
{
    struct cecl_rank_list list = {.count = 0};
    for (int r = 0; r < mesh->nranks; r++)
        if (first_of(host, host[r]) == r && !is_address(&mesh->hosts->doors[r].at))
            cecl_rank_list_add(&list, r);
    return list.count == 0 ? ceclSuccess
                           : cecl_fail(ceclInvalidUsage,
                                       "ranks 0 and %d are on different hosts (or network "
                                       "namespaces), and %s cannot be reached from another host: "
                                       "set CECL_SOCKET_IFNAME on all ranks, and where the unique "
                                       "id is made, to the interface that connects the hosts (up, "
                                       "with an IP address)",
                                       first_of(host, 1), cecl_rank_list_words(&list));
}

ceclResult_t cecl_mesh_spread(struct cecl_mesh *mesh, const uint16_t *host, const void *reaches,
                              size_t apart)
{
    if (!mesh->room)
        CECL_TRY(make_room(mesh));
    struct mesh_hosts *hosts = mesh->room;
    for (int r = 0; r < mesh->nranks; r++) {
        hosts->host[r] = host[r];
        memcpy(&hosts->doors[r].at, (const char *)reaches + (size_t)r * apart,
               sizeof(hosts->doors[r].at));
    }
    hosts->leader = first_of(host, host[mesh->rank]);
    mesh->hosts = hosts;
    mesh->room = NULL;
    return check_reaches(mesh, host);
}

/* From here on callers are refused, even if a child has the listener, too. */
static void stop_listening(struct cecl_mesh *mesh)
{
    if (mesh->reach_fd >= 0)
        cecl_net_close(mesh->reach_fd);
    mesh->reach_fd = -1;
}

void mesh_hosts_close(struct cecl_mesh *mesh)
{
    struct mesh_hosts *hosts = mesh->hosts;
    stop_listening(mesh);
    free_hosts(mesh->room);
    if (hosts)
        cecl_net_drop(hosts->line, CECL_LINES_OF_RANK);
    for (int r = 0; r < mesh->nranks && hosts; r++) {
        cecl_net_drop(hosts->lines[r], CECL_LINES_OF_RANK);
        cecl_net_drop(&hosts->links[r], 1);
    }
    free_hosts(hosts);
    mesh->hosts = mesh->room = NULL;
}

/* ---- lines within the host */

int *mesh_line_place(struct cecl_mesh *mesh, int rank, int channel)
{
    const int line = channel - MESH_LINES;
    return is_leader(mesh) && line >= 0 && line < CECL_LINES_OF_RANK
               ? &mesh->hosts->lines[rank][line]
               : NULL;
}

int mesh_lines_awaited(const struct cecl_mesh *mesh)
{
    int count = 0;
    for (int r = mesh->rank + 1; r < mesh->nranks && is_leader(mesh); r++)
        count += cecl_mesh_is_away(mesh, r) ? 0 : CECL_LINES_OF_RANK;
    return count;
}

/* The leader's own lines. */
static ceclResult_t make_own_lines(struct cecl_mesh *mesh)
{
    struct mesh_hosts *hosts = mesh->hosts;
    for (int line = 0; line < CECL_LINES_OF_RANK; line++) {
        int pair[2] = {-1, -1};
        cecl_fds_begin();
        const int made =
            socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair);
        cecl_fds_add(pair[0]);
        cecl_fds_made(pair[1]);
        if (made != 0)
            return cecl_fail(ceclSystemError, "socketpair: %s", strerror(errno));
        hosts->line[line] = pair[0];
        hosts->lines[mesh->rank][line] = pair[1];
    }
    return ceclSuccess;
}

/* ---- links between leaders */

static const char *words_of(const union cecl_tcp_address *at, char words[INET6_ADDRSTRLEN + 8])
{
    char address[INET6_ADDRSTRLEN] = "?";
    const bool is_v4 = at->any.sa_family == AF_INET;
    inet_ntop(at->any.sa_family,
              is_v4 ? (const void *)&at->v4.sin_addr : (const void *)&at->v6.sin6_addr, address,
              sizeof(address));
    snprintf(words, INET6_ADDRSTRLEN + 8, "%s:%u", address,
             (unsigned)ntohs(is_v4 ? at->v4.sin_port : at->v6.sin6_port));
    return words;
}

/* Connects to a leader. reason: why this host gives up; NULL: it does not, and *fd becomes the link */
static ceclResult_t call_leader(struct cecl_mesh *mesh, int leader, const uint8_t secret[16],
                                const struct mesh_life *reason, int64_t deadline, int *fd)
{
    char words[INET6_ADDRSTRLEN + 8];
    struct cecl_tcp_answer answer = {.magic = CECL_TCP_MAGIC,
                                     .rank = mesh->rank,
                                     .nranks = reason ? GIVES_UP : mesh->nranks,
                                     .timeout_ms = mesh->init_timeout_ms};
    if (reason)
        memcpy(answer.part, reason, sizeof(*reason));
    struct cecl_tcp_id id = {.magic = CECL_TCP_MAGIC,
                             .at = read_address(&mesh->hosts->doors[leader].at)};
    memcpy(id.secret, secret, sizeof(id.secret));
    const ceclResult_t result = cecl_tcp_call(&id, &answer, deadline, fd);
    return result == ceclSuccess
               ? ceclSuccess
               : cecl_fail(result == ceclInvalidUsage ? ceclRemoteError : result,
                           "no link from rank %d to rank %d's host at %s: rank %d has ended, or "
                           "its host cannot be reached there (CECL_SOCKET_IFNAME)",
                           mesh->rank, leader, words_of(&id.at, words), leader);
}

static ceclResult_t call_lower_leaders(struct cecl_mesh *mesh, const struct mesh_calls *calls)
{
    const uint16_t *host = mesh->hosts->host;
    for (int r = 0; r < mesh->rank; r++)
        if (first_of(host, host[r]) == r)
            CECL_TRY(call_leader(mesh, r, calls->invited(calls->context, r)->secret, NULL,
                                 mesh->init_deadline, &mesh->hosts->links[host[r]]));
    return ceclSuccess;
}

/* Notes why another host gives up. */
static void note_reason(struct cecl_mesh *mesh, const struct cecl_tcp_answer *answer)
{
    struct mesh_life reason;
    struct mesh_peer *peer = &mesh->peers[answer->rank];
    memcpy(&reason, answer->part, sizeof(reason));
    pthread_mutex_lock(&mesh->life_lock);
    if (atomic_load(&peer->state) == MESH_ALIVE && reason.kind == LIFE_ABORT)
        (void)mesh_note(peer, &reason, (ssize_t)sizeof(reason));
    pthread_mutex_unlock(&mesh->life_lock);
}

/* Takes the connection of a leader that has proved the secret, or notes why that leader gives up. */
static void admit(struct cecl_mesh *mesh, const struct cecl_caller *caller)
{
    const uint16_t *host = mesh->hosts->host;
    const uint8_t *secret = mesh->hosts->doors[mesh->rank].secret;
    struct cecl_tcp_answer answer;
    const bool known = cecl_tcp_verify(secret, caller, &answer) && answer.rank >= 0 &&
                       answer.rank < mesh->nranks && cecl_mesh_is_away(mesh, answer.rank) &&
                       first_of(host, host[answer.rank]) == answer.rank;
    int *place = known ? &mesh->hosts->links[host[answer.rank]] : NULL;
    if (place && answer.nranks == mesh->nranks && answer.rank > mesh->rank && *place < 0) {
        *place = caller->fd;
        return;
    }
    if (known && answer.nranks == GIVES_UP)
        note_reason(mesh, &answer);
    cecl_net_close(caller->fd);
}

static void attend(struct cecl_mesh *mesh, const void *context, struct cecl_door *door, int wait_ms)
{
    struct cecl_caller caller;
    (void)context;
    cecl_door_attend(door, wait_ms);
    while (cecl_door_next(door, &caller))
        admit(mesh, &caller);
}

/* The leaders whose links have not come yet. */
static struct cecl_rank_list awaited(const struct cecl_mesh *mesh)
{
    const uint16_t *host = mesh->hosts->host;
    struct cecl_rank_list list = {.count = 0};
    for (int r = mesh->rank + 1; r < mesh->nranks; r++)
        if (first_of(host, host[r]) == r && mesh->hosts->links[host[r]] < 0)
            cecl_rank_list_add(&list, r);
    return list;
}

static ceclResult_t take_links(struct cecl_mesh *mesh, const struct mesh_calls *calls,
                               struct cecl_door *door)
{
    const int64_t long_since = cecl_deadline(MESH_LONG_MS);
    for (struct cecl_rank_list missing = awaited(mesh); missing.count > 0;
         missing = awaited(mesh)) {
        const int left = cecl_ms_left(mesh->init_deadline), trouble = cecl_door_trouble(door);
        CECL_TRY(calls->go_on(mesh, cecl_ms_left(long_since) == 0));
        if (trouble)
            return cecl_fail(ceclSystemError, "rank %d cannot take the links of other hosts: %s",
                             mesh->rank, strerror(trouble));
        if (left == 0)
            return cecl_fail(ceclTimeout,
                             "no link from %s, on other hosts, within %" PRId64
                             " ms (CECL_INIT_TIMEOUT_MS), though all ranks had joined; has a "
                             "process ended, or can rank %d's host not be reached from there "
                             "(CECL_SOCKET_IFNAME)?",
                             cecl_rank_list_words(&missing), mesh->init_timeout_ms, mesh->rank);
        attend(mesh, NULL, door, left < 0 || left > TICK_MS ? TICK_MS : left);
    }
    return ceclSuccess;
}

/* How long a host may be silent: half of the time limit of calls, so that the host is named before a call
 * that waits for it times out. */
static int64_t silence_of(const struct cecl_mesh *mesh)
{
    const int64_t half = mesh->timeout_ms > 0 ? mesh->timeout_ms / 2 : SILENCE_MAX_MS;
    return half > SILENCE_MAX_MS ? SILENCE_MAX_MS : half < SILENCE_MIN_MS ? SILENCE_MIN_MS : half;
}

/* The thread watches processes by descriptors of its own, because it may outlive this mesh. */
static ceclResult_t start_thread(struct cecl_mesh *mesh, const struct mesh_calls *calls)
{
    int *processes = calloc((size_t)mesh->nranks, sizeof(*processes));
    struct cecl_links_plan plan = {.nranks = mesh->nranks,
                                   .host = mesh->hosts->host,
                                   .lines = mesh->hosts->lines,
                                   .processes = processes,
                                   .links = mesh->hosts->links,
                                   .silence_ms = silence_of(mesh)};
    if (!processes)
        return cecl_fail(ceclOutOfMemory, "no host memory for %d ranks", mesh->nranks);
    for (int r = 0; r < mesh->nranks; r++)
        processes[r] = cecl_mesh_is_away(mesh, r)
                           ? -1
                           : cecl_process_watch(&calls->invited(calls->context, r)->process);
    const ceclResult_t result = cecl_links_start(&plan);
    cecl_net_drop(processes, mesh->nranks);
    free(processes);
    return result;
}

static ceclResult_t connect_leader(struct cecl_mesh *mesh, const struct mesh_calls *calls)
{
    struct cecl_door door;
    ceclResult_t result =
        cecl_door_open(&door, mesh->reach_fd, sizeof(struct cecl_tcp_answer), cecl_tcp_greet);
    mesh->reach_fd = -1;
    if (result == ceclSuccess)
        result = make_own_lines(mesh);
    if (result == ceclSuccess)
        result = call_lower_leaders(mesh, calls);
    if (result == ceclSuccess)
        result = take_links(mesh, calls, &door);
    if (result == ceclRemoteError) /* a leader that gives up calls this one to tell why */
        result = mesh_await_reason(mesh, result, &(struct mesh_attended){attend, NULL, &door},
                                   REASON_MS);
    if (result == ceclSuccess)
        mesh->reach_fd = cecl_door_leave(&door);
    cecl_door_close(&door);
    return result == ceclSuccess ? start_thread(mesh, calls) : result;
}

void mesh_hosts_give_up(struct cecl_mesh *mesh, const struct mesh_calls *calls,
                        const struct mesh_life *reason)
{
    struct {
        struct cecl_link_head head;
        struct mesh_life life;
    } message = {.head = {.bytes = sizeof(message), .kind = CECL_LINK_LIFE}, .life = *reason};
    const uint16_t *host = mesh->hosts ? mesh->hosts->host : NULL;
    message.head.from = (uint16_t)mesh->rank;
    /* a leader that waits for an answer of this host stops waiting, and listens again */
    stop_listening(mesh);
    for (int r = 0; r < mesh->nranks && is_leader(mesh); r++) {
        int fd = -1;
        if (!cecl_mesh_is_away(mesh, r) || first_of(host, host[r]) != r)
            continue;
        const int link = mesh->hosts->links[host[r]];
        const uint8_t *secret = calls->invited(calls->context, r)->secret;
        if (link >= 0)
            (void)!send(link, &message, sizeof(message), MSG_NOSIGNAL | MSG_DONTWAIT);
        else if (call_leader(mesh, r, secret, reason, cecl_deadline(REASON_MS), &fd) == ceclSuccess)
            cecl_net_close(fd);
    }
}

ceclResult_t mesh_connect_hosts(struct cecl_mesh *mesh, const struct mesh_calls *calls)
{
    if (!mesh->hosts)
        stop_listening(mesh);
    for (int r = 0; r < mesh->nranks && mesh->hosts; r++)
        memcpy(mesh->hosts->doors[r].secret, calls->invited(calls->context, r)->secret,
               sizeof(mesh->hosts->doors[r].secret));
    return is_leader(mesh) ? connect_leader(mesh, calls) : ceclSuccess;
}
