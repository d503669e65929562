/* See meeting.h. In each gather a rank sends one letter to every other rank, and waits for one from each. If a peer's
 * inbox is gone, the peer has left, but its letter may still lie in this rank's inbox. So after a rank has seen that a
 * peer has left, it reads its own inbox once more; no letter of the peer can come later. */
#include "nccl/meeting.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/fds.h"
#include "util/settings.h"

#define LOOK_MS 20             /* most ms between two calls of look() in a wait */
#define MOST_BYTES (64 * 1024) /* the most bytes of a letter */

struct envelope {
    int32_t place, rank; /* of the sender */
    uint64_t number;     /* number of the gather, from 1 on */
};

struct letter {
    struct letter *next;
    size_t bytes;
    struct envelope from;
    unsigned char words[];
};

/* Another place, where a rank of the communicator may be. The first gather shows whether there is one. */
struct peer {
    int place, rank;
    bool has_mine; /* it was sent this rank's letter of this gather */
    bool is_gone;  /* it has no inbox */
};

struct cecl_nccl_meeting {
    uint64_t key;
    int inbox; /* -1: none */
    int rank, nranks;
    struct envelope mine; /* envelope of this rank's latest letter */
    const cecl_nccl_life *life;
    ceclResult_t result;    /* ceclSuccess until a gather has failed; then its error */
    struct letter *letters; /* letters of peers that no gather has used yet */
    int count;
    struct peer peers[];
};

/* ---- inboxes. Their names are abstract: no file has such a name, and a name vanishes with its socket. */

static socklen_t name_inbox(uint64_t key, int place, struct sockaddr_un *name)
{
    *name = (struct sockaddr_un){.sun_family = AF_UNIX};
    const int bytes = snprintf(name->sun_path + 1, sizeof(name->sun_path) - 1,
                               "cecl-nccl-%016llx-%d", (unsigned long long)key, place);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)bytes);
}

static int open_inbox(uint64_t key, int place)
{
    struct sockaddr_un name;
    const socklen_t length = name_inbox(key, place, &name);
    const int yes = 1,
              inbox = CECL_FD(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (inbox >= 0 && setsockopt(inbox, SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes)) == 0 &&
        bind(inbox, (struct sockaddr *)&name, length) == 0)
        return inbox;
    if (inbox >= 0)
        cecl_fds_close(inbox);
    return -1;
}

/* Whether the peer's inbox is gone. False also if this rank cannot find out now. */
static bool has_no_inbox(uint64_t key, int place)
{
    struct sockaddr_un name;
    const socklen_t length = name_inbox(key, place, &name);
    const int probe = CECL_FD(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const bool is_gone = probe >= 0 && connect(probe, (struct sockaddr *)&name, length) != 0 &&
                         errno == ECONNREFUSED;
    if (probe >= 0)
        cecl_fds_close(probe);
    return is_gone;
}

struct cecl_nccl_meeting *cecl_nccl_meeting_open(uint64_t key, int place, int places)
{
    struct cecl_nccl_meeting *meeting =
        calloc(1, sizeof(*meeting) + (size_t)(places > 0 ? places : 0) * sizeof(struct peer));
    if (!meeting)
        return NULL;
    meeting->key = key;
    meeting->mine.place = place;
    for (int other = 0; other < places; other++)
        if (other != place)
            meeting->peers[meeting->count++] = (struct peer){.place = other, .rank = -1};
    meeting->inbox = open_inbox(key, place);
    return meeting;
}

void cecl_nccl_meeting_close(struct cecl_nccl_meeting *meeting)
{
    if (!meeting)
        return;
    if (meeting->inbox >= 0)
        cecl_fds_close(meeting->inbox);
    for (struct letter *letter = meeting->letters, *next; letter; letter = next) {
        next = letter->next;
        free(letter);
    }
    free(meeting);
}

uint64_t cecl_nccl_meeting_key(const struct cecl_nccl_meeting *meeting)
{
    return meeting->key;
}

void cecl_nccl_meeting_begin(struct cecl_nccl_meeting *meeting, int rank, int nranks,
                             const cecl_nccl_life *life)
{
    meeting->rank = meeting->mine.rank = rank;
    meeting->nranks = nranks;
    meeting->life = life;
}

/* ---- letters */

/* Sends this gather's letter, unless the peer has it. If the peer's inbox is full, a later call tries again. */
static ceclResult_t send_to(struct cecl_nccl_meeting *meeting, struct peer *peer, const void *words,
                            size_t bytes)
{
    struct sockaddr_un name;
    struct iovec parts[2] = {{&meeting->mine, sizeof(meeting->mine)},
                             {(void *)(uintptr_t)words, bytes}};
    const struct msghdr message = {.msg_name = &name,
                                   .msg_namelen = name_inbox(meeting->key, peer->place, &name),
                                   .msg_iov = parts,
                                   .msg_iovlen = 2};
    if (peer->has_mine || peer->is_gone)
        return ceclSuccess;
    peer->has_mine = sendmsg(meeting->inbox, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
    peer->is_gone = !peer->has_mine && errno == ECONNREFUSED;
    const bool is_full = errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM || errno == EINTR;
    return peer->has_mine || peer->is_gone || is_full
               ? ceclSuccess
               : cecl_fail(ceclSystemError, "%zu bytes could not be sent to another rank: %s",
                           bytes, strerror(errno));
}

static bool is_of_this_user(struct msghdr *message)
{
    struct ucred sender;
    struct cmsghdr *part = CMSG_FIRSTHDR(message);
    if (!part || part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_CREDENTIALS)
        return false;
    memcpy(&sender, CMSG_DATA(part), sizeof(sender));
    return sender.uid == geteuid();
}

/* Reads a datagram of `bytes` bytes, and keeps it if it is a letter from a process of this user. */
static ceclResult_t read_letter(struct cecl_nccl_meeting *meeting, size_t bytes)
{
    union {
        struct cmsghdr first;
        char room[CMSG_SPACE(sizeof(struct ucred))];
    } control;
    struct letter *letter = malloc(sizeof(*letter) + bytes);
    if (!letter)
        return cecl_fail(ceclSystemError, "no host memory for %zu bytes of another rank", bytes);
    struct iovec parts[2] = {{&letter->from, sizeof(letter->from)}, {letter->words, bytes}};
    struct msghdr message = {.msg_iov = parts,
                             .msg_iovlen = 2,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    const ssize_t got = recvmsg(meeting->inbox, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < (ssize_t)sizeof(letter->from) || !is_of_this_user(&message)) {
        free(letter);
        return ceclSuccess;
    }
    letter->bytes = (size_t)got - sizeof(letter->from);
    letter->next = meeting->letters;
    meeting->letters = letter;
    return ceclSuccess;
}

static ceclResult_t read_all(struct cecl_nccl_meeting *meeting)
{
    ssize_t bytes;
    while ((bytes = recv(meeting->inbox, NULL, 0, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT)) >= 0)
        CECL_TRY(read_letter(meeting, (size_t)bytes));
    return ceclSuccess;
}

/* The list's pointer to the peer's letter of this gather; NULL: it has not come. */
static struct letter **letter_of(struct cecl_nccl_meeting *meeting, const struct peer *peer)
{
    struct letter **at = &meeting->letters;
    while (*at && ((*at)->from.place != peer->place || (*at)->from.number != meeting->mine.number))
        at = &(*at)->next;
    return *at ? at : NULL;
}

/* ---- a gather */

static int64_t limit_ms(void)
{
    const enum cecl_setting_id id = CECL_SET_INIT_TIMEOUT_MS;
    int64_t limit = 0;
    /* a bad value counts as the default here: ceclCommInitOob refuses it, on all ranks */
    if (cecl_setting_read(id, &limit) != ceclSuccess)
        (void)!cecl_setting_parse(id, cecl_setting_default(id), &limit);
    return limit;
}

/* Whether this rank has exchanged letters with each peer that is not gone. */
static bool is_complete(struct cecl_nccl_meeting *meeting)
{
    bool is = true;
    for (int i = 0; i < meeting->count; i++) {
        struct peer *peer = &meeting->peers[i];
        is = is && (peer->is_gone || (peer->has_mine && letter_of(meeting, peer)));
    }
    return is;
}

/* Looks for peers that have left, sends what is not sent yet, and last reads the inbox, to which peers may have sent
 * letters before they left. */
static ceclResult_t look(struct cecl_nccl_meeting *meeting, const void *mine, size_t bytes)
{
    for (int i = 0; i < meeting->count; i++) {
        struct peer *peer = &meeting->peers[i];
        if (peer->has_mine && !letter_of(meeting, peer))
            peer->is_gone = has_no_inbox(meeting->key, peer->place);
        CECL_TRY(send_to(meeting, peer, mine, bytes));
    }
    return read_all(meeting);
}

static ceclResult_t await_letters(struct cecl_nccl_meeting *meeting, const void *mine, size_t bytes)
{
    const int64_t limit = limit_ms(), deadline = cecl_deadline(limit);
    struct pollfd inbox = {.fd = meeting->inbox, .events = POLLIN};
    CECL_TRY(look(meeting, mine, bytes));
    while (!is_complete(meeting)) {
        if (!cecl_nccl_life_is(meeting->life, CECL_NCCL_SET(MAKING)))
            return cecl_fail(ceclInvalidUsage,
                             "the communicator was ended while it was being made");
        if (cecl_ms_left(deadline) == 0)
            return cecl_fail(ceclRemoteError,
                             "a rank did not come within %lld ms (CECL_INIT_TIMEOUT_MS) after NCCL "
                             "had made the communicator",
                             (long long)limit);
        (void)!poll(&inbox, 1, LOOK_MS);
        CECL_TRY(look(meeting, mine, bytes));
    }
    return ceclSuccess;
}

/* Copies the peer's bytes to their place in `all`, and notes the peer's rank. False: there is no valid letter. */
static bool take_letter(struct cecl_nccl_meeting *meeting, struct peer *peer, void *all,
                        size_t bytes)
{
    struct letter **at = letter_of(meeting, peer), *letter = at ? *at : NULL;
    if (!letter)
        return false;
    const int rank = letter->from.rank;
    const bool is_right = letter->bytes == bytes && rank >= 0 && rank < meeting->nranks &&
                          (peer->rank < 0 || peer->rank == rank);
    if (is_right) {
        peer->rank = rank;
        memcpy((char *)all + (size_t)rank * bytes, letter->words, bytes);
    }
    *at = letter->next;
    free(letter);
    return is_right;
}

/* Takes the letters of this gather. Places without a letter do not take part in later gathers. Returns the lowest rank
 * that took part before and has sent nothing, or -1. */
static int take_letters(struct cecl_nccl_meeting *meeting, void *all, size_t bytes)
{
    int here = 0, missing = -1;
    for (int i = 0; i < meeting->count; i++) {
        struct peer *peer = &meeting->peers[i];
        if (take_letter(meeting, peer, all, bytes))
            meeting->peers[here++] = *peer;
        else if (peer->rank >= 0 && (missing < 0 || peer->rank < missing))
            missing = peer->rank;
    }
    meeting->count = here;
    return missing;
}

/* The lowest rank of the communicator that has sent nothing; -1: all have sent. */
static int first_absent(const struct cecl_nccl_meeting *meeting)
{
    for (int rank = 0; rank < meeting->nranks; rank++) {
        bool is_here = rank == meeting->rank;
        for (int i = 0; i < meeting->count; i++)
            is_here = is_here || meeting->peers[i].rank == rank;
        if (!is_here)
            return rank;
    }
    return -1;
}

static ceclResult_t gather(struct cecl_nccl_meeting *meeting, const void *mine, void *all,
                           size_t bytes, int *absent)
{
    const bool is_first = meeting->mine.number++ == 0;
    *absent = -1;
    memcpy((char *)all + (size_t)meeting->rank * bytes, mine, bytes);
    if (bytes > MOST_BYTES)
        return cecl_fail(ceclInternalError, "%zu bytes to gather: at most %d expected", bytes,
                         MOST_BYTES);
    if (meeting->inbox < 0)
        meeting->count = 0;
    for (int i = 0; i < meeting->count; i++)
        meeting->peers[i].has_mine = meeting->peers[i].is_gone = false;
    CECL_TRY(await_letters(meeting, mine, bytes));
    const int missing = take_letters(meeting, all, bytes);
    if (is_first)
        *absent = first_absent(meeting);
    return missing < 0 ? ceclSuccess
                       : cecl_fail(ceclRemoteError,
                                   "rank %d has left while the communicator was made", missing);
}

ceclResult_t cecl_nccl_meeting_gather(struct cecl_nccl_meeting *meeting, const void *mine,
                                      void *all, size_t bytes, int *absent)
{
    if (meeting->result == ceclSuccess)
        meeting->result = gather(meeting, mine, all, bytes, absent);
    return meeting->result;
}
