#include "life.h"

#define JOIN_SPREAD_US 8000 /* a fault amid joining comes within this time */
#define CALL_SPREAD_US 3000 /* a fault amid other calls comes within this time */

static _Noreturn void die(void)
{
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

static _Noreturn void leave_a_child(struct life *life)
{
    const pid_t child = fork();
    if (child == 0) {
        alarm(200);
        for (;;)
            pause();
    }
    atomic_store(&life->meeting->child, (int)child);
    _exit(0);
}

/* Ends the process, if that is the case's fault. */
static void end_if_it_does(struct life *life)
{
    if (life->c->fault == KILLED)
        die();
    if (life->c->fault == LEAVES_CHILD)
        leave_a_child(life);
    if (life->c->fault == EXITS)
        exit(0);
}

static void note(struct life *life)
{
    life->meeting->fault_at = now();
    atomic_store(&life->meeting->fault_began, 1);
}

/* A fault after which the rank goes on once its peers are done. */
static void stay_away(struct life *life)
{
    life->is_back = true;
    if (life->c->fault == STOPPED)
        raise(SIGSTOP);
    STEP(life, "staying away");
    while (!atomic_load(&life->meeting->released))
        usleep(500);
}

static void commit(struct life *life)
{
    STEP(life, "the fault");
    note(life);
    end_if_it_does(life);
    switch (life->c->fault) {
    case STOPPED:
    case NEVER_CALLS:
        stay_away(life);
        if (!life->comm)
            break; /* the rank continues and joins */
        aftermath_of_the_late(life);
    case OTHER_CALL: life->gets_wrong = true; break;
    case REVOKES: (void)!ceclCommRevoke(life->comm); break;
    case ABORTS:
    case LEAVES: aftermath_of_leaving(life);
    default: break;
    }
}

void misdeed_at(struct life *life, enum when when)
{
    if (life->is_faulty && life->c->when == when && life->attempt == life->c->round)
        commit(life);
}

static void *commit_soon(void *argument)
{
    struct life *life = argument;
    const uint32_t spread = life->c->op == JOIN ? JOIN_SPREAD_US : CALL_SPREAD_US;
    const struct timespec delay = {.tv_nsec = (long)(life->c->seed / 7 % spread) * 1000};
    nanosleep(&delay, NULL);
    note(life);
    end_if_it_does(life);
    switch (life->c->fault) {
    case STOPPED:
        life->is_back = true;
        kill(getpid(), SIGSTOP);
        break;
    case REVOKES: (void)!ceclCommRevoke(life->comm); break;
    default: break;
    }
    return NULL;
}

void misdeed_prepare(struct life *life)
{
    if (!life->is_faulty || life->c->when != AMID)
        return;
    if (pthread_create(&life->thread, NULL, commit_soon, life) != 0)
        life_fail(life, "no thread for the fault");
    life->has_thread = true;
}

void misdeed_forget(struct life *life)
{
    if (life->has_thread)
        pthread_join(life->thread, NULL);
    life->has_thread = false;
}
