/* How ranks begin a trial of two arms (ways to carry out calls), let them take turns, and decide
 * (src/nccl/trial.c), for Spin. Each rank is a process. The program has CALLS steps, and each step
 * has a boundary of each communicator. A rank may be any number of steps ahead of another, and a
 * GPU any number of steps behind its host. Ranks share three things for each communicator: the
 * words of its decisions, an offer of each rank, and the number of turns whose times each rank has
 * published. A trial has fewer turns, periods, attempts and delays than in the code.
 *
 * Checked: ranks have the same arm after the same boundary, and the same number of decisions. Ranks
 * agree on a start only while all of them hold their reservations for this communicator. A process
 * has a trial of one communicator at a time. A subject is decided, or given up, within LONGEST
 * boundaries after its trial was requested. Every reservation is released. No rank waits: every
 * rank reaches its end, even if another one stops.
 *
 * AGAIN: at some boundary, which Spin chooses, the period changes. STOPS: a rank may stop at any
 * time. EARLY: a start may be put off although all ranks have offered, because the subject has not
 * come often enough. OVERLAP: the communicators have different ranks, and some in common.
 *
 * Planted faults: STORED stores a decision without compare-and-swap; OWN_OFFERS begins trials, and
 * OWN_TIMES goes on with them, by the rank's own view; USED_TWICE reuses words of decisions;
 * NUMBERLESS gives offers no number; ANY_OFFER begins with only this rank's offer; NO_RESERVE makes
 * no reservation; NO_RELEASE keeps the reservation when a start is delayed; OLD_OFFER accepts
 * offers from before the period changed; NO_BOUND delays the verdict without limit; WAITS makes
 * ranks wait for times. */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef CALLS
#define CALLS 14
#endif
#ifndef COMMS
#define COMMS 1
#endif
#ifndef TURNS
#define TURNS 2 /* turns of a trial: arm 0 and arm 1 alternate */
#endif
#define PERIODS 2      /* boundaries of a turn; the first is not counted */
#define OFFER_PERIODS 2
#define LONGEST_OFFER 3 /* boundaries of an offer, if a rank came too late for the one before */
#define LEFT 2          /* boundaries after which a subject that was given up is tried again */
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#ifndef MOST_PUT_OFF
#define MOST_PUT_OFF 2 /* delay of the verdict: by one period, then by two */
#endif
/* boundaries between two attempts, if a rank is busy; otherwise 1 */
#define LATER(comm) (1 + (comm))
#define LONGEST(comm)                                                                              \
    (1 + ATTEMPTS * LONGEST_OFFER + (ATTEMPTS - 1) * LATER(comm) + TURNS * PERIODS +                \
     2 * MOST_PUT_OFF)
#ifdef AGAIN
#define WORDS 24
#else
#define WORDS 12
#endif
#ifdef USED_TWICE
#define NUMBER(decision) ((decision) % 2)
#else
#define NUMBER(decision) (decision)
#endif
#ifdef OVERLAP
#define IS_IN(comm, rank) ((comm) == 0 -> (rank) < RANKS - 1 : (rank) > 0)
#define SIZE (RANKS - 1)
#else
#define IS_IN(comm, rank) true
#define SIZE RANKS
#endif

/* decisions */
#define START 1
#define PUT_OFF 2 /* a start is put off: a rank had not reached its offer, or EARLY */
#define TURN 3    /* + arm */
#define VERDICT 5 /* + arm */
#define BUSY 8    /* a start is delayed, because a rank's process tries another communicator */
/* states */
#define IDLE 0
#define WAITING 1
#define OFFERED 2
#define RUNNING 3

/* Shared by the ranks of a communicator. */
byte word[COMMS * WORDS];
byte offer[COMMS * RANKS]; /* decision * 2 + whether the rank is busy */
byte published[COMMS * RANKS]; /* trial * 8 + turns whose times are published */
/* Properties of the program and its GPUs. */
bool is_longer[COMMS]; /* arm 1 makes periods 1.25 x longer; otherwise it is better */
byte again_at[COMMS];
/* For each process: 1 + the communicator that it tries; 0: none. */
byte tries[RANKS];
bool has_stopped;
/* The arm of the first rank that passed a boundary, and how many ranks have passed it. */
byte had[COMMS * CALLS];
byte came[COMMS * CALLS];

/* An engine: struct cecl_trial. */
typedef engine {
    byte state, wait, offers, attempt, decisions, trials, turn, put_off, periods;
    byte arm; /* 2: none is in force */
    byte pending; /* turns whose end the GPU has not reached */
    byte since; /* boundaries since the trial of the subject was requested */
    bool holds, has_turn, is_left
}

#define ME e[c]
#define MY_WORD word[c * WORDS + NUMBER(ME.decisions)]

inline let_go()
{
    if
    :: ME.holds -> assert(tries[me] == c + 1); tries[me] = 0; ME.holds = false
    :: else
    fi
}

inline rest()
{
    let_go();
    ME.state = IDLE;
    ME.wait = 0;
    ME.since = 0;
    ME.pending = 0
}

inline want()
{
    d_step {
#ifndef OLD_OFFER
        ME.decisions = ME.decisions + (ME.state == OFFERED);
#endif
        rest();
        ME.is_left = false;
        ME.arm = 2;
        ME.attempt = 0;
        ME.offers = OFFER_PERIODS;
        ME.wait = 1;
        ME.state = WAITING
    }
}

/* Decides `mine`. If there already is a decision, sets `mine` to it. Each access is a step. */
inline decide()
{
#ifdef STORED
    if
    :: MY_WORD == 0 -> MY_WORD = mine
    :: else -> mine = MY_WORD
    fi;
#else
    d_step {
        if
        :: MY_WORD == 0 ->
            MY_WORD = mine;
            /* the decision that begins a trial is made while all ranks are ready for it */
            r = 0;
            do
            :: r < RANKS ->
                assert(mine != START || !IS_IN(c, r) || tries[r] == c + 1);
                r++
            :: else -> break
            od;
            r = 0
        :: else -> mine = MY_WORD
        fi;
    }
#endif
    ME.decisions++
}

inline offer_mine()
{
    d_step {
        ME.state = OFFERED;
        ME.wait = ME.offers;
        if
#ifdef NO_RESERVE
        :: true ->
#else
        :: tries[me] == 0 ->
#endif
            tries[me] = c + 1;
            ME.holds = true
        :: else
        fi
    }
#ifdef NUMBERLESS
    offer[c * RANKS + me] = 2 + !ME.holds
#else
    offer[c * RANKS + me] = (ME.decisions + 1) * 2 + !ME.holds
#endif
}

#ifdef NUMBERLESS
#define HAS_COME(r) (offer[c * RANKS + (r)] / 2 == 1)
#else
#define HAS_COME(r) (offer[c * RANKS + (r)] / 2 == ME.decisions + 1)
#endif
#define IS_BUSY(r) (offer[c * RANKS + (r)] % 2 == 1)

/* This rank's decision on the start: reads one offer after the other. */
inline beginning()
{
    mine = START;
    r = 0;
    do
    :: r < RANKS && mine != BUSY ->
        if
#ifdef ANY_OFFER
        :: r == me ->
#else
        :: IS_IN(c, r) ->
#endif
            mine = (!HAS_COME(r) -> PUT_OFF : (IS_BUSY(r) -> BUSY : mine))
        :: else
        fi;
        r++
    :: else -> break
    od;
#ifdef EARLY
    if
    :: true
    :: mine == START -> mine = PUT_OFF
    fi;
#endif
    r = 0
}

/* This rank's decision on the next turn: reads the progress of one rank after the other. */
inline next_step()
{
    seen = ME.turn;
    r = 0;
    do
    :: r < RANKS ->
        d_step {
            if
            :: !IS_IN(c, r)
            :: else ->
                if
                :: published[c * RANKS + r] / 8 != ME.trials -> seen = 0
                :: published[c * RANKS + r] / 8 == ME.trials &&
                   published[c * RANKS + r] % 8 < seen -> seen = published[c * RANKS + r] % 8
                :: else
                fi
            fi;
            r++
        }
    :: else -> break
    od;
    r = 0;
    d_step {
        if
        :: ME.turn < TURNS && !(is_longer[c] && seen >= 2) -> mine = TURN + ME.turn % 2
#ifdef NO_BOUND
        :: else -> mine = (seen < ME.turn -> PUT_OFF
#else
        :: else -> mine = (seen < ME.turn && ME.put_off < MOST_PUT_OFF -> PUT_OFF
#endif
                           : (seen == ME.turn && !is_longer[c] -> VERDICT + 1 : VERDICT))
        fi;
        seen = 0
    }
}

inline go_on()
{
#ifdef WAITS
    (ME.turn == 0 || (published[c * RANKS] == ME.trials * 8 + ME.turn));
#endif
#ifdef OWN_TIMES
    next_step();
    ME.decisions++;
#else
    if
    :: MY_WORD != 0
    :: else -> next_step()
    fi;
    decide();
#endif
    d_step {
        assert(mine != START);
        ME.periods = 0;
        ME.has_turn = (mine == TURN || mine == TURN + 1);
        ME.arm = (ME.has_turn -> mine - TURN : 0);
        if
        :: ME.has_turn -> ME.turn++
        :: mine == PUT_OFF -> ME.put_off++
        :: else -> rest(); ME.arm = mine - VERDICT
        fi
    }
}

inline begin()
{
#ifdef OWN_OFFERS
    beginning();
    ME.decisions++;
#else
    if
    :: MY_WORD != 0
    :: else -> beginning()
    fi;
    decide();
#endif
    if
    :: mine == START ->
        d_step {
            assert(ME.holds);
            ME.state = RUNNING;
            ME.trials++;
            ME.turn = 0;
            ME.put_off = 0
        }
        go_on()
    :: else ->
        d_step {
            assert(mine == PUT_OFF || mine == BUSY);
#ifdef NO_RELEASE
            ME.holds = false;
#endif
            let_go();
            ME.attempt++;
            assert(ME.attempt <= ATTEMPTS);
            ME.offers = (mine == BUSY -> ME.offers : LONGEST_OFFER);
            if
            :: ME.attempt < ATTEMPTS ->
                ME.state = WAITING;
                ME.wait = (mine == BUSY -> LATER(c) : 1)
            :: else ->
                rest();
                ME.is_left = true;
                ME.wait = LEFT
            fi
        }
    fi
}

inline boundary()
{
    d_step {
        ME.since = (ME.state == IDLE -> 0 : ME.since + 1);
        assert(ME.since <= LONGEST(c)); /* every trial ends */
        ME.wait = (ME.wait > 0 -> ME.wait - 1 : 0)
    }
    if
    :: ME.state == IDLE && ME.is_left && ME.wait == 0 -> want()
    :: ME.state == WAITING && ME.wait == 0 -> offer_mine()
    :: ME.state == OFFERED && ME.wait == 0 -> begin()
    :: ME.state == RUNNING ->
        ME.periods++;
        if
        :: ME.has_turn && ME.periods < PERIODS
        :: !ME.has_turn && ME.periods < ME.put_off
        :: else ->
            ME.pending = ME.pending + ME.has_turn;
            go_on()
        fi
    :: else
    fi
}

/* Spin chooses how far the GPU has come. Publishes the times that are known by then. */
inline publish()
{
    do
    :: ME.pending > 0 ->
        d_step {
            published[c * RANKS + me] =
                (published[c * RANKS + me] / 8 == ME.trials -> published[c * RANKS + me]
                                                             : ME.trials * 8) + 1;
            ME.pending--
        }
    :: break
    od
}

inline compare()
{
    d_step {
        mine = 1 + ME.decisions * 3 + ME.arm;
        assert(had[c * CALLS + call] == 0 || had[c * CALLS + call] == mine);
        came[c * CALLS + call]++;
        /* after all ranks have passed, the arm is forgotten, so that there are fewer states */
        had[c * CALLS + call] = (came[c * CALLS + call] < SIZE -> mine : 0);
        mine = 0
    }
}

/* Checks that this process tries at most one communicator. */
inline look()
{
    d_step {
        c = 0;
        seen = 0;
        do
        :: c < COMMS ->
            seen = seen + (ME.holds || ME.state == RUNNING);
            c++
        :: else -> break
        od;
        assert(seen <= 1);
        seen = 0;
        c = 0
    }
}

proctype rank(byte me)
{
    byte call, c, r, mine, seen;
    engine e[COMMS];
    do
    :: c < COMMS -> want(); c++
    :: else -> c = 0; break
    od;
    do
    :: call < CALLS ->
        do
        :: c < COMMS && IS_IN(c, me) ->
            publish();
            boundary();
            if
            /* ranks' engines learn of the change at the same call */
            :: again_at[c] == call + 1 -> want()
            :: else
            fi;
            compare();
            c++
        :: c < COMMS && !IS_IN(c, me) -> c++
        :: else -> break
        od;
        look();
        call++
#ifdef STOPS
    :: atomic { !has_stopped && call < CALLS -> has_stopped = true; goto gone }
#endif
    :: else -> break
    od;
    c = 0;
    d_step {
        do
        :: c < COMMS -> rest(); c++
        :: else -> break
        od;
        assert(tries[me] == 0) /* every reservation is released */
    }
gone:
    skip
}

init {
    byte i;
    atomic {
        do
        :: i < COMMS ->
            if
            :: is_longer[i] = true
            :: skip
            fi;
#ifdef AGAIN
            again_at[i] = 1;
            do
            :: again_at[i] < CALLS -> again_at[i]++
            :: break
            od;
#endif
            i++
        :: else -> i = 0; break
        od;
        do
        :: i < RANKS -> run rank(i); i++
        :: else -> break
        od
    }
}
