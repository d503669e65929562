/* Counts what the library asks of libc and the kernel, and refuses one request of a rank.
 *
 * The linker (--wrap) replaces the functions of REFUSED_CALLS by wrappers in all object files of the library. So these
 * see every request of the library's own code, on any thread, and none that libc or a sanitizer makes for itself. A
 * library loaded by LD_PRELOAD would have to tell callers apart, and could not replace malloc where a sanitizer does. A
 * request's place is its return address. */
#ifndef CECL_TESTS_EXHAUST_REFUSE_H
#define CECL_TESTS_EXHAUST_REFUSE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The functions to refuse, each with the errno that a refusal sets. */
#define REFUSED_CALLS(CALL) \
    CALL(malloc, ENOMEM) \
    CALL(calloc, ENOMEM) \
    CALL(realloc, ENOMEM) \
    CALL(open_memstream, ENOMEM) \
    CALL(open, EMFILE) \
    CALL(fopen, EMFILE) \
    CALL(opendir, EMFILE) \
    CALL(fcntl, EMFILE)   /* F_DUPFD_CLOEXEC */ \
    CALL(syscall, EMFILE) /* pidfd_open */ \
    CALL(eventfd, EMFILE) \
    CALL(memfd_create, EMFILE) \
    CALL(socketpair, EMFILE) \
    CALL(socket, EMFILE) \
    CALL(accept4, EMFILE) \
    CALL(getifaddrs, EMFILE) \
    CALL(recvmsg, EMFILE) /* receives no descriptors, as if the kernel had dropped them */ \
    CALL(sendmsg, ENOBUFS) \
    CALL(connect, ENOBUFS) \
    CALL(bind, ENOMEM) \
    CALL(listen, ENOMEM) \
    CALL(mmap, ENOMEM) \
    CALL(ftruncate, ENOSPC) \
    CALL(fallocate, ENOSPC) \
    CALL(fclose, ENOSPC) /* written data may be lost */ \
    CALL(pthread_create, EAGAIN) \
    CALL(pthread_key_create, EAGAIN) \
    CALL(pthread_setspecific, ENOMEM) \
    CALL(pthread_atfork, ENOMEM)

#define MOST_PLACES 512

struct place {
    uintptr_t at; /* offset from the start of the program */
    int call;     /* index of the function in REFUSED_CALLS */
    int count;    /* number of requests from this place */
};

/* The requests of one rank; shared with the leading process. */
struct ledger {
    int nplaces;
    struct place places[MOST_PLACES];
    /* The nth request (from 1) of this function at this place is refused; 0: none. */
    uintptr_t refused_at;
    int refused_call, refused_nth;
    _Atomic int refused; /* number of refused requests */
};

/* From now on this process counts its requests in `ledger` while the ledger is armed. */
void refuse_in(struct ledger *ledger);
void refuse_arm(bool on);
const char *refuse_name(int call);
int refuse_errno(int call);

/* How many of the library's allocations are not freed, except those made at the places in `kept` (ends with 0). Sets
 * *at to the place of one of the counted allocations, or to 0. */
int refuse_live(const uintptr_t *kept, uintptr_t *at);

#endif
