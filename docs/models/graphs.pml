/* Captured calls (src/ce/capture.c, src/ce/run.c, src/comm/progress.c, src/comm/look.c), for Spin.
 * All ranks launch the same sequence, which Spin chooses, of eager calls and of graphs whose call
 * has three to five phases. Launches alternate between two streams, but run in the order in which
 * the host makes them: each waits for the launch before it. In each call a rank pushes a block to
 * each peer before the last barrier. After that barrier it checks the blocks that it has received.
 * With FAULTS, rank 0 fails at any time: either its communicator fails and its stream goes on, or
 * the rank dies and its stream stops where it is. With FAULTS all launches are on one stream.
 *
 * Checked: no deadlock, so all waits end, also after a failure. On a rank that knows of no failure,
 * no wait ends before the peer has signalled the phase, and a call that ends has all its blocks,
 * and no block of a later launch. The watchdog takes a step only if this changes a word. So a
 * stream that is never released is a deadlock.
 *
 * DIFFER: one rank, which Spin chooses, launches two graphs in reverse order. Each graph has a
 * number of its own. Checked: on a rank that knows of no failure, no wait for phase 1 ends while
 * the peer is in the other graph, so no block moves; the ranks find the difference.
 *
 * Planted faults: NO_NUMBER awaits any number; NUMBER_STAYS does not reset the number at the end of
 * a call; EARLY_NUMBER writes the number before the word of phase 1; LATE_END resets the number
 * after the word of the last phase; NO_WAIT_ENDS does not release waits for numbers; TWO_PHASES
 * leaves out the last phase; NO_WAIT_0 leaves out the wait with which a call begins; ONE_BIT gives
 * a word only the bit of the last phase; SAME_BIT gives all phases between the first and the last
 * one bit, and TWO_BITS gives them two bits alternately; NO_ORDER lets launches of a rank run at
 * the same time; RELEASE_ONCE releases waits once; RELEASE_OWN sets the bits in the rank's own word
 * instead of the peers'; ONLY_AMID releases waits only while the rank's own call runs; WHOLE_WORD
 * clears the upper half of the words that it sets; TELL_LATE releases waits before peers learn of
 * the failure. */
#ifndef RANKS
#define RANKS 2 /* or 3 */
#endif
#ifndef CALLS
#define CALLS 3
#endif
#ifdef FAULTS
#define STREAMS 1
#else
#define STREAMS 2
#endif
#define PAIR(holder, writer) ((holder) * RANKS + (writer))

#ifdef TWO_PHASES
#define LEAST 2
#define LAST_BARRIER n
#else
#define LEAST 3
#define LAST_BARRIER (n - 1)
#endif
#define EAGER 0 /* as a number of phases: the launch is an eager call */
byte phases[CALLS]; /* of each launch */
#ifdef DIFFER
byte odd; /* the rank that launches the second graph first */
#define NUMBER(rank, call) ((rank) == odd -> 2 - (call) % 2 : 1 + (call) % 2)
#else
#define NUMBER(rank, call) phases[call] /* launches with equally many phases are of one graph */
#endif

#define ALL_PHASES 29
#define AMID 32   /* set in every phase but the last */
byte word[RANKS]; /* bits of phases: the rank's streams write them, all peers await them */
byte number[RANKS]; /* of the captured call that the rank is in; 0: none */
byte graph[RANKS];  /* the number of the rank's graph, as its watchdog knows it */
byte signals[RANKS]; /* how many phases the rank has signalled: waits are checked with this */
byte epoch[RANKS * RANKS]; /* flags of eager calls */
byte block[RANKS * RANKS]; /* [holder, writer]: 1 + the launch whose block the writer pushed */
byte ended[RANKS]; /* launches of a rank that have ended; its event marks the last one */

bool told[RANKS];     /* the rank knows of a failure */
bool released[RANKS]; /* the rank's waits for eager flags end */
bool dead;            /* rank 0 has died */

#ifdef SAME_BIT
#define MIDDLE(j) 2
#elif defined(TWO_BITS)
#define MIDDLE(j) (2 + (j) % 2)
#else
#define MIDDLE(j) (2 + ((j) + 1) % 3)
#endif
#define BIT(j) ((j) == 1 -> 0 : 1 << ((j) % n == 0 -> 0 : MIDDLE(j)))
#ifdef ONE_BIT
#define BEFORE(j) 0
#else
#define BEFORE(j) BIT(j - 1)
#endif

/* Visits the peers in rotated order, and waits at each for `condition` before `action`. i is 1
 * before and after. */
#define PEER ((me + i) % RANKS)
#define EACH_PEER(condition, action)                                                               \
    do                                                                                             \
    :: atomic {                                                                                    \
        condition -> action;                                                                       \
        i++;                                                                                       \
        if                                                                                         \
        :: i < RANKS                                                                               \
        :: i == RANKS -> i = 1; break                                                              \
        fi                                                                                         \
    }                                                                                              \
    od

#define SIGNAL(j)                                                                                  \
    atomic { word[me] = BEFORE(j) | BIT(j) | (j < n -> AMID : 0); signals[me]++ }
#define WAIT(j)                                                                                    \
    EACH_PEER(word[PEER] & BIT(j), assert(told[me] || signals[PEER] >= signals[me]))

/* In the first phase and in the last one a rank writes its word and its number, as two steps. */
#ifdef NO_NUMBER
#define IS_SAME(peer) (number[peer] != 0)
#else
#define IS_SAME(peer) (number[peer] == NUMBER(me, call))
#endif
#ifdef EARLY_NUMBER
#define BEGIN number[me] = NUMBER(me, call); graph[me] = NUMBER(me, call); SIGNAL(1)
#else
#define BEGIN graph[me] = NUMBER(me, call); SIGNAL(1); number[me] = NUMBER(me, call)
#endif
#define WAIT_1                                                                                     \
    EACH_PEER(IS_SAME(PEER), assert(told[me] || (signals[PEER] >= signals[me] &&                   \
                                                 number[PEER] == NUMBER(me, call))))

/* The barrier of an eager call, by flags that grow. */
#define MEET(value)                                                                                \
    EACH_PEER(true, epoch[PAIR(PEER, me)] = value);                                                \
    EACH_PEER(epoch[PAIR(me, PEER)] >= value || released[me], skip)

/* A rank resets its number before peers see the last phase. */
#ifdef NUMBER_STAYS
#define END SIGNAL(n)
#elif defined(LATE_END)
#define END SIGNAL(n); number[me] = 0
#else
#define END number[me] = 0; SIGNAL(n)
#endif

#define PUSH EACH_PEER(true, block[PAIR(PEER, me)] = call + 1)

/* Carries out the launches of one stream. */
proctype stream(byte me; byte call)
{
    byte i = 1, j = 0, n = 0;
    {
        do
#ifdef NO_ORDER
        :: atomic { call < CALLS -> n = phases[call] }
#else
        :: atomic { call < CALLS && ended[me] == call -> n = phases[call] }
#endif
            if
            :: n == EAGER ->
                MEET(2 * call + 1);
                PUSH;
                MEET(2 * call + 2)
            :: n != EAGER ->
#ifndef NO_WAIT_0
                WAIT(0);
#endif
                do
                :: j < LAST_BARRIER ->
                    if
                    :: j == LAST_BARRIER - 1 -> PUSH
                    :: else
                    fi;
                    j++;
                    if
                    :: j == 1 ->
                        BEGIN;
                        WAIT_1
                    :: j > 1 ->
                        SIGNAL(j);
                        WAIT(j)
                    fi
                :: j == LAST_BARRIER -> break
                od
            fi;
            EACH_PEER(true, assert(told[me] || block[PAIR(me, PEER)] == call + 1));
#ifndef TWO_PHASES
            if
            :: n == EAGER
            :: n != EAGER -> END
            fi;
#endif
            atomic { /* no other process can tell these steps apart */
                ended[me]++;
                call = call + STREAMS;
                n = 0;
                j = 0
            }
        :: call >= CALLS -> break
        od
    } unless { dead && me == 0 }
}

#ifdef ONLY_AMID
#define MAY_WAIT_FOR(peer) (word[me] & AMID)
#else
#define MAY_WAIT_FOR(peer) (word[me] & AMID || !(word[peer] & 1))
#endif
#ifdef RELEASE_OWN
#define RELEASED(peer) word[me]
#else
#define RELEASED(peer) word[peer]
#endif
#ifdef WHOLE_WORD
#define KEPT 0
#else
#define KEPT AMID
#endif

#ifdef NO_WAIT_ENDS
#define NEEDS_NUMBER(peer) false
#else
#define NEEDS_NUMBER(peer) (word[me] & AMID && number[peer] != graph[me])
#endif

#define RELEASE(peer)                                                                              \
    atomic {                                                                                       \
        MAY_WAIT_FOR(peer) &&                                                                      \
                ((RELEASED(peer) & ALL_PHASES) != ALL_PHASES || NEEDS_NUMBER(peer)) ->             \
            RELEASED(peer) = RELEASED(peer) & KEPT | ALL_PHASES;                                   \
            if                                                                                     \
            :: NEEDS_NUMBER(peer) -> number[peer] = graph[me]                                      \
            :: else                                                                                \
            fi                                                                                     \
    }

/* Once its rank knows of a failure, tells the peers, and then ends the rank's waits. */
proctype watchdog(byte me)
{
    byte i = 1;
end_well:
    {
#ifdef TELL_LATE
        atomic { told[me] || dead -> told[me] = true }
        released[me] = true;
end_late:
        RELEASE((me + 1) % RANKS);
#endif
        EACH_PEER(told[me] || dead, told[me] = true; told[PEER] = true);
        released[me] = true;
end_over:
        do
        :: RELEASE((me + 1) % RANKS)
#ifdef RELEASE_ONCE
            ;
            break
#else
        :: RELEASE((me + RANKS - 1) % RANKS)
#endif
        od
    } unless { dead && me == 0 }
}

/* Finds a peer that is in another graph. Without DIFFER there must never be such a peer. */
proctype finder(byte me)
{
end_find:
    atomic {
        number[me] != 0 && number[(me + 1) % RANKS] != 0 &&
                number[me] != number[(me + 1) % RANKS] ->
#ifdef DIFFER
            told[me] = true
#else
            assert(false)
#endif
    }
}

init
{
    byte i = 0;
    atomic {
        do
        :: i < CALLS ->
#ifdef PHASES
            phases[i] = PHASES; /* if Spin chose them, 3 ranks with faults would have too many states */
#else
            if
            :: phases[i] = EAGER
            :: phases[i] = LEAST
            :: phases[i] = LEAST + 1
            :: phases[i] = LEAST + 2
            fi;
#endif
            i++
        :: i == CALLS -> break
        od;
#ifdef DIFFER
        if
        :: odd = 0
        :: odd = RANKS - 1
        fi;
#endif
        i = 0;
        do
        :: i < RANKS ->
            word[i] = 1; /* as after a last phase */
            run stream(i, 0);
#ifdef FAULTS
            run watchdog(i);
#else
            run stream(i, 1);
#endif
#if defined(DIFFER) || !defined(FAULTS)
            run finder(i);
#endif
            i++
        :: i == RANKS -> break
        od
    }
#if defined(FAULTS) && !defined(DIFFER)
    if
    :: told[0] = true
    :: dead = true
    fi
#endif
}
