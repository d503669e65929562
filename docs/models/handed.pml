/* Signals of captured one-sided calls (src/launch/one_sided_captured.c, src/flags/handed.c), for
 * Spin. Rank 0 launches CALLS graphs, each of which puts a block to rank 1 and signals. Rank 1
 * launches the same number of graphs, each of which waits for a signal. All signals have one
 * number. Each launch is on one of two streams, which Spin chooses. Words are set and reset;
 * events keep the order of launches.
 *
 * FAULTS: rank 0's communicator fails, at any time.
 *
 * Checked: no deadlock, so all waits end, also after a failure; a signal is sent only after the
 * signal before it was consumed; the n-th launch that waits for a signal has the block of the
 * n-th launch that sent one, or its rank knows of a failure.
 *
 * Planted faults: NO_TAKEN sends a signal without a wait; LATE_RESET resets a word after the peer
 * has learned that the word is free; NO_EVENTS lets launches of a rank run at the same time;
 * SIGNAL_FIRST sends a signal before its block; RELEASE_ONCE ends waits once. */
#ifndef CALLS
#define CALLS 3
#endif

bool on_second[2 * CALLS]; /* the stream of each launch of each rank */
bool handed, taken = true;
/* launches of a rank whose end is marked by the event; with NO_EVENTS, launches that have ended */
byte ended[2];
bool block[CALLS];
bool failed[2]; /* rank 1 knows of the failure */
bool drawn;

#define LAUNCH(rank, call) ((rank) * CALLS + (call))
#ifdef NO_EVENTS
#define MAY_BEGIN(rank) true
#else
#define MAY_BEGIN(rank) (ended[rank] == call)
#endif

inline send()
{
#ifndef SIGNAL_FIRST
    block[call] = true;
#endif
#ifndef NO_TAKEN
    taken;
    taken = false;
#endif
    atomic {
        assert(failed[0] || !handed);
        handed = true
    }
#ifdef SIGNAL_FIRST
    ;
    block[call] = true
#endif
}

inline take()
{
    handed;
#ifdef LATE_RESET
    taken = true;
    handed = false;
#else
    handed = false;
    taken = true;
#endif
    assert(failed[1] || block[call])
}

proctype stream(byte me; bool second)
{
    byte call = 0;
    drawn;
    do
    :: call < CALLS && on_second[LAUNCH(me, call)] != second -> call++
    :: call < CALLS && on_second[LAUNCH(me, call)] == second ->
        MAY_BEGIN(me);
        if
        :: me == 0 -> send()
        :: me == 1 -> take()
        fi;
        ended[me]++;
        call++
    :: call == CALLS -> break
    od
}

/* Ends waits for the words that the rank holds. If it has nothing to do forever, that is no
 * deadlock. */
proctype watchdog(byte me)
{
end_watch:
    do
    :: failed[0] && !failed[1] && me == 0 -> failed[1] = true
    :: atomic { failed[me] && me == 0 && failed[1] && !taken -> taken = true }
#ifdef RELEASE_ONCE
       ;
       break
#endif
    :: atomic { failed[me] && me == 1 && !handed && ended[1] < CALLS -> handed = true }
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
        :: i < 2 * CALLS ->
            if
            :: on_second[i] = false
            :: on_second[i] = true
            fi;
            i++
        :: i == 2 * CALLS -> break
        od;
        run stream(0, false);
        run stream(0, true);
        run stream(1, false);
        run stream(1, true);
        run watchdog(0);
        run watchdog(1);
        drawn = true
    }
#ifdef FAULTS
    failed[0] = true
#endif
}
