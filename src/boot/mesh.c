/* Making and ending the mesh, and messages between two ranks. Rank 0 sends the shared memory to the others. Then all
 * ranks meet in the memory's rows for the first time, and exchange descriptors of their processes. */
#include "boot/mesh.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "boot/mesh_internal.h"
#include "boot/net.h"
#include "util/clock.h"
#include "util/fds.h"
#include "util/file.h"
#include "util/grow.h"

/* a rank's own descriptors: two inboxes, the bell, rouse_fd, the shared memory, a segment of the pool, and for a moment
 * a copy of the segment's descriptor */
#define OWN_FDS 7
#define LINE 64    /* bytes of a cache line */
#define TICK_MS 10 /* ms between two looks at a rank that does not come */

ceclResult_t cecl_mesh_check_limit(int nranks)
{
    struct rlimit limit;
    const uint64_t needed = (uint64_t)nranks * OWN_FDS;
    return getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed
               ? ceclSuccess
               : cecl_fail(ceclSystemError,
                           "limit of open files (ulimit -n): %" PRIu64 "; %d ranks in one process "
                           "need more than %" PRIu64 " descriptors",
                           (uint64_t)limit.rlim_cur, nranks, needed);
}

/* Draws this rank's names and its secret, and opens the sockets on which it listens. */
static ceclResult_t listen_to_peers(struct cecl_mesh *mesh, struct cecl_inbox_address *mine)
{
    uint64_t id[2];
    CECL_TRY(cecl_net_random(id, sizeof(id)));
    CECL_TRY(cecl_net_random(mine->secret, sizeof(mine->secret)));
    snprintf(mine->name, sizeof(mine->name), "cecl-%016llx%016llx", (unsigned long long)id[0],
             (unsigned long long)id[1]);
    CECL_TRY(cecl_inbox_bind(SOCK_DGRAM, mine->name, MESH_BELL, &mesh->bell));
    CECL_TRY(cecl_inbox_open(&mesh->exchange, mine, MESH_EXCHANGE));
    CECL_TRY(cecl_inbox_open(&mesh->post, mine, MESH_POST));
    mesh->rouse_fd = CECL_FD(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    return mesh->rouse_fd >= 0 ? ceclSuccess
                               : cecl_fail(ceclSystemError, "eventfd: %s", strerror(errno));
}

/* Makes mesh->self, a descriptor that others can poll: it becomes readable when this process ends. If the system
 * refuses a pidfd, it is one end of a pipe, whose other end, mesh->life, only this process keeps open. */
static ceclResult_t open_self(struct cecl_mesh *mesh)
{
    int ends[2];
    mesh->self = CECL_FD((int)syscall(SYS_pidfd_open, getpid(), 0));
    if (mesh->self < 0 && !cecl_net_is_scarce(errno)) {
        cecl_fds_begin();
        if (pipe2(ends, O_CLOEXEC) == 0) {
            cecl_fds_add(mesh->self = ends[0]);
            cecl_fds_add(mesh->life = ends[1]);
        }
        cecl_fds_end();
    }
    return mesh->self >= 0
               ? ceclSuccess
               : cecl_fail(ceclSystemError, "a descriptor of this process: %s", strerror(errno));
}

ceclResult_t cecl_memory_make(size_t *bytes, int *fd)
{
    *bytes = cecl_round_up(*bytes, CECL_MEMORY_UNIT);
    *fd = CECL_FD(memfd_create("cecl-shared", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (*fd < 0)
        return cecl_fail(ceclSystemError, "memfd_create for %zu bytes: %s", *bytes,
                         strerror(errno));
    CECL_TRY(cecl_file_grow(*fd, *bytes));
    return fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0 && fcntl(*fd, F_SETFL, O_APPEND) == 0
               ? ceclSuccess
               : cecl_fail(ceclSystemError, "sealing a memfd: %s", strerror(errno));
}

/* Opens this rank's sockets, and the descriptors that it sends to its peers. */
static ceclResult_t open_mine(struct cecl_mesh *mesh, struct cecl_inbox_address *at)
{
    if (!mesh->polls || !mesh->votes || !mesh->processes)
        return cecl_fail(ceclOutOfMemory, "no host memory for %d ranks", mesh->nranks);
    CECL_TRY(listen_to_peers(mesh, at));
    CECL_TRY(open_self(mesh));
    return mesh->rank == 0 ? cecl_memory_make(&mesh->memory_bytes, &mesh->memory) : ceclSuccess;
}

ceclResult_t cecl_mesh_new(const struct cecl_oob *oob, int64_t timeout_ms, size_t shared_bytes,
                           struct cecl_invitation *invitation, struct cecl_mesh **out)
{
    const size_t n = (size_t)oob->nranks;
    struct cecl_mesh *mesh = calloc(1, sizeof(*mesh) + n * sizeof(mesh->peers[0]));
    *invitation = (struct cecl_invitation){.process = cecl_fork_process()};
    if (!mesh)
        return cecl_fail(ceclOutOfMemory, "no host memory for %zu ranks", n);
    mesh->nranks = oob->nranks;
    mesh->rank = oob->rank;
    mesh->memory_bytes = mesh_rows_bytes(oob->nranks) + shared_bytes;
    mesh->timeout_ms = timeout_ms;
    mesh->init_deadline = oob->deadline;
    mesh->init_timeout_ms = oob->timeout_ms;
    mesh->joining = true;
    mesh->activity = "joining";
    mesh->exchange = mesh->post = (struct cecl_inbox){.listener = -1, .caller = -1};
    mesh->bell = mesh->rouse_fd = -1;
    mesh->memory = mesh->self = mesh->life = -1;
    pthread_mutex_init(&mesh->lock, NULL);
    mesh->polls = calloc(n + 1, sizeof(*mesh->polls));
    mesh->votes = calloc(n, sizeof(*mesh->votes));
    mesh->processes = malloc(n * sizeof(*mesh->processes));
    for (size_t r = 0; r < n && mesh->processes; r++)
        mesh->processes[r] = -1;

    const ceclResult_t result = open_mine(mesh, &invitation->at);
    if (result == ceclSuccess)
        *out = mesh;
    else
        cecl_mesh_close(mesh);
    return result;
}

void cecl_mesh_close(struct cecl_mesh *mesh)
{
    if (!mesh)
        return;
    cecl_mesh_say_goodbye(mesh, NULL);
    if (mesh->processes)
        cecl_net_drop(mesh->processes, mesh->nranks);
    cecl_inbox_close(&mesh->exchange);
    cecl_inbox_close(&mesh->post);
    int own[] = {mesh->bell, mesh->rouse_fd, mesh->memory, mesh->self, mesh->life};
    cecl_net_drop(own, 5);
    if (mesh->rows)
        munmap(mesh->rows, mesh_rows_bytes(mesh->nranks));
    pthread_mutex_destroy(&mesh->lock);
    free(mesh->polls);
    free(mesh->votes);
    free(mesh->processes);
    free(mesh);
}

int cecl_mesh_memory(const struct cecl_mesh *mesh, size_t *start)
{
    *start = cecl_round_up(mesh->memory_bytes, CECL_MEMORY_UNIT);
    return mesh->memory;
}

void cecl_mesh_joined(struct cecl_mesh *mesh)
{
    atomic_store(&mesh->joining, false);
}

void cecl_mesh_activity(struct cecl_mesh *mesh, const char *call)
{
    mesh->activity = call;
}

bool cecl_mesh_broken(const struct cecl_mesh *mesh)
{
    return mesh->broken.result != ceclSuccess;
}

void cecl_mesh_interrupt(struct cecl_mesh *mesh)
{
    atomic_store(&mesh->interrupted, true);
}

int64_t mesh_deadline(struct cecl_mesh *mesh)
{
    return atomic_load(&mesh->joining) ? mesh->init_deadline : cecl_deadline(mesh->timeout_ms);
}

/* ---- the shared memory */

void cecl_shared_lay_out(const size_t *sizes, int count, struct cecl_shared *shared)
{
    *shared = (struct cecl_shared){0};
    for (int i = 0; i < count; i++) {
        shared->offsets[i] = shared->bytes;
        shared->bytes += (sizes[i] + LINE - 1) / LINE * LINE;
    }
}

void cecl_shared_close(struct cecl_shared *shared)
{
    if (shared->base)
        munmap(shared->base, shared->bytes);
    *shared = (struct cecl_shared){0};
}

/* Maps a part of the memory. No MAP_POPULATE: most of the memory is rings, of which a program may use few entries.
 * Allocating all pages here would take half of the time of an init. */
static ceclResult_t map(const struct cecl_mesh *mesh, size_t before, size_t bytes, void **at)
{
    struct stat info = {.st_size = -1};
    const int seals = fcntl(mesh->memory, F_GET_SEALS);
    if (fstat(mesh->memory, &info) != 0 || info.st_size < (off_t)(before + bytes) || seals < 0 ||
        !(seals & F_SEAL_SHRINK))
        return cecl_fail(ceclInternalError,
                         "the ranks' shared memory: %lld bytes with seals %#x, at least %zu bytes "
                         "with %#x expected",
                         (long long)info.st_size, (unsigned)seals, before + bytes,
                         (unsigned)F_SEAL_SHRINK);
    void *mapped =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, mesh->memory, (off_t)before);
    if (mapped == MAP_FAILED)
        return cecl_fail(ceclSystemError, "mmap of %zu shared bytes: %s", bytes, strerror(errno));
    *at = mapped;
    return ceclSuccess;
}

static ceclResult_t map_rows(struct cecl_mesh *mesh)
{
    void *at = NULL;
    const ceclResult_t result = map(mesh, 0, mesh_rows_bytes(mesh->nranks), &at);
    mesh->rows = at;
    return result;
}

static ceclResult_t map_shared(struct cecl_mesh *mesh, struct cecl_shared *shared)
{
    void *at = NULL;
    const ceclResult_t result =
        shared ? map(mesh, mesh_rows_bytes(mesh->nranks), shared->bytes, &at) : ceclSuccess;
    if (shared)
        shared->base = at;
    return result;
}

/* ---- joining */

bool mesh_is_elsewhere(const struct cecl_mesh *mesh, int peer)
{
    return mesh->peers[peer].invitation.process != mesh->peers[mesh->rank].invitation.process;
}

ceclResult_t mesh_check_joining(struct cecl_mesh *mesh, int peer)
{
    return cecl_inbox_is_taken(mesh->peers[peer].invitation.at.name, MESH_EXCHANGE)
               ? ceclSuccess
               : cecl_fail(ceclRemoteError, "rank %d left while the communicator was made%s", peer,
                           mesh_is_elsewhere(mesh, peer)
                               ? ", or it is on another host that has the same id; in that case "
                                 "give each host an id of its own (CECL_HOST_ID)"
                               : "");
}

/* Sends the memory from rank 0 to all other ranks. Skips a rank that has gone: all ranks notice that later. */
static ceclResult_t send_memory(struct cecl_mesh *mesh)
{
    ceclResult_t result = map_rows(mesh);
    for (int r = 1; r < mesh->nranks && result == ceclSuccess; r++) {
        result = mesh_send(mesh, r, MESH_POST, NULL, 0, &mesh->memory, 1, mesh->init_deadline);
        result = result == ceclRemoteError ? ceclSuccess : result;
    }
    return result;
}

static ceclResult_t take_memory(struct cecl_mesh *mesh)
{
    struct cecl_letter letter;
    CECL_TRY(cecl_mesh_take(mesh, NULL, 0, &letter));
    if (letter.rank == 0 && letter.nfds == 1)
        mesh->memory = letter.fds[0];
    else
        cecl_net_drop(letter.fds, letter.nfds);
    return ceclSuccess;
}

static ceclResult_t await_memory(struct cecl_mesh *mesh)
{
    while (mesh->memory < 0) {
        const ceclResult_t result = take_memory(mesh);
        if (result != ceclInProgress)
            CECL_TRY(result);
        else if (cecl_ms_left(mesh->init_deadline) == 0)
            return cecl_fail(ceclTimeout,
                             "joining: rank 0 did not come within %" PRId64
                             " ms (CECL_INIT_TIMEOUT_MS); has a process ended?",
                             mesh->init_timeout_ms);
        else if (!cecl_mesh_await(mesh, true, TICK_MS))
            CECL_TRY(mesh_check_joining(mesh, 0));
        /* takes what others have sent: rank 0 cannot send while too many descriptors wait to be received */
        mesh_take_fds(mesh);
    }
    return map_rows(mesh);
}

ceclResult_t cecl_mesh_connect(struct cecl_mesh *mesh, const void *invitations, size_t apart,
                               struct cecl_shared *shared)
{
    for (int r = 0; r < mesh->nranks; r++)
        memcpy(&mesh->peers[r].invitation, (const char *)invitations + (size_t)r * apart,
               sizeof(mesh->peers[r].invitation));
    struct mesh_fds fds;
    mesh_begin_fds(mesh, &fds, mesh->processes);
    const ceclResult_t result = mesh->rank == 0 ? send_memory(mesh) : await_memory(mesh);
    CECL_TRY(mesh_end_fds(mesh, mesh->self, result));
    cecl_net_drop(&mesh->self, 1);
    return cecl_mesh_agree(mesh, map_shared(mesh, shared));
}

/* ---- messages */

/* Whether to try to send again. ETOOMANYREFS: too many descriptors that this user has sent are not received yet. EPIPE,
 * ECONNRESET: the receiver has turned this rank away, because a newer caller had come before this rank's message. */
static bool may_try_again(int error)
{
    return cecl_net_is_early(error) || error == ETOOMANYREFS || error == EPIPE ||
           error == ECONNRESET;
}

/* The error for a peer that does not listen. A rank says goodbye before it closes its inboxes. So a peer that has said
 * no goodbye has died, even if this rank has not noticed the death yet. */
static ceclResult_t no_listener(struct cecl_mesh *mesh, int peer)
{
    if (atomic_load(&mesh->joining))
        CECL_TRY(mesh_check_joining(mesh, peer));
    if (mesh_look(mesh, peer) == MESH_ALIVE)
        atomic_store(&mesh->peers[peer].has_died, true);
    return mesh_peer_error(mesh, peer);
}

ceclResult_t mesh_send(struct cecl_mesh *mesh, int peer, char kind, const void *message,
                       size_t bytes, const int *fds, int nfds, int64_t deadline)
{
    const struct cecl_inbox_address *to = &mesh->peers[peer].invitation.at;
    int64_t lack[2] = {0};
    for (;;) {
        if (mesh_look(mesh, peer) != MESH_ALIVE)
            return mesh_peer_error(mesh, peer);
        const int error =
            cecl_inbox_send(to, kind, mesh->rank, mesh->sequence, message, bytes, fds, nfds);
        const bool bears = cecl_net_bears(error, lack), is_late = cecl_ms_left(deadline) == 0;
        if (error == 0)
            return ceclSuccess;
        if (error == ECONNREFUSED)
            return no_listener(mesh, peer);
        if (error == EPERM)
            return cecl_fail(ceclInvalidUsage, "rank %d runs as another user", peer);
        if (bears ? is_late : !may_try_again(error))
            return cecl_fail(ceclSystemError, "sending a message to rank %d: %s", peer,
                             strerror(error));
        if (is_late && error == ETOOMANYREFS)
            return cecl_fail(ceclSystemError,
                             "sending to rank %d: this user has as many descriptors under way, "
                             "which no process takes, as a process may open (ulimit -n)",
                             peer);
        if (is_late)
            return cecl_fail(ceclTimeout, "rank %d took no message in time", peer);
        if (atomic_load(&mesh->interrupted))
            return mesh_interrupted(mesh);
        /* while the thread that exchanges descriptors waits, it takes those of others */
        if ((kind == MESH_EXCHANGE || fds == &mesh->memory) && !bears)
            mesh_take_fds(mesh);
        poll(NULL, 0, 1);
    }
}

ceclResult_t cecl_mesh_post(struct cecl_mesh *mesh, int peer, const void *message, size_t bytes,
                            const int *fds, int nfds, int64_t deadline)
{
    return mesh_send(mesh, peer, MESH_POST, message, bytes, fds, nfds, deadline);
}

ceclResult_t cecl_mesh_take(struct cecl_mesh *mesh, void *message, size_t room,
                            struct cecl_letter *letter)
{
    return cecl_inbox_take(&mesh->post, mesh->nranks, message, room, letter);
}

bool cecl_mesh_await(struct cecl_mesh *mesh, bool for_messages, int wait_ms)
{
    struct pollfd polls[1 + CECL_INBOX_POLLS] = {{.fd = mesh->rouse_fd, .events = POLLIN}};
    const int count = 1 + (for_messages ? cecl_inbox_polls(&mesh->post, polls + 1) : 0);
    int ready = poll(polls, (nfds_t)count, wait_ms);
    eventfd_t events;
    if (ready > 0 && polls[0].revents) {
        (void)!eventfd_read(mesh->rouse_fd, &events);
        ready--;
    }
    return ready > 0;
}

void cecl_mesh_rouse(struct cecl_mesh *mesh)
{
    (void)!eventfd_write(mesh->rouse_fd, 1);
}
