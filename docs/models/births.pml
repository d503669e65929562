/* Communicators that NCCL makes in the background from a parent: split, shrink and grow
 * (src/nccl/begin.c), for Spin. NCCL writes the child's handle into memory of the program,
 * `place`, which is valid until the program learns that the parent is ready. RANKS threads of the
 * program query the parent's state; another thread may abort the parent. life.pml models the
 * child's later life.
 *
 * Checked: no deadlock; no thread reads the place after it is freed; cecl's child is made once; a
 * thread that learns that the parent is ready finds cecl's child made, unless the parent was
 * aborted.
 *
 * Planted faults: TELL_FIRST reports to the program before the place is read; NO_LOCK lets two
 * threads look at the same time; NO_WAIT does not wait until cecl's child is made; FORGET_LAST
 * ends the parent before its births are forgotten. */
#ifndef RANKS
#define RANKS 2 /* threads that query the state */
#endif
#ifndef CALLS
#define CALLS 2 /* queries of each thread */
#endif

#define NONE 0
#define MAKING 1
#define READY 2

bool written, parent_ready; /* NCCL has finished the child */
bool freed;                 /* the place */
bool expected = true;       /* the birth is in the list */
bool child;                 /* the child's handle was read */
byte entry = NONE;          /* cecl's communicator for the child */
byte made;
bool aborted, lock;

#ifdef NO_LOCK
#define LOCK skip
#define UNLOCK skip
#else
#define LOCK atomic { !lock -> lock = true }
#define UNLOCK lock = false
#endif

active proctype nccl()
{
    written = true;
    parent_ready = true
}

proctype maker()
{
    entry = READY
}

/* From here on, the place may be reused. */
inline told()
{
    freed = true;
    assert(entry == READY || aborted) /* not made yet */
}

inline look(answer)
{
    bool come;
    LOCK;
    if
    :: expected ->
        come = false;
        if
        :: !child ->
            assert(!freed); /* place */
            come = written
        :: else
        fi;
        if
        :: come ->
            child = true;
            made++;
            assert(made == 1); /* made twice */
            entry = MAKING;
            run maker()
        :: else
        fi;
#ifdef NO_WAIT
        answer = true;
#else
        answer = entry != MAKING;
#endif
        if
        :: answer -> expected = false
        :: else
        fi
    :: else -> answer = true
    fi;
    UNLOCK
}

active [RANKS] proctype asks()
{
    byte n;
    bool is_ready;
    do
    :: n < CALLS ->
        n++;
        is_ready = false;
        if
        :: parent_ready ->
#ifdef TELL_FIRST
            freed = true;
#endif
            look(is_ready)
        :: else
        fi;
        if
        :: is_ready -> told()
        :: else
        fi
    :: else -> break
    od
}

active proctype aborts()
{
    if
    :: true ->
        aborted = true;
#ifdef FORGET_LAST
        freed = true;
#endif
        LOCK;
        expected = false;
        UNLOCK;
        freed = true
    :: true
    fi
}
