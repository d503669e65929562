/* For scripts/coverage.sh: writes gcov's counts when a process ends by _exit; gcov itself writes them only at exit().
 * This file is linked into each program and each shared library, because each has counts of its own. A library tells
 * the program which function writes the library's counts. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

void __gcov_dump(void);

#define MOST 16
static void (*dumps[MOST])(void);
static int count;

void cecl_keep_counts(void (*dump)(void));
void cecl_keep_counts(void (*dump)(void))
{
    if (count < MOST)
        dumps[count++] = dump;
}

/* Calls the program's function, which the loader finds before the library's own. */
__attribute__((constructor)) static void announce(void)
{
    void (*keep)(void (*)(void)) =
        (void (*)(void (*)(void)))dlsym(RTLD_DEFAULT, "cecl_keep_counts");
    if (keep)
        keep(__gcov_dump);
}

/* Replaces the C library's _exit. */
void _exit(int status)
{
    for (int i = 0; i < count; i++)
        dumps[i]();
    for (;;)
        syscall(SYS_exit_group, status);
}
