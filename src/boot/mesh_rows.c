/* Exchanges, through the rows of the shared memory. A rank writes what it brings into a slot of its row, says in `came`
 * that it has come, and waits until all ranks have come. No rank serves the others, so ranks cannot deadlock, in
 * whatever order they call. */
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "boot/mesh_internal.h"
#include "boot/net.h"
#include "util/clock.h"

/* A rank that waits looks at the missing ranks every LOOK_NS + nranks * LOOK_RANK_NS ns, so that the looks of many
 * ranks keep only few cores busy */
#define LOOK_NS 2000000
#define LOOK_RANK_NS 40000
#define EARLY_MS 50 /* ms after which a joining rank calls look_for_leaver */

/* What this rank brings to an exchange, and where the bytes of all ranks go. */
struct exchange {
    const char *kind;
    const char *send;
    char *recv;   /* the bytes of rank r go to recv + bytes * r */
    size_t bytes; /* all bytes of a rank */
    size_t piece; /* how many of these bytes the present piece has */
    int64_t since, deadline;
};

size_t mesh_rows_bytes(int nranks)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return ((size_t)nranks * sizeof(struct mesh_row) + page - 1) / page * page;
}

/* ---- waiting */

static bool has_come(const struct cecl_mesh *mesh, int rank)
{
    return (int32_t)(atomic_load(&mesh->rows[rank].came) - mesh->sequence) >= 0;
}

/* A late rank may itself wait for a third rank. Then its own wait ends soon, and it names the third rank. So this rank
 * listens a little longer. */
static ceclResult_t listen_for_reason(struct cecl_mesh *mesh)
{
    const int64_t end = cecl_now_ms() + CECL_MESH_WORD_MS;
    do {
        for (int r = 0; r < mesh->nranks; r++)
            if (r != mesh->rank && atomic_load(&mesh->rows[r].state) == MESH_ABORTED)
                return mesh_peer_error(mesh, r);
        cecl_pause_us(1000);
    } while (cecl_now_ms() < end);
    return ceclSuccess;
}

static ceclResult_t name_who_is_late(struct cecl_mesh *mesh)
{
    struct cecl_rank_list list = {0};
    for (int r = 0; r < mesh->nranks; r++)
        if (!has_come(mesh, r))
            cecl_rank_list_add(&list, r);
    if (list.count > 1)
        CECL_TRY(listen_for_reason(mesh));
    const bool joins = atomic_load(&mesh->joining);
    return cecl_fail(ceclTimeout, "%s did not come within %" PRId64 " ms (%s); %s",
                     cecl_rank_list_words(&list), joins ? mesh->init_timeout_ms : mesh->timeout_ms,
                     joins ? "CECL_INIT_TIMEOUT_MS" : "CECL_TIMEOUT_MS",
                     joins ? "has a process ended?" : "did every rank make the call?");
}

/* Fails if a late rank has left before it could map the memory and say so in its row. Each call of this function looks
 * at only one late rank, in turn, because a look takes several system calls. Until rank 0 comes, each call also looks
 * at rank 0: without the memory that rank 0 sends, all other ranks leave. */
static ceclResult_t look_for_leaver(struct cecl_mesh *mesh)
{
    CECL_TRY(atomic_load(&mesh->rows[0].came) > 0 ? ceclSuccess : mesh_check_joining(mesh, 0));
    for (int i = 0; i < mesh->nranks; i++) {
        const int rank = mesh->last_looked = (mesh->last_looked + 1) % mesh->nranks;
        if (atomic_load(&mesh->rows[rank].came) == 0) {
            const ceclResult_t result = mesh_check_joining(mesh, rank);
            return has_come(mesh, rank) ? ceclSuccess : result;
        }
    }
    return ceclSuccess;
}

/* Returns an error if a missing rank has ended, at the deadline, or if another thread ends the wait. */
static ceclResult_t look_at_missing(struct cecl_mesh *mesh, const struct exchange *x)
{
    if (mesh->fds)
        mesh_take_fds(mesh);
    if (atomic_load(&mesh->interrupted))
        return mesh_interrupted(mesh);
    for (int r = 0; r < mesh->nranks; r++)
        if (!has_come(mesh, r) && mesh_look(mesh, r) != MESH_ALIVE && !has_come(mesh, r))
            return mesh_peer_error(mesh, r);
    if (cecl_ms_left(x->deadline) == 0)
        return name_who_is_late(mesh);
    return atomic_load(&mesh->joining) && cecl_now_ms() - x->since > EARLY_MS
               ? look_for_leaver(mesh)
               : ceclSuccess;
}

/* Waits until all ranks have come. (Each rank that comes wakes those that wait for it.) */
static ceclResult_t await_all(struct cecl_mesh *mesh, const struct exchange *x)
{
    const int64_t between = LOOK_NS + (int64_t)mesh->nranks * LOOK_RANK_NS;
    int64_t next = cecl_now_ns() + between;
    for (int r = 0; r < mesh->nranks; r++)
        while (!has_come(mesh, r)) {
            const int64_t left = next - cecl_now_ns();
            if (left <= 0) {
                CECL_TRY(look_at_missing(mesh, x));
                next = cecl_now_ns() + between;
                continue;
            }
            const uint32_t now = atomic_load(&mesh->rows[r].came);
            const struct timespec slice = {.tv_nsec = left};
            if ((int32_t)(now - mesh->sequence) < 0)
                syscall(SYS_futex, &mesh->rows[r].came, FUTEX_WAIT, now, &slice, NULL, 0);
        }
    return ceclSuccess;
}

/* ---- exchanging */

static ceclResult_t meet(struct cecl_mesh *mesh, const struct exchange *x)
{
    struct mesh_row *mine = &mesh->rows[mesh->rank];
    struct mesh_slot *slot = &mine->slots[mesh->sequence % 2];
    slot->bytes = x->bytes;
    memset(slot->kind, 0, sizeof(slot->kind));
    memcpy(slot->kind, x->kind, strnlen(x->kind, sizeof(slot->kind) - 1));
    if (x->piece > 0)
        memcpy(slot->piece, x->send, x->piece);
    atomic_store(&mine->came, ++mesh->sequence);
    /* wakes the peers that wait for this rank */
    syscall(SYS_futex, &mine->came, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    return await_all(mesh, x);
}

/* Copies what all ranks have brought. Fails if a rank is in a different exchange. */
static ceclResult_t collect(struct cecl_mesh *mesh, const struct exchange *x)
{
    const uint32_t turn = (mesh->sequence - 1) % 2;
    const struct mesh_slot *mine = &mesh->rows[mesh->rank].slots[turn];
    for (int r = 0; r < mesh->nranks; r++) {
        const struct mesh_slot *its = &mesh->rows[r].slots[turn];
        if (its->bytes != x->bytes || memcmp(its->kind, mine->kind, sizeof(its->kind)) != 0)
            return cecl_fail(ceclInvalidUsage,
                             "rank %d is in '%.8s' (%" PRIu64
                             " bytes) while rank %d is in '%.8s' (%" PRIu64 " bytes): "
                             "ranks must make the same calls in the same order",
                             r, its->kind, its->bytes, mesh->rank, mine->kind, mine->bytes);
        if (x->piece > 0)
            memcpy(x->recv + (size_t)r * x->bytes, its->piece, x->piece);
    }
    return ceclSuccess;
}

uint64_t cecl_mesh_exchanges(const struct cecl_mesh *mesh)
{
    return mesh->sequence;
}

/* All-gathers by several exchanges, of a piece each, if there are too many bytes for one. The first piece shows whether
 * a rank is in a different call. */
ceclResult_t cecl_mesh_allgather(struct cecl_mesh *mesh, const char *kind, const void *send,
                                 void *recv, size_t bytes)
{
    struct exchange x = {.kind = kind,
                         .send = send,
                         .recv = recv,
                         .bytes = bytes,
                         .since = cecl_now_ms(),
                         .deadline = mesh_deadline(mesh)};
    CECL_TRY(cecl_vote_again(&mesh->broken));
    size_t done = 0;
    do {
        x.piece = bytes - done < MESH_PIECE_BYTES ? bytes - done : MESH_PIECE_BYTES;
        const ceclResult_t met = meet(mesh, &x);
        if (met != ceclSuccess) { /* no exchange can follow one that ended midway */
            mesh->broken = cecl_vote_of(cecl_fail(met, "%s: %s", mesh->activity, cecl_message()));
            return met;
        }
        CECL_TRY(collect(mesh, &x));
        done += x.piece;
        x.send += x.piece;
        x.recv += x.piece;
    } while (done < bytes);
    return ceclSuccess;
}

/* If the exchange times out, a rank whose `mine` is an error returns that error, because a similar error has probably
 * kept the late ranks away. */
static ceclResult_t agree(struct cecl_mesh *mesh, const char *kind, ceclResult_t mine)
{
    const struct cecl_vote vote = cecl_vote_of(mine);
    const ceclResult_t met = cecl_mesh_allgather(mesh, kind, &vote, mesh->votes, sizeof(vote));
    if (met != ceclSuccess)
        return met == ceclTimeout && mine != ceclSuccess ? cecl_vote_again(&vote) : met;
    return cecl_votes_count(mesh->votes, sizeof(vote), mesh->nranks);
}

ceclResult_t cecl_mesh_agree(struct cecl_mesh *mesh, ceclResult_t mine)
{
    return agree(mesh, "agree", mine);
}

/* ---- descriptors */

/* Takes the descriptors that have come: keeps those for this exchange, closes those of a failed earlier exchange. */
void mesh_take_fds(struct cecl_mesh *mesh)
{
    struct mesh_fds *fds = mesh->fds;
    struct cecl_letter letter;
    ceclResult_t result = ceclInProgress;
    while (fds->count > 0 && (result = cecl_inbox_take(&mesh->exchange, mesh->nranks, NULL, 0,
                                                       &letter)) == ceclSuccess) {
        if (letter.number == fds->number && letter.nfds > 0 && fds->of[letter.rank] < 0 &&
            mesh_is_elsewhere(mesh, letter.rank)) {
            fds->of[letter.rank] = letter.fds[0];
            fds->count--;
            letter.fds[0] = -1;
        }
        cecl_net_drop(letter.fds, letter.nfds);
    }
    if (result != ceclInProgress && fds->failed.result == ceclSuccess)
        fds->failed = cecl_vote_of(result);
}

/* Waits for the descriptors that have not come yet. All were sent: ranks have agreed on that. */
static ceclResult_t take_rest(struct cecl_mesh *mesh, int64_t deadline)
{
    struct mesh_fds *fds = mesh->fds;
    struct cecl_rank_list list = {0};
    for (mesh_take_fds(mesh); fds->count > 0; mesh_take_fds(mesh)) {
        CECL_TRY(cecl_vote_again(&fds->failed));
        if (atomic_load(&mesh->interrupted)) /* peers send no descriptor to a rank that gave up */
            return mesh_interrupted(mesh);
        if (cecl_ms_left(deadline) == 0)
            break;
        cecl_pause_us(1000);
    }
    for (int r = 0; r < mesh->nranks; r++)
        if (fds->of[r] < 0 && mesh_is_elsewhere(mesh, r))
            cecl_rank_list_add(&list, r);
    return list.count == 0 ? ceclSuccess
                           : cecl_fail(ceclTimeout, "no descriptor came in time from %s",
                                       cecl_rank_list_words(&list));
}

/* An ordinary user may have only as many descriptors under way, sent but not received, as one process may open (ulimit
 * -n). So ranks also receive while they send, and while they wait for others. */
static ceclResult_t send_and_take(struct cecl_mesh *mesh, int fd)
{
    const int64_t deadline = mesh_deadline(mesh);
    ceclResult_t result = ceclSuccess;
    for (int r = 0; r < mesh->nranks && result == ceclSuccess; r++) {
        if (mesh_is_elsewhere(mesh, r))
            result = mesh_send(mesh, r, MESH_EXCHANGE, NULL, 0, &fd, 1, deadline);
        if (result == ceclRemoteError) /* if a rank has gone, the agreement below finds that */
            result = ceclSuccess;
    }
    CECL_TRY(agree(mesh, "fd", result));
    return take_rest(mesh, deadline);
}

void mesh_begin_fds(struct cecl_mesh *mesh, struct mesh_fds *fds, int *of)
{
    *fds = (struct mesh_fds){.number = mesh->sequence, .of = of};
    mesh->fds = fds;
    for (int r = 0; r < mesh->nranks; r++) {
        of[r] = -1;
        fds->count += mesh_is_elsewhere(mesh, r);
    }
}

ceclResult_t mesh_end_fds(struct cecl_mesh *mesh, int fd, ceclResult_t before)
{
    const ceclResult_t result = before == ceclSuccess ? send_and_take(mesh, fd) : before;
    if (result != ceclSuccess)
        cecl_net_drop(mesh->fds->of, mesh->nranks);
    mesh->fds = NULL;
    return result;
}

ceclResult_t cecl_mesh_exchange_fd(struct cecl_mesh *mesh, int fd, int *of)
{
    struct mesh_fds fds;
    CECL_TRY(cecl_vote_again(&mesh->broken));
    mesh_begin_fds(mesh, &fds, of);
    atomic_store(&mesh->rows[mesh->rank].fd, fd);
    CECL_TRY(mesh_end_fds(mesh, fd, ceclSuccess));
    for (int r = 0; r < mesh->nranks; r++)
        of[r] = mesh_is_elsewhere(mesh, r) ? of[r] : atomic_load(&mesh->rows[r].fd);
    return ceclSuccess;
}

bool cecl_mesh_fd_is_gone(const struct cecl_mesh *mesh, int peer)
{
    return !mesh_is_elsewhere(mesh, peer) && atomic_load(&mesh->rows[peer].fd) < 0;
}

void cecl_mesh_close_fd(struct cecl_mesh *mesh, int fd)
{
    atomic_store(&mesh->rows[mesh->rank].fd, -1);
    cecl_net_drop(&fd, 1);
}

void cecl_mesh_drop_fds(const struct cecl_mesh *mesh, int *of)
{
    for (int r = 0; r < mesh->nranks; r++)
        if (mesh_is_elsewhere(mesh, r))
            cecl_net_drop(&of[r], 1);
}
