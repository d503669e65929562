/* Counts what the library asks of libc and the kernel, and refuses one request of a rank.
 *
 * The linker puts these functions before libc's (--wrap) for everything in the library's object
 * files. So each request of the library's own code is seen, on whichever thread, and none that libc
 * or a sanitizer makes for itself. An LD_PRELOAD shim would have to tell callers apart, and could not
 * stand before malloc where a sanitizer does. The address to which a request returns is its place. */
#ifndef CECL_TESTS_EXHAUST_REFUSE_H
#define CECL_TESTS_EXHAUST_REFUSE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Calls that are refused, and with which errno. */
#define REFUSED_CALLS(CALL)                                                                        \
    CALL(malloc, ENOMEM)                                                                           \
    CALL(calloc, ENOMEM)                                                                           \
    CALL(realloc, ENOMEM)                                                                          \
    CALL(open_memstream, ENOMEM)                                                                   \
    CALL(open, EMFILE)                                                                             \
    CALL(fopen, EMFILE)                                                                            \
    CALL(opendir, EMFILE)                                                                          \
    CALL(fcntl, EMFILE)   /* F_DUPFD_CLOEXEC */                                                    \
    CALL(syscall, EMFILE) /* pidfd_open */                                                         \
    CALL(eventfd, EMFILE)                                                                          \
    CALL(memfd_create, EMFILE)                                                                     \
    CALL(socketpair, EMFILE)                                                                       \
    CALL(socket, EMFILE)                                                                           \
    CALL(accept4, EMFILE)                                                                          \
    CALL(getifaddrs, EMFILE)                                                                       \
    CALL(recvmsg, EMFILE) /* of descriptors: they are lost, as the kernel loses them */            \
    CALL(sendmsg, ENOBUFS)                                                                         \
    CALL(connect, ENOBUFS)                                                                         \
    CALL(bind, ENOMEM)                                                                             \
    CALL(listen, ENOMEM)                                                                           \
    CALL(mmap, ENOMEM)                                                                             \
    CALL(ftruncate, ENOSPC)                                                                        \
    CALL(fclose, ENOSPC) /* what was written may be lost */                                        \
    CALL(pthread_create, EAGAIN)                                                                   \
    CALL(pthread_key_create, EAGAIN)                                                               \
    CALL(pthread_setspecific, ENOMEM)                                                              \
    CALL(pthread_atfork, ENOMEM)

#define MOST_PLACES 512

struct place {
    uintptr_t at; /* from the start of the program */
    int call;     /* index in REFUSED_CALLS */
    int count;    /* requests from here */
};

/* Of one rank; shared with the process that leads. */
struct ledger {
    int nplaces;
    struct place places[MOST_PLACES];
    /* Refuse the request of this call from here that is the nth, counted from 1; 0: none. */
    uintptr_t refused_at;
    int refused_call, refused_nth;
    _Atomic int refused; /* requests that were */
};

/* From now on this process counts in `ledger`, while it is armed. */
void refuse_in(struct ledger *ledger);
void refuse_arm(bool on);
const char *refuse_name(int call);
int refuse_errno(int call);

/* How many of the library's allocations are not freed, leaving out those of the places `kept`, a list
 * that ends with 0. *at: the place of one of these, or 0. */
int refuse_live(const uintptr_t *kept, uintptr_t *at);

#endif
