/* Captured messages (src/launch/messages_captured.c, src/ce/lower_messages.c, src/flags/awaited.c), for
 * Spin. Rank 0 launches CALLS graphs, each of which sends a block to rank 1. Rank 1 launches the same
 * number of graphs, each of which receives one. All messages have one pair of words. Each launch is on
 * one of two streams, which Spin chooses. Words are set and reset; events keep the order of launches.
 *
 * FAULTS: rank 0's communicator fails, at any time.
 *
 * Checked: no deadlock, so all waits end, also after a failure; on a rank that knows of no failure, the
 * n-th launch sends only when the n-th launch that receives has begun, and that launch ends only with
 * the block.
 *
 * Planted faults: NO_TAKEN sends without a wait; NO_RESET leaves a word set after the wait; NO_EVENTS
 * lets launches of a rank run at the same time; HANDED_FIRST sets the word before the block is there;
 * RELEASE_ONCE ends waits once. */
#ifndef CALLS
#define CALLS 3
#endif

bool on_second[2 * CALLS]; /* the stream of each launch of each rank */
bool handed, taken;
/* launches of a rank whose end is marked by the event; with NO_EVENTS, launches that have ended */
byte ended[2];
bool open[CALLS], block[CALLS];
bool failed[2]; /* rank 1 knows of the failure */
bool drawn;

#define LAUNCH(rank, call) ((rank) * CALLS + (call))
#ifdef NO_EVENTS
#define MAY_BEGIN(rank) true
#else
#define MAY_BEGIN(rank) (ended[rank] == call)
#endif
#ifdef NO_RESET
#define RESET(word) skip
#else
#define RESET(word) word = false
#endif

inline send()
{
#ifndef NO_TAKEN
    taken;
    RESET(taken);
#endif
#ifdef HANDED_FIRST
    handed = true;
#endif
    assert(failed[0] || open[call]);
    block[call] = true;
#ifndef HANDED_FIRST
    handed = true
#endif
}

inline receive()
{
    open[call] = true;
    taken = true;
    handed;
    RESET(handed);
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
        :: me == 1 -> receive()
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
