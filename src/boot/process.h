/* Watching the process of another rank. A socket does not show that a rank has died, if a child that a bare clone()
 * made keeps it open. (A child of fork() closes it: util/fds.h.) */
#ifndef CECL_BOOT_PROCESS_H
#define CECL_BOOT_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

/* Identifies a process to other processes, also on other hosts. */
struct cecl_process {
    uint64_t space; /* where `pid` is valid: one boot of one kernel, one namespace; 0: unknown */
    int32_t pid;
    int32_t reserved;
};

/* Identifies this boot of the kernel and this process's namespace `kind`, as in /proc/self/ns:
 * "net", "pid". Returns 0 if they cannot be read. */
uint64_t cecl_namespace_id(const char *kind);

/* Describes this process. */
struct cecl_process cecl_process_self(void);

static inline bool cecl_process_is(const struct cecl_process *one, const struct cecl_process *other)
{
    return one->pid == other->pid && one->space == other->space;
}

/* Returns a descriptor that is readable once the process has ended, also if it has ended already.
 * Returns -1 if the process cannot be watched: it is this one, it is on another host or in another
 * namespace, or there are no descriptors left. errno is EMFILE or ENFILE only if there are no descriptors
 * left. */
int cecl_process_watch(const struct cecl_process *process);
/* Returns a descriptor of this process, to send to others: it is readable once the process has ended. -1: errno. */
int cecl_process_open_self(void);

/* A process that ends closes its sockets a little before its descriptor becomes readable. A thread that
 * has seen a socket close waits up to this many ms for the descriptor. */
#define CECL_PROCESS_ENDING_MS 50
/* Whether the watched process has ended, or ends within `ms` milliseconds. Returns false if `watched` is
 * -1. */
bool cecl_process_ends_within(int watched, int ms);

static inline bool cecl_process_has_ended(int watched)
{
    return cecl_process_ends_within(watched, 0);
}

#endif
