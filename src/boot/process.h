/* Watching the process of another rank. A forked child keeps the sockets of a rank that has died open,
 * so sockets alone do not tell its end. */
#ifndef CECL_BOOT_PROCESS_H
#define CECL_BOOT_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

/* Identifies a process to others, which may be on another host. */
struct cecl_process {
    uint64_t
        space; /* where `pid` has its meaning: one boot of one kernel, one namespace; 0: unknown */
    int32_t pid;
    int32_t reserved;
};

/* Identifies this boot of the kernel and this process's namespace `kind`, as in /proc/self/ns: "net",
 * "pid". 0 when that cannot be read. */
uint64_t cecl_namespace_id(const char *kind);

/* This process. */
struct cecl_process cecl_process_self(void);

/* A descriptor that is readable once the process has ended, also if it has ended already. -1 when it
 * cannot be watched: it is this one, or one of another host or namespace, or there are no descriptors
 * left. errno is EMFILE or ENFILE for the last reason only. */
int cecl_process_watch(const struct cecl_process *process);
/* The same for a process that has the number `pid` here. */
int cecl_process_watch_pid(int32_t pid);

/* Whether the watched process has ended. -1: false. */
bool cecl_process_has_ended(int watched);
/* A process that ends closes its sockets a little before its descriptor tells of the end. Whoever has
 * seen a socket close waits so many ms for that. */
#define CECL_PROCESS_ENDING_MS 50
/* Waits for the process's end, but no longer. */
bool cecl_process_is_ending(int watched);

#endif
