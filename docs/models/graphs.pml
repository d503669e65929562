/* Captured calls (src/ce/capture.c, src/ce/graph.c, src/flags/turns.c, src/comm/replays.c), for
 * Spin. All ranks launch the same sequence, which Spin chooses: graphs whose call has one, two or
 * three phases, and eager calls, alternately on two streams. Words of captured calls are set and
 * reset. Launches run in the order in which the host makes them: each waits for the launch before
 * it. In its second phase a call signals that it has pushed a block to each peer; a call with one
 * phase has no block. With FAULTS, rank 0's communicator fails that many times, at any time; the
 * sequence is then fixed (SEQUENCE).
 *
 * Checked: no deadlock, so all waits end, also after a failure; no word is set before it was
 * reset; a call that ends on a rank that knows of no failure has all its blocks, and no block of
 * a later call.
 *
 * Planted faults: SAME_WORD uses word A in each phase; A_AT_THE_END uses A for the third phase;
 * LONE gives a single phase no second word; LATE_RESET resets a word after the next signal;
 * NO_ORDER lets launches of a rank run at the same time; RELEASE_ONCE releases waits once;
 * TELL_LATE releases waits before peers learn of the failure. */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef CALLS
#define CALLS 3
#endif
#ifndef FAULTS
#define FAULTS 0
#endif
#ifndef SEQUENCE
/* with faults: two bits for each launch, from the lowest on; 11: three phases, then two */
#define SEQUENCE 11
#endif
#define WORDS 3
#define WORD(holder, writer, w) (((holder) * RANKS + (writer)) * WORDS + (w))
#define PAIR(holder, writer) ((holder) * RANKS + (writer))

#define EAGER 0 /* this value replaces the number of phases */
byte phases[CALLS];    /* kind of each launch */
bool on_second[CALLS]; /* stream of each launch */
bool drawn;

bool word[RANKS * RANKS * WORDS];
byte epoch[RANKS * RANKS]; /* flags of eager calls: how many phases the writer has signalled */
byte block[RANKS * RANKS]; /* [holder, writer]: 1 + the launch whose block the writer pushed */
byte recorded[RANKS];      /* launches of a rank whose end is marked by its event */
byte ended[RANKS];         /* the same, in any order */

bool failed[RANKS];
bool told[RANKS];
bool released[RANKS]; /* waits for eager flags end */
byte faults;

#define HEARD(rank) (failed[rank] || told[rank])
#define ANY_FAILED (faults > 0)

/* Each of the following visits the peers in rotated order. */
#define PEER ((me + i) % RANKS)

inline signal_all(w)
{
    i = 1;
    do
    :: atomic {
        i < RANKS ->
        assert(ANY_FAILED || !word[WORD(PEER, me, w)]);
        word[WORD(PEER, me, w)] = true;
        i++
    }
    :: i == RANKS -> break
    od
}

inline wait_all(w)
{
    i = 1;
    do
    :: atomic { i < RANKS && word[WORD(me, PEER, w)] -> i++ }
    :: i == RANKS -> break
    od
}

inline reset_all(w)
{
    d_step {
        i = 1;
        do
        :: i < RANKS -> word[WORD(me, PEER, w)] = false; i++
        :: i == RANKS -> break
        od
    }
}

inline meet(w)
{
    signal_all(w);
    wait_all(w);
#ifdef LATE_RESET
    if
    :: owes < WORDS -> reset_all(owes)
    :: else
    fi;
    owes = w
#else
    reset_all(w)
#endif
}

/* An eager exchange: flags grow. n: this rank's exchanges, counted from 1. */
inline meet_eagerly(n)
{
    i = 1;
    do
    :: atomic { i < RANKS -> epoch[PAIR(PEER, me)] = n; i++ }
    :: i == RANKS -> break
    od;
    i = 1;
    do
    :: atomic { i < RANKS && (epoch[PAIR(me, PEER)] >= n || released[me]) -> i++ }
    :: i == RANKS -> break
    od
}

inline push(call)
{
    i = 1;
    do
    :: atomic { i < RANKS -> block[PAIR(PEER, me)] = call + 1; i++ }
    :: i == RANKS -> break
    od
}

inline check_blocks(call)
{
    d_step {
        i = 1;
        do
        :: i < RANKS -> assert(HEARD(me) || block[PAIR(me, PEER)] == call + 1); i++
        :: i == RANKS -> break
        od
    }
}

#ifdef SAME_WORD
#define SECOND 0
#else
#define SECOND 1
#endif
#ifdef A_AT_THE_END
#define THIRD 0
#else
#define THIRD 2
#endif

/* The number of eager calls before a launch. */
inline count_eager(call)
{
    d_step {
        before = 0;
        i = 0;
        do
        :: i < call && phases[i] == EAGER -> before++; i++
        :: i < call && phases[i] != EAGER -> i++
        :: i >= call -> break
        od;
        i = 0
    }
}

proctype stream(byte me; bool second)
{
    byte call = 0, i = 0, before = 0, owes = WORDS;
    drawn;
    do
    :: call < CALLS && on_second[call] != second -> call++
    :: call < CALLS && on_second[call] == second ->
#ifndef NO_ORDER
        recorded[me] == call;
#endif
        count_eager(call);
        if
        :: phases[call] == EAGER ->
            meet_eagerly(2 * before + 1);
            push(call);
            meet_eagerly(2 * before + 2);
            check_blocks(call)
        :: phases[call] == 1 ->
            meet(0)
#ifndef LONE
            ;
            meet(SECOND)
#endif
        :: phases[call] == 2 ->
            meet(0);
            push(call);
            meet(SECOND);
            check_blocks(call)
        :: phases[call] == 3 ->
            meet(0);
            push(call);
            meet(SECOND);
            check_blocks(call);
            meet(THIRD)
        fi;
        atomic { recorded[me] = call + 1; ended[me]++ }
        call++
    :: call == CALLS -> break
    od
}

inline tell_all()
{
    d_step {
        i = 0;
        do
        :: i < RANKS && i != me -> told[i] = true; i++
        :: i < RANKS && i == me -> i++
        :: i == RANKS -> break
        od
    }
}

inline release()
{
    d_step {
        released[me] = true;
        i = 0;
        do
        :: i < RANKS * WORDS -> word[me * RANKS * WORDS + i] = true; i++
        :: i == RANKS * WORDS -> break
        od;
        i = 0
    }
}

/* Ends the waits of a rank whose communicator has failed, until its launches are over. Before
 * that it tells the peers of the failure. */
proctype watchdog(byte me)
{
    byte i;
    do
    :: ended[me] == CALLS -> break
    :: HEARD(me) && ended[me] < CALLS ->
#ifdef TELL_LATE
        release();
        tell_all()
#else
        tell_all();
        release()
#endif
#ifdef RELEASE_ONCE
        ;
        break
#endif
    od
}

init
{
    byte i = 0;
    atomic {
        do
        :: i < CALLS ->
#if FAULTS
            phases[i] = SEQUENCE >> (2 * i) & 3; /* a failure at any time has far more states */
#else
            if
            :: phases[i] = EAGER
            :: phases[i] = 1
            :: phases[i] = 2
            :: phases[i] = 3
            fi;
#endif
            on_second[i] = FAULTS == 0 && i % 2;
            i++
        :: i == CALLS -> break
        od;
        i = 0;
        do
        :: i < RANKS ->
            run stream(i, false);
            run stream(i, true);
            if
            :: FAULTS > 0 -> run watchdog(i)
            :: else
            fi;
            i++
        :: i == RANKS -> break
        od;
        drawn = true
    }
    do
    :: faults < FAULTS -> atomic {
        faults++;
        failed[0] = true
    }
    :: faults == FAULTS -> break
    od
}
