/* The failure of a communicator (src/comm/watch.c, src/comm/fail.c, src/flags/release.c,
 * src/flags/advance.c, src/ce/run.c), for Spin. Each rank has a caller (it enqueues calls piece by
 * piece), a stream (it carries them out in order), and a watchdog. A call has three exchanges of
 * flags: ranks are ready; each has pushed a block to each peer; each has returned to its peers the
 * blocks that they pushed. So a rank whose waits were released may return blocks that it has not
 * received. The communicator of a rank may fail at any time, FAULTS times in all: it is revoked, or
 * a peer is late. A driver call may also fail, in the middle of a call. DEATHS ranks may die.
 *
 * Checked: no deadlock, so all waits end; a caller that has waited for its stream, or for the end
 * of its calls, and then learns of no failure, has all blocks of these calls; with flags by copy, a
 * stream passes a call whose blocks have not arrived only if the stream's own rank has released it;
 * four releases in a row end a wait.
 *
 * WRITES: flags lie on the host, and streams write them. KERNELS: a kernel waits for blocks,
 * returns them, and signals. FINALIZE: callers wait for the end of their calls, not for the stream.
 *
 * Planted faults: RELEASE_FIRST releases waits before peers learn of the failure; NO_SILENCE does
 * not overwrite the table of values; KERNELS_LAST releases flags before it tells kernels to end;
 * NO_QUESTION takes the end of a call for success without asking for news; SAME_QUARTER releases
 * with the same value each time; ONE_RELEASE releases once; LATE_TARGET reports a call to the
 * watchdog after it was enqueued; NO_END_MARK does not mark the end of a call that failed while it
 * was enqueued. */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef CALLS
#define CALLS 2
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#define WRAP 16 /* epochs are counted modulo this */
#define QUARTER (WRAP / 4)
#define PHASES 3 /* commands of a call */
#define ROOM 3   /* a driver call waits while the queue has this many commands */
#define FIRST_EPOCH (WRAP - 2)

#define WORD(holder, writer) ((holder) * RANKS + (writer))
#define REACHED(have, want) ((((have) + WRAP - (want)) % WRAP) < WRAP / 2)
#define EPOCH(call, phase) ((FIRST_EPOCH + ((call) - 1) * PHASES + (phase)) % WRAP)

/* The commands of a call, in order. */
#define SIGNAL_READY 0
#define WAIT_READY 1
#define PUSH 2
#define SIGNAL_PUSHED 3
#define WAIT_PUSHED 4
#define RETURN 5
#define SIGNAL_RETURNED 6
#define WAIT_RETURNED 7
#define MARK_DONE 8
#define COMMANDS 9

byte flag[RANKS * RANKS];
byte block[RANKS * RANKS];    /* [holder, writer]: the call whose block the writer pushed */
byte returned[RANKS * RANKS]; /* [holder, writer]: the call whose block the writer returned */

/* A rank's engine and flags. */
byte enqueued[RANKS]; /* commands so far, of all calls */
byte cut_at[RANKS];   /* 1 + the commands before the end mark of a call that was cut short */
byte target[RANKS];   /* calls, including the call that is being enqueued */
byte done[RANKS];     /* calls; the word `done` */
bool silenced[RANKS];   /* the table of values is overwritten */
byte silence[RANKS];  /* the value that fills the overwritten table */
bool kernels_end[RANKS];

/* A communicator. */
bool failed[RANKS]; /* the asynchronous error is set */
bool told[RANKS * RANKS]; /* [to, from] */
bool dead[RANKS];
byte faults, deaths;

/* Events. */
byte passed[RANKS];   /* commands that the stream has carried out */
bool released[RANKS]; /* the rank has released its waits */
bool wrong[RANKS];    /* its stream has passed a call without all blocks */
bool ended[RANKS];    /* from now on nobody reads what is written to this rank */
byte in_vain[RANKS];  /* releases since the stream last moved, or a peer last wrote a flag */

#define CALL_OF(rank) (passed[rank] / COMMANDS + 1)
/* Ranks are symmetric, so only rank 0 may fail first. */
#define MAY_FAIL (faults < FAULTS && (faults > 0 || me == 0))
#define IS_PENDING(rank) (done[rank] != target[rank])
#define ENDED 255 /* a value of cut_at: the end mark has been carried out */
#define IS_CUT(rank) (cut_at[rank] != 0 && passed[rank] + 1 == cut_at[rank])

#define HOLDS(peer, is, call)                                                                      \
    (block[WORD(me, peer)] is (call) && returned[WORD(me, peer)] is (call))
#if RANKS == 2
#define ALL_REACHED(want) (REACHED(flag[WORD(me, 1 - me)], want))
#define HAS_NEWS(me) (told[WORD(me, 1 - me)] || dead[1 - me])
#define HAS_ALL(is, call) HOLDS(1 - me, is, call)
#else
#define NEXT ((me + 1) % 3)
#define LAST ((me + 2) % 3)
#define ALL_REACHED(want)                                                                          \
    (REACHED(flag[WORD(me, NEXT)], want) && REACHED(flag[WORD(me, LAST)], want))
#define HAS_NEWS(me) (told[WORD(me, NEXT)] || told[WORD(me, LAST)] || dead[NEXT] || dead[LAST])
#define HAS_ALL(is, call) (HOLDS(NEXT, is, call) && HOLDS(LAST, is, call))
#endif

/* ---- the stream */

#ifdef KERNELS /* a kernel waits for blocks, returns them, and signals */
#define KERNEL_MAY_GO_ON (COMMAND(me) == WAIT_PUSHED && kernels_end[me])
#define SENDS_NOTHING (COMMAND(me) == SIGNAL_RETURNED && kernels_end[me])
#define SENDS_VALUE (COMMAND(me) == SIGNAL_RETURNED || !silenced[me])
#elif defined(WRITES)
#define KERNEL_MAY_GO_ON false
#define SENDS_NOTHING false
#define SENDS_VALUE true
#else
#define KERNEL_MAY_GO_ON false
#define SENDS_NOTHING false
#define SENDS_VALUE (!silenced[me])
#endif

#define COMMAND(rank) (IS_CUT(rank) -> MARK_DONE : passed[rank] % COMMANDS)
#define PHASE(command) ((command) / 3 + 1)
#define IS_WAIT(command)                                                                           \
    ((command) == WAIT_READY || (command) == WAIT_PUSHED || (command) == WAIT_RETURNED)
#define IS_SIGNAL(command)                                                                         \
    ((command) == SIGNAL_READY || (command) == SIGNAL_PUSHED || (command) == SIGNAL_RETURNED)
#define HAS_WORK (passed[me] < enqueued[me] || IS_CUT(me))
#define IS_STUCK                                                                                   \
    (IS_WAIT(COMMAND(me)) && !ALL_REACHED(EPOCH(CALL_OF(me), PHASE(COMMAND(me)))) &&               \
     !KERNEL_MAY_GO_ON)

#define NOBODY RANKS
#define VALUE (SENDS_VALUE -> EPOCH(CALL_OF(me), PHASE(COMMAND(me))) : silence[me])

/* Pushes the call's block to all peers. */
inline push()
{
    p = 0;
    do
    :: p < RANKS && p != me && !ended[p] -> block[WORD(p, me)] = CALL_OF(me); p++
    :: p < RANKS && (p == me || ended[p]) -> p++
    :: p == RANKS -> p = 0; break
    od
}

inline return_blocks()
{
    p = 0;
    do
    :: p < RANKS && p != me && !ended[p] -> returned[WORD(p, me)] = block[WORD(me, p)]; p++
    :: p < RANKS && (p == me || ended[p]) -> p++
    :: p == RANKS -> p = 0; break
    od
}

inline mark_done()
{
    wrong[me] = wrong[me] || !HAS_ALL(==, CALL_OF(me));
#ifndef WRITES
    /* A peer that was released may have overwritten its block with the block of its next call. */
    has_come = HAS_ALL(>=, CALL_OF(me));
    assert(has_come || released[me] || IS_CUT(me));
    has_come = false;
#endif
    done[me] = CALL_OF(me)
}

inline go_on()
{
    if
    :: IS_CUT(me) -> cut_at[me] = ENDED
    :: else -> passed[me]++
    fi;
    in_vain[me] = 0
}

/* A copy reads a flag's value from the table, and writes it at the peer afterwards. A kernel
 * checks once whether it must end. A dead rank's stream makes no more steps. */
proctype stream(byte me)
{
    byte value, to = NOBODY, p;
    bool has_come;
end:
    do
    :: atomic {
            HAS_WORK && !IS_STUCK && !IS_SIGNAL(COMMAND(me)) && !dead[me] ->
                if
                :: COMMAND(me) == PUSH -> push()
                :: COMMAND(me) == RETURN -> return_blocks()
                :: COMMAND(me) == MARK_DONE -> mark_done()
                :: else
                fi;
                go_on()
        }
    :: atomic {
            HAS_WORK && IS_SIGNAL(COMMAND(me)) && to == NOBODY && !dead[me] ->
                if
                :: SENDS_NOTHING -> go_on()
                :: else -> to = (me + 1) % RANKS; value = VALUE
                fi
        }
    :: atomic {
            to != NOBODY && !dead[me] ->
                if
                :: !ended[to] -> flag[WORD(to, me)] = value; in_vain[to] = 0
                :: else
                fi;
                to = (to + 1) % RANKS;
                if
                :: to != me -> value = VALUE
                :: else ->
                    to = NOBODY;
                    value = 0;
                    go_on()
                fi
        }
    od
}

/* ---- the caller */

#if DEATHS > 0
#define MAY_DIE                                                                                    \
    if                                                                                             \
    :: deaths < DEATHS && (deaths > 0 || me == 0) -> goto death                               \
    :: true                                                                                        \
    fi
#else
#define MAY_DIE skip
#endif

#ifdef FINALIZE
#define IS_THROUGH (!IS_PENDING(me) || failed[me])
#else
#define IS_THROUGH (passed[me] == enqueued[me] && (cut_at[me] == 0 || cut_at[me] == ENDED))
#endif

/* Waits for the stream, and learns of failures. */
inline finish()
{
    atomic {
        IS_THROUGH && !dead[me] ->
#ifndef NO_QUESTION
            if
            :: HAS_NEWS(me) -> failed[me] = true
            :: else
            fi;
#endif
            assert(failed[me] || !wrong[me])
    }
    atomic { /* at the end nothing is pending */
        !IS_PENDING(me) && !dead[me] ->
            ended[me] = true;
            in_vain[me] = 0;
            call = 0;
            command = 0;
            do
            :: call < RANKS ->
                flag[WORD(me, call)] = 0;
                block[WORD(me, call)] = 0;
                returned[WORD(me, call)] = 0;
                call++
            :: else -> call = 0; break
            od
    }
}

proctype caller(byte me)
{
    byte call = 1, command;
    do
    :: atomic {
            call <= CALLS && !failed[me] ->
#ifndef LATE_TARGET
                target[me] = call;
#endif
                command = 0
        }
        do
        :: atomic {
                command < COMMANDS && enqueued[me] - passed[me] < ROOM ->
                    MAY_DIE;
                    enqueued[me] = enqueued[me] + COMMANDS / 3;
                    command = command + COMMANDS / 3
            }
        :: atomic {
                command < COMMANDS && command > 0 && MAY_FAIL ->
                    faults++;
#ifndef NO_END_MARK
                    cut_at[me] = enqueued[me] + 1;
#endif
                    failed[me] = true;
                    break
            }
        :: command == COMMANDS -> break
        od;
        atomic {
#ifdef LATE_TARGET
            target[me] = call;
#endif
            MAY_DIE;
            call++
        }
    :: atomic { call > CALLS || failed[me] -> break }
    od;
    finish();
    goto end;
death:
    atomic {
        dead[me] = true;
        deaths++
    }
end:
    skip
}

/* ---- the watchdog */

#ifdef SAME_QUARTER
#define RELEASED ((EPOCH(target[me] + 1, 0) + QUARTER) % WRAP)
#else
#define RELEASED ((EPOCH(target[me] + 1, 0) + in_vain[me] * QUARTER) % WRAP)
#endif
/* A release that the stream has not seen yet is not repeated: the library waits 5 ms between two
 * releases. */
#define NEEDS_RELEASE (IS_PENDING(me) && HAS_WORK && IS_STUCK && !dead[me])

/* Tells one peer after the other. */
inline tell()
{
    p = (me + 1) % RANKS;
    do
    :: atomic { p != me -> told[WORD(p, me)] = true; p = (p + 1) % RANKS }
    :: atomic { p == me -> p = 0; break }
    od
}

/* Each further release advances flags by another quarter. Once the stream has moved, this model
 * starts again with the first quarter, while the library goes on to the next one. */
inline release_flags()
{
    released[me] = true;
    in_vain[me]++;
    assert(in_vain[me] <= WRAP / QUARTER);
    do
    :: p < RANKS && p != me -> flag[WORD(me, p)] = RELEASED; p++
    :: p < RANKS && p == me -> p++
    :: p == RANKS -> p = 0; break
    od
}

proctype watchdog(byte me)
{
    byte p;
end:
    do
    :: atomic { !failed[me] && HAS_NEWS(me) && !dead[me] -> failed[me] = true }
    :: atomic { !failed[me] && !ended[me] && MAY_FAIL && !dead[me] ->
            faults++;
            failed[me] = true
        }
    :: atomic { failed[me] && !dead[me] -> break }
    od;
#ifdef RELEASE_FIRST
    if
    :: atomic { NEEDS_RELEASE -> release_flags() }
    :: !NEEDS_RELEASE
    fi;
#endif
    tell();
end_idle:
    atomic {
        IS_PENDING(me) && !dead[me] ->
#ifndef NO_SILENCE
            silence[me] = (EPOCH(done[me] + 1, 0) + WRAP - QUARTER) % WRAP;
            silenced[me] = true;
#endif
            p = 0
    }
#ifndef KERNELS_LAST
    kernels_end[me] = true;
#endif
end_released:
    do
    :: atomic { NEEDS_RELEASE -> release_flags() }
#ifdef KERNELS_LAST
        kernels_end[me] = true;
#endif
#ifdef ONE_RELEASE
        break
#endif
    od
}

init {
    byte r = 0;
    atomic {
        do
        :: r < RANKS * RANKS -> flag[r] = FIRST_EPOCH; r++
        :: else -> break
        od;
        r = 0;
        do
        :: r < RANKS ->
            run stream(r);
            run watchdog(r);
            run caller(r);
            r++
        :: else -> break
        od
    }
}
