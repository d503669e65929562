/* Limits every wait, because neither MPI nor NCCL limits its own. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "overlap.h"

/* More than cecl's own limits (30 and 60 s by default), which should end a wait first because their messages say
 * more. */
#define LIMIT_S 120

static char words[160];

static void ends(int number)
{
    (void)number;
    /* printf may need a lock that the interrupted thread holds. */
    (void)!write(STDERR_FILENO, words, strlen(words));
    _exit(END_BROKEN); /* mpirun then ends the other ranks */
}

void limit(const struct run *run, const char *what)
{
    struct sigaction action = {.sa_handler = ends};
    alarm(0);
    snprintf(words, sizeof(words), "%s: rank %d: %s: no end within %d s\n", run->program, run->rank,
             what, LIMIT_S);
    sigaction(SIGALRM, &action, NULL);
    alarm(LIMIT_S);
}
