/* How a mesh over several hosts is made. Within a host, ranks connect as on one host, and each has lines to the
 * leader's thread. Leaders connect to all leaders of lower ranks, and both sides prove that they know the secret of
 * the one that is called, as ranks do to the root of a unique id (tcp.h). */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "boot/mesh_internal.h"
#include "boot/net.h"
#include "boot/rank_list.h"
#include "util/clock.h"

#define TICK_MS 50 /* ms after which a rank of this host that gives up is noticed, at most */
#define SILENCE_MAX_MS                                                                             \
    10000 /* a host that is silent for so long is lost; sooner with a shorter time limit */
#define SILENCE_MIN_MS 500

/* ---- questions */

bool cecl_mesh_spans_hosts(const struct cecl_mesh *mesh)
{
    return mesh && mesh->hosts;
}

bool cecl_mesh_is_away(const struct cecl_mesh *mesh, int rank)
{
    return mesh && mesh->hosts && mesh->hosts->host[rank] != mesh->hosts->host[mesh->rank];
}

int cecl_mesh_leader(const struct cecl_mesh *mesh)
{
    return mesh->hosts ? mesh->hosts->leader : 0;
}

struct cecl_address cecl_mesh_address(const struct cecl_mesh *mesh)
{
    return mesh->at;
}

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

ceclResult_t cecl_mesh_reach(struct cecl_mesh *mesh, struct cecl_reach *reach)
{
    union cecl_tcp_address at = read_address(&mesh->at);
    if (!is_address(&mesh->at))
        return ceclSuccess;
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

/* Each leader must be reached by the others. */
static ceclResult_t check_reaches(const struct cecl_mesh *mesh, const uint16_t *host)
{
    struct cecl_rank_list list = {.count = 0};
    for (int r = 0; r < mesh->nranks; r++)
        if (first_of(host, host[r]) == r && !is_address(&mesh->hosts->reach[r].at))
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

static bool allocate(struct mesh_hosts *hosts, size_t n)
{
    hosts->host = calloc(n, sizeof(*hosts->host));
    hosts->reach = calloc(n, sizeof(*hosts->reach));
    hosts->early = calloc(n, sizeof(*hosts->early));
    hosts->lines = calloc(n, sizeof(*hosts->lines));
    hosts->links = calloc(n, sizeof(*hosts->links));
    return hosts->host && hosts->reach && hosts->early && hosts->lines && hosts->links;
}

ceclResult_t cecl_mesh_spread(struct cecl_mesh *mesh, const uint16_t *host, const void *reaches,
                              size_t apart)
{
    const size_t n = (size_t)mesh->nranks;
    struct mesh_hosts *hosts = calloc(1, sizeof(*hosts));
    if (!hosts || !allocate(hosts, n)) {
        mesh->hosts = hosts;
        mesh_hosts_close(mesh);
        return cecl_fail(ceclOutOfMemory, "no host memory for %zu ranks on several hosts", n);
    }
    for (size_t r = 0; r < n; r++) {
        hosts->host[r] = host[r];
        memcpy(&hosts->reach[r], (const char *)reaches + r * apart, sizeof(hosts->reach[r]));
        hosts->links[r] = hosts->lines[r][0] = hosts->lines[r][1] = -1;
    }
    hosts->line[CECL_LINE_FRAMES] = hosts->line[CECL_LINE_LIFE] = -1;
    hosts->leader = first_of(host, host[mesh->rank]);
    mesh->hosts = hosts;
    return check_reaches(mesh, host);
}

void mesh_hosts_close(struct cecl_mesh *mesh)
{
    struct mesh_hosts *hosts = mesh->hosts;
    cecl_net_drop(&mesh->reach_fd, 1);
    if (!hosts)
        return;
    cecl_net_drop(hosts->line, CECL_LINES_OF_RANK);
    for (int r = 0; r < mesh->nranks && hosts->lines && hosts->links; r++) {
        cecl_net_drop(hosts->lines[r], CECL_LINES_OF_RANK);
        cecl_net_drop(&hosts->links[r], 1);
    }
    free(hosts->host);
    free(hosts->reach);
    free(hosts->early);
    free(hosts->lines);
    free(hosts->links);
    free(hosts);
    mesh->hosts = NULL;
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
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0)
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

static ceclResult_t call_leader(struct cecl_mesh *mesh, int leader, const uint8_t secret[16])
{
    char words[INET6_ADDRSTRLEN + 8];
    struct cecl_tcp_answer answer = {.magic = CECL_TCP_MAGIC,
                                     .rank = mesh->rank,
                                     .nranks = mesh->nranks,
                                     .timeout_ms = mesh->init_timeout_ms};
    struct cecl_tcp_id id = {.magic = CECL_TCP_MAGIC,
                             .at = read_address(&mesh->hosts->reach[leader].at)};
    memcpy(id.secret, secret, sizeof(id.secret));
    const ceclResult_t result = cecl_tcp_call(&id, &answer, mesh->init_deadline,
                                              &mesh->hosts->links[mesh->hosts->host[leader]]);
    return result == ceclSuccess
               ? ceclSuccess
               : cecl_fail(result == ceclInvalidUsage ? ceclRemoteError : result,
                           "no link from rank %d to rank %d's host at %s: rank %d has ended, or "
                           "its host is not reached there (CECL_SOCKET_IFNAME)",
                           mesh->rank, leader, words_of(&id.at, words), leader);
}

static ceclResult_t call_lower_leaders(struct cecl_mesh *mesh, const struct mesh_calls *calls)
{
    const uint16_t *host = mesh->hosts->host;
    for (int r = 0; r < mesh->rank; r++)
        if (first_of(host, host[r]) == r)
            CECL_TRY(call_leader(mesh, r, calls->invited(calls->context, r)->secret));
    return ceclSuccess;
}

/* Takes the connection of a leader that has proved the secret. */
static void admit(struct cecl_mesh *mesh, const uint8_t secret[16],
                  const struct cecl_caller *caller)
{
    const uint16_t *host = mesh->hosts->host;
    struct cecl_tcp_answer answer;
    const bool known = cecl_tcp_verify(secret, caller, &answer) && answer.rank > mesh->rank &&
                       answer.rank < mesh->nranks &&
                       first_of(host, host[answer.rank]) == answer.rank;
    int *place = known ? &mesh->hosts->links[host[answer.rank]] : NULL;
    if (place && *place < 0)
        *place = caller->fd;
    else
        cecl_net_close(caller->fd);
}

/* The leaders of which no link has come yet. */
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
    const uint8_t *secret = calls->invited(calls->context, mesh->rank)->secret;
    struct cecl_rank_list missing = awaited(mesh);
    struct cecl_caller caller;
    while (missing.count > 0) {
        const int left = cecl_ms_left(mesh->init_deadline);
        cecl_door_attend(door, left < 0 || left > TICK_MS ? TICK_MS : left);
        while (cecl_door_next(door, &caller))
            admit(mesh, secret, &caller);
        missing = awaited(mesh);
        if (missing.count == 0)
            break;
        CECL_TRY(calls->go_on(mesh));
        const int trouble = cecl_door_trouble(door);
        if (trouble)
            return cecl_fail(ceclSystemError, "rank %d cannot take the links of other hosts: %s",
                             mesh->rank, strerror(trouble));
        if (cecl_ms_left(mesh->init_deadline) == 0)
            return cecl_fail(ceclTimeout,
                             "no link from %s, on other hosts, within %" PRId64
                             " ms (CECL_INIT_TIMEOUT_MS), though all ranks had joined; has a "
                             "process ended, or is rank %d's host not reached from there "
                             "(CECL_SOCKET_IFNAME)?",
                             cecl_rank_list_words(&missing), mesh->init_timeout_ms, mesh->rank);
    }
    return ceclSuccess;
}

/* A host is given up a while before a call that waits for it would be. */
static int64_t silence_of(const struct cecl_mesh *mesh)
{
    const int64_t half = mesh->timeout_ms > 0 ? mesh->timeout_ms / 2 : SILENCE_MAX_MS;
    return half > SILENCE_MAX_MS ? SILENCE_MAX_MS : half < SILENCE_MIN_MS ? SILENCE_MIN_MS : half;
}

/* The thread has watches of its own, because it may outlive this mesh. */
static ceclResult_t start_thread(struct cecl_mesh *mesh, const struct mesh_calls *calls)
{
    int *processes = calloc((size_t)mesh->nranks, sizeof(*processes));
    struct cecl_links_plan plan = {.nranks = mesh->nranks,
                                   .rank = mesh->rank,
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
    free(processes);
    return result;
}

static ceclResult_t connect_leader(struct cecl_mesh *mesh, const struct mesh_calls *calls)
{
    struct cecl_door door;
    CECL_TRY(make_own_lines(mesh));
    CECL_TRY(call_lower_leaders(mesh, calls));
    ceclResult_t result =
        cecl_door_open(&door, mesh->reach_fd, sizeof(struct cecl_tcp_answer), cecl_tcp_greet);
    mesh->reach_fd = -1;
    if (result == ceclSuccess)
        result = take_links(mesh, calls, &door);
    cecl_door_close(&door);
    return result == ceclSuccess ? start_thread(mesh, calls) : result;
}

ceclResult_t mesh_connect_hosts(struct cecl_mesh *mesh, const struct mesh_calls *calls)
{
    ceclResult_t result = ceclSuccess;
    if (is_leader(mesh))
        result = connect_leader(mesh, calls);
    cecl_net_drop(&mesh->reach_fd, 1);
    if (mesh->hosts) {
        free(mesh->hosts->reach);
        mesh->hosts->reach = NULL;
    }
    return result;
}
