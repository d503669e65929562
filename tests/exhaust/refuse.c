#include "refuse.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../wrapped_syscall.h"

#define AS_INDEX(name, error) CALL_##name,
enum call { REFUSED_CALLS(AS_INDEX) CALLS };
#define AS_NAME(name, error) #name,
static const char *const names[CALLS] = {REFUSED_CALLS(AS_NAME)};
#define AS_ERROR(name, error) error,
static const int errors[CALLS] = {REFUSED_CALLS(AS_ERROR)};

static struct ledger *ledger;
static _Atomic bool armed;
static atomic_flag lock = ATOMIC_FLAG_INIT;

static void enter(void)
{
    while (atomic_flag_test_and_set_explicit(&lock, memory_order_acquire))
        sched_yield();
}

static void leave(void)
{
    atomic_flag_clear_explicit(&lock, memory_order_release);
}

void refuse_in(struct ledger *of)
{
    ledger = of;
}

void refuse_arm(bool on)
{
    atomic_store(&armed, on && ledger);
}

const char *refuse_name(int call)
{
    return names[call];
}

int refuse_errno(int call)
{
    return errors[call];
}

extern const char __executable_start[]; /* defined by the linker */

static uintptr_t place_of(const void *returns_to)
{
    return (uintptr_t)returns_to - (uintptr_t)__executable_start;
}

static struct place *find_place(uintptr_t at, enum call call)
{
    for (int i = 0; i < ledger->nplaces; i++)
        if (ledger->places[i].at == at && ledger->places[i].call == (int)call)
            return &ledger->places[i];
    if (ledger->nplaces == MOST_PLACES)
        return NULL;
    struct place *place = &ledger->places[ledger->nplaces++];
    *place = (struct place){.at = at, .call = (int)call};
    return place;
}

/* Counts a request. Returns whether it is refused, with errno set. */
static bool refuses(enum call call, const void *returns_to)
{
    if (!atomic_load_explicit(&armed, memory_order_relaxed))
        return false;
    const uintptr_t at = place_of(returns_to);
    enter();
    struct place *place = find_place(at, call);
    const int nth = place ? ++place->count : 0;
    const bool refused =
        at == ledger->refused_at && (int)call == ledger->refused_call && nth == ledger->refused_nth;
    atomic_fetch_add(&ledger->refused, refused);
    leave();
    if (refused)
        errno = errors[call];
    return refused;
}

#define SLOTS 16384u
#define GONE ((void *)1)

static struct slot {
    void *ptr;
    uintptr_t at;
} slots[SLOTS];

static size_t first_slot(const void *ptr)
{
    return ((uintptr_t)ptr >> 4) % SLOTS;
}

static struct slot *slot_of(const void *ptr)
{
    for (size_t i = first_slot(ptr), looks = 0; looks < SLOTS; i = (i + 1) % SLOTS, looks++)
        if (!slots[i].ptr || slots[i].ptr == ptr)
            return slots[i].ptr ? &slots[i] : NULL;
    return NULL;
}

static struct slot *free_slot_of(const void *ptr)
{
    for (size_t i = first_slot(ptr), looks = 0; looks < SLOTS; i = (i + 1) % SLOTS, looks++)
        if (!slots[i].ptr || slots[i].ptr == GONE)
            return &slots[i];
    return NULL;
}

static void *remember(void *ptr, const void *returns_to)
{
    if (!ptr)
        return NULL;
    enter();
    struct slot *slot = free_slot_of(ptr);
    if (slot)
        *slot = (struct slot){.ptr = ptr, .at = place_of(returns_to)};
    leave();
    return ptr;
}

static void forget(const void *ptr)
{
    if (!ptr)
        return;
    enter();
    struct slot *slot = slot_of(ptr);
    if (slot) /* NULL: libc itself allocated the memory */
        slot->ptr = GONE;
    leave();
}

static bool is_kept(const uintptr_t *kept, uintptr_t at)
{
    while (*kept && *kept != at)
        kept++;
    return *kept == at;
}

int refuse_live(const uintptr_t *kept, uintptr_t *at)
{
    int count = 0;
    *at = 0;
    enter();
    for (size_t i = 0; i < SLOTS; i++)
        if (slots[i].ptr && slots[i].ptr != GONE && !is_kept(kept, slots[i].at)) {
            count++;
            *at = slots[i].at;
        }
    leave();
    return count;
}

#define HERE __builtin_return_address(0)

#define WRAP(type, name, failed, parameters, arguments) \
    WRAPPED(type, name, parameters) \
    { \
        return refuses(CALL_##name, HERE) ? (failed) : __real_##name arguments; \
    }
WRAP(FILE *, open_memstream, NULL, (char **text, size_t *bytes), (text, bytes))
WRAP(FILE *, fopen, NULL, (const char *path, const char *mode), (path, mode))
WRAP(DIR *, opendir, NULL, (const char *path), (path))
WRAP(int, eventfd, -1, (unsigned value, int flags), (value, flags))
WRAP(int, memfd_create, -1, (const char *name, unsigned flags), (name, flags))
WRAP(int, socket, -1, (int domain, int type, int protocol), (domain, type, protocol))
WRAP(int, socketpair, -1, (int domain, int type, int protocol, int *fds),
     (domain, type, protocol, fds))
WRAP(int, accept4, -1, (int fd, struct sockaddr *from, socklen_t *length, int flags),
     (fd, from, length, flags))
WRAP(int, getifaddrs, -1, (struct ifaddrs * *list), (list))
WRAP(int, connect, -1, (int fd, const struct sockaddr *to, socklen_t length), (fd, to, length))
WRAP(int, bind, -1, (int fd, const struct sockaddr *at, socklen_t length), (fd, at, length))
WRAP(int, listen, -1, (int fd, int backlog), (fd, backlog))
WRAP(void *, mmap, MAP_FAILED, (void *at, size_t bytes, int rights, int flags, int fd, off_t from),
     (at, bytes, rights, flags, fd, from))
WRAP(int, ftruncate, -1, (int fd, off_t bytes), (fd, bytes))
WRAP(int, fallocate, -1, (int fd, int mode, off_t from, off_t bytes), (fd, mode, from, bytes))
WRAP(int, pthread_create, errors[CALL_pthread_create],
     (pthread_t * thread, const pthread_attr_t *options, void *(*run)(void *), void *argument),
     (thread, options, run, argument))
WRAP(int, pthread_key_create, errors[CALL_pthread_key_create],
     (pthread_key_t * key, void (*end)(void *)), (key, end))
WRAP(int, pthread_setspecific, errors[CALL_pthread_setspecific],
     (pthread_key_t key, const void *value), (key, value))
WRAP(int, pthread_atfork, errors[CALL_pthread_atfork],
     (void (*before)(void), void (*parent)(void), void (*child)(void)), (before, parent, child))

WRAPPED(void *, malloc, (size_t bytes))
{
    return refuses(CALL_malloc, HERE) ? NULL : remember(__real_malloc(bytes), HERE);
}

WRAPPED(void *, calloc, (size_t count, size_t bytes))
{
    return refuses(CALL_calloc, HERE) ? NULL : remember(__real_calloc(count, bytes), HERE);
}

WRAPPED(void *, realloc, (void *ptr, size_t bytes))
{
    if (refuses(CALL_realloc, HERE))
        return NULL;
    forget(ptr); /* assumes that the real realloc succeeds */
    return remember(__real_realloc(ptr, bytes), HERE);
}

WRAPPED(void, free, (void *ptr))
{
    forget(ptr);
    __real_free(ptr);
}

WRAPPED(int, fclose, (FILE * file))
{
    const bool refused = refuses(CALL_fclose, HERE);
    const int result = __real_fclose(file);
    if (refused)
        errno = errors[CALL_fclose];
    return refused ? EOF : result;
}

WRAPPED(int, open, (const char *path, int flags, ...))
{
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return refuses(CALL_open, HERE) ? -1 : __real_open(path, flags, mode);
}

WRAPPED(int, fcntl, (int fd, int command, ...))
{
    va_list arguments;
    va_start(arguments, command);
    const long argument = va_arg(arguments, long);
    va_end(arguments);
    return command == F_DUPFD_CLOEXEC && refuses(CALL_fcntl, HERE)
               ? -1
               : __real_fcntl(fd, command, argument);
}

WRAPPED_SYSCALL(number == SYS_pidfd_open && refuses(CALL_syscall, HERE))

WRAPPED(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags))
{
    return message->msg_controllen > 0 && refuses(CALL_sendmsg, HERE)
               ? -1
               : __real_sendmsg(fd, message, flags);
}

static bool has_descriptors(struct msghdr *message)
{
    const struct cmsghdr *first = CMSG_FIRSTHDR(message);
    return first && first->cmsg_level == SOL_SOCKET && first->cmsg_type == SCM_RIGHTS;
}

static void lose_descriptors(struct msghdr *message)
{
    const struct cmsghdr *first = CMSG_FIRSTHDR(message);
    const size_t count = (first->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; i++) {
        int fd;
        memcpy(&fd, CMSG_DATA(first) + i * sizeof(fd), sizeof(fd));
        close(fd);
    }
    message->msg_controllen = 0;
    message->msg_flags |= MSG_CTRUNC;
}

WRAPPED(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags))
{
    const ssize_t got = __real_recvmsg(fd, message, flags);
    if (got > 0 && has_descriptors(message) && refuses(CALL_recvmsg, HERE))
        lose_descriptors(message);
    return got;
}
