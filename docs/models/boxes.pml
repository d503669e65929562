/* How ranks of one communicator make others of it (src/api/split.c, src/boot/boxes.c), for Spin.
 * The program makes CALLS uses of the boxes, one after the other: splits, in which all ranks take
 * part, and shrinks, in which some do. Spin tries all teams. In a split all ranks agree over the
 * parent's mesh; in a shrink the team meets (meeting.pml). Then each team exchanges ROUNDS parts
 * through the boxes, connects, and has a last exchange over the new mesh. A rank that has its new
 * communicator ends it at once, and goes on to the next use. After the last use it ends the
 * parent, or keeps it.
 *
 * Checked: no deadlock, so no wait needs its deadline; a part that a rank takes is whole, of this
 * use, this round and this member; without deaths and refusals all have their communicators,
 * whatever the others have ended; all of a team have one outcome, unless a rank dies.
 * DEATHS: so many ranks may die, at any time. REFUSALS: so many may give up a new communicator.
 * Planted faults: ONE_HALF writes all rounds to one place; NO_TOKEN tells rounds apart, but not
 * uses; NO_CLEAR writes a part without a mark that it is half written, and NO_RECHECK does not
 * look for the mark again; EARLY_CLOSE ends the exchange before peers are connected; NO_LEAVE
 * gives up without a word; ONE_WORD has one word for all members in which a rank says what it gave
 * up; NO_LEAVE_SPLIT does not leave the boxes when the second exchange of a split is cut off. */
#ifndef RANKS
#define RANKS 3
#endif
#ifndef CALLS
#define CALLS 2
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#ifndef REFUSALS
#define REFUSALS 0
#endif
#define ALL ((1 << RANKS) - 1)
/* Then the first team is all ranks, and the second two of them. */
#define WITH_TROUBLE (DEATHS + REFUSALS > 0)
#define HAS(set, rank) (((set) >> (rank)) & 1)
#define MINE(use) team[(use) * RANKS + me]

/* The boxes. A part has two words, because it is not written at once. */
#ifdef ONE_HALF
#define HALF(rank, round) (rank)
#else
#define HALF(rank, round) ((rank) * 2 + (round) % 2)
#endif
byte stamp[RANKS * 2];
byte first_word[RANKS * 2];
byte second_word[RANKS * 2];
#ifdef ONE_WORD
#define CLOSED(rank, member) closed[(rank) * RANKS]
#else
#define CLOSED(rank, member) closed[(rank) * RANKS + (member)]
#endif
byte closed[RANKS * RANKS]; /* the last use that the rank closed with this member in it */

#define PART(use, round) ((use) * ROUNDS + (round) + 1)
#ifdef NO_TOKEN
#define STAMP(use, round) ((round) + 1)
#else
#define STAMP(use, round) PART(use, round)
#endif

/* The program. */
bool is_split[CALLS + 1];
byte team[(CALLS + 1) * RANKS]; /* [use * RANKS + rank]: bits of the rank's team; 0: none */

/* Sets of ranks are bits. */
byte dead;
byte left;                       /* they have destroyed the parent */
byte broken;                     /* the parent's mesh is, on these ranks */
byte frames[(CALLS + 1) * 2 * RANKS]; /* of a split's two exchanges: to whom a rank's has come */
byte came[CALLS + 1];             /* to the meeting of a shrink */
byte missed[CALLS + 1];           /* members of a meeting that failed */
byte connected[CALLS + 1];        /* to the new mesh */
byte ready[CALLS + 1];            /* the rank's frame of the last exchange is sent */
byte ended[CALLS + 1];            /* the rank has ended or given up the new communicator */
byte good[CALLS + 1], bad[CALLS + 1]; /* the outcome, on ranks that live */
byte deaths, refusals;

#if DEATHS > 0
#define MAY_DIE                                                                                    \
    if                                                                                             \
    :: deaths < DEATHS -> deaths++; goto death                                                     \
    :: true                                                                                        \
    fi
#else
#define MAY_DIE skip
#endif
#if REFUSALS > 0
#define MAY_REFUSE                                                                                 \
    if                                                                                             \
    :: !fails && refusals < REFUSALS -> refusals++; fails = true                                   \
    :: true                                                                                        \
    fi
#else
#define MAY_REFUSE skip
#endif

/* ---- finding the members */

/* Whether it holds for any rank. */
#if RANKS == 2
#define ANY(holds) (holds(0) || holds(1))
#else
#define ANY(holds) (holds(0) || holds(1) || holds(2))
#endif

#define HAS_FRAME(p) HAS(frames[(use * 2 + word) * RANKS + p], me)
#define LACKS_FRAME(p) (!HAS_FRAME(p))
#define IS_CUT_OFF(p) (!HAS_FRAME(p) && HAS(dead | left | broken, p))

/* Each rank waits for a frame of each other rank. Exchange number `word` of this split. */
inline exchange()
{
#if DEATHS > 0
    do
    :: atomic { p < RANKS -> MAY_DIE; frames[(use * 2 + word) * RANKS + me] = (2 << p) - 1; p++ }
    :: p == RANKS -> p = 0; break
    od;
#else
    frames[(use * 2 + word) * RANKS + me] = ALL;
#endif
    if
    :: !ANY(LACKS_FRAME)
    :: d_step {
            ANY(IS_CUT_OFF) ->
                fails = true;
                broken = broken | (1 << me)
        }
    fi
}

/* Where the second exchange is cut off, a peer that has all its frames waits at the boxes for this
 * rank. The parent then refuses further splits. */
inline agree()
{
    fails = HAS(broken, me);
    do
    :: !fails && word < 2 -> exchange(); word++
    :: else -> break
    od;
    atomic {
#ifndef NO_LEAVE_SPLIT
        if
        :: fails && word == 2 -> close(ALL)
        :: else
        fi;
#endif
        word = 0
    }
}

inline meet()
{
    came[use] = came[use] | (1 << me);
    if
    :: (came[use] & MINE(use)) == MINE(use) && !HAS(missed[use], me)
    :: d_step {
            (came[use] & MINE(use)) != MINE(use) && (MINE(use) & ~came[use] & (dead | left)) != 0 ->
                missed[use] = missed[use] | MINE(use);
                fails = true
        }
    :: HAS(missed[use], me) -> fails = true
    fi
}

/* ---- the boxes */

/* Tells the members in `whom` that this rank's part in the use is over. */
inline close(whom)
{
    p = 0;
    do
    :: p < RANKS && HAS(whom, p) -> CLOSED(me, p) = use; p++
    :: p < RANKS && !HAS(whom, p) -> p++
    :: p == RANKS -> break
    od;
    p = 0
}

inline write_part()
{
#ifndef NO_CLEAR
    stamp[HALF(me, round)] = 0;
#endif
    first_word[HALF(me, round)] = PART(use, round);
    second_word[HALF(me, round)] = PART(use, round);
    stamp[HALF(me, round)] = STAMP(use, round)
}

#define IS_GONE(p) (CLOSED(p, me) == use || HAS(dead | left, p))
#define IS_HERE(p) (stamp[HALF(p, round)] == STAMP(use, round))
#ifdef NO_RECHECK
#define IS_STILL_HERE(p) true
#else
#define IS_STILL_HERE(p) IS_HERE(p)
#endif

inline await_part()
{
    do
    :: IS_HERE(p) ->
        word = first_word[HALF(p, round)];
        other = second_word[HALF(p, round)];
        if
        :: IS_STILL_HERE(p) ->
            assert(word == PART(use, round) && other == PART(use, round));
            break
        :: else -> skip
        fi
    :: !IS_HERE(p) && IS_GONE(p) -> fails = true; break
    od;
    word = 0;
    other = 0
}

inline exchange_parts()
{
    do
    :: round < ROUNDS && !fails ->
        MAY_REFUSE;
        MAY_DIE;
        if
        :: !fails -> write_part()
        :: else
        fi;
        do
        :: atomic { p < RANKS && (p == me || !HAS(MINE(use), p)) -> p++ }
        :: p < RANKS && p != me && HAS(MINE(use), p) && !fails -> await_part(); p++
        :: p == RANKS || fails -> break
        od;
        atomic {
            p = 0;
            round++
        }
    :: else -> round = 0; break
    od
}

#define IS_LATE(p) (HAS(MINE(use), p) && !HAS(connected[use], p) && IS_GONE(p))
#define IS_MISSING(p) (HAS(MINE(use), p) && !HAS(ready[use], p) && HAS(dead | ended[use], p))

/* Peers connect, while it is still looked whether they give up. */
inline connect()
{
    connected[use] = connected[use] | (1 << me);
    if
    :: (MINE(use) & ~connected[use]) == 0
    :: ANY(IS_LATE) -> fails = true
    fi
}

/* The last exchange over the new mesh, whose sockets tell who has gone. */
inline get_ready()
{
    ready[use] = ready[use] | (1 << me);
    if
    :: (MINE(use) & ~ready[use]) == 0
    :: ANY(IS_MISSING) -> fails = true
    fi
}

inline join()
{
    exchange_parts();
#ifdef EARLY_CLOSE
    atomic { close(MINE(use)); word = 0 }
#endif
    MAY_REFUSE;
    if
    :: !fails -> connect()
    :: else
    fi;
    MAY_REFUSE;
    MAY_DIE;
    if
    :: !fails -> get_ready()
    :: else
    fi;
    MAY_DIE;
    d_step {
        ended[use] = ended[use] | (1 << me);
#ifdef NO_LEAVE
        if
        :: !fails -> close(MINE(use))
        :: else
        fi;
#else
        close(MINE(use));
#endif
        word = 0
    }
}

inline check_outcome()
{
    d_step {
        assert(!fails || deaths > 0 || refusals > 0);
        if
        :: fails -> bad[use] = bad[use] | (1 << me)
        :: else -> good[use] = good[use] | (1 << me)
        fi;
        assert(deaths > 0 || (good[use] & MINE(use)) == 0 || (bad[use] & MINE(use)) == 0)
    }
}

proctype rank(byte me)
{
    byte use = 1, round, p, word, other;
    bool fails;
    do
    :: use <= CALLS ->
        if
        :: is_split[use] -> agree()
        :: !is_split[use] && MINE(use) != 0 -> meet()
        :: else
        fi;
        if
        :: !fails && MINE(use) != 0 -> join()
        :: else
        fi;
        atomic {
            if
            :: MINE(use) != 0 -> check_outcome()
            :: else
            fi;
            fails = false;
            use++
        }
    :: else -> break
    od;
    if
    :: left = left | (1 << me)
    :: true /* keeps the parent */
    fi;
    goto end;
death:
    atomic {
        dead = dead | (1 << me);
        p = 0;
        round = 0;
        fails = false
    }
end:
    skip
}

init {
    byte use = 1, r;
    byte first, second; /* the teams */
    atomic {
        do
        :: use <= CALLS ->
            if
            :: is_split[use] = true
            :: is_split[use] = false
            fi;
            if
            :: !WITH_TROUBLE || use == 1 -> first = ALL
            :: !WITH_TROUBLE || use != 1 -> first = 3
            :: !WITH_TROUBLE && RANKS > 2 -> first = ALL & ~1
            :: !WITH_TROUBLE && RANKS > 2 -> first = ALL & ~2
            fi;
            second = (is_split[use] -> ALL & ~first : 0);
            r = 0;
            do
            :: r < RANKS ->
                team[use * RANKS + r] = (HAS(first, r) -> first : second);
                r++
            :: else -> break
            od;
            use++
        :: else -> break
        od;
        r = 0;
        first = 0;
        second = 0;
        do
        :: r < RANKS -> run rank(r); r++
        :: else -> break
        od
    }
}
