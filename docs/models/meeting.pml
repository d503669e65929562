/* How the members of a shrink meet (src/boot/meeting.c), for Spin: a table of meetings under a
 * lock that outlives its holder. Each rank makes one call with a list of its own choice, or
 * refuses it. Then it calls again, with all ranks that it does not know to be dead, until it meets
 * them. A rank may die, also while it holds the lock. A deadline passes only when nothing else can
 * happen.
 *
 * Checked: no deadlock, and all who live meet in the end; all who return from a meeting have one
 * outcome; a meeting is complete only if all its members came with its list; whoever comes with
 * another list, or refuses, fails all meetings that wait for it, except those of ranks that its
 * list leaves out; nobody makes a meeting anew without knowing that the last one failed; no
 * meeting is replaced while a rank is in it.
 * Planted faults: STATE_FIRST says that a meeting has failed before its reason is written;
 * HALF_MADE writes a new meeting over a failed one in another order; ONE_CONFLICT fails only one
 * of the meetings with other lists; NO_TAKEOVER leaves meetings open when the holder of the lock
 * has died; DEAF does not tell those who come late; REPLACE_ANY replaces a meeting that ranks are
 * in; NO_LOOK does not look whether missing members live. */
#ifndef RANKS
#define RANKS 3
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#ifndef MEETINGS
#define MEETINGS 4
#endif
#ifndef TRIES
#define TRIES 6    /* a rank makes fewer calls until it meets all */
#endif

#if DEATHS > 0
#define REFUSED(list) (ALL & ~(1 << me)) /* fewer cases */
#else
#define REFUSED(list) list
#endif

#define OPEN 0
#define COMPLETE 1
#define FAILED 2
#define NONE MEETINGS
#define ALL ((1 << RANKS) - 1)
#define HAS(set, rank) (((set) >> (rank)) & 1)

/* The table. Sets of ranks are bits. */
byte holder; /* of the lock: rank + 1, or 0 */
byte last;   /* the last serial that was given */
byte serial[MEETINGS];
byte state[MEETINGS];
bool reason[MEETINGS]; /* the result is written */
byte by[MEETINGS];
byte cause[MEETINGS];
byte members[MEETINGS];
byte came[MEETINGS];
byte inside[MEETINGS];

byte dead;   /* bits of the ranks that have died */
byte deaths; /* so far */

/* What happened to the meeting. */
byte with_list[MEETINGS]; /* bits of the ranks that came with its list */
byte outcome[MEETINGS];   /* of the ranks that have returned; 0: none has */
bool is_last[MEETINGS];   /* all who live have met */

#if DEATHS > 0 /* ranks are alike, so it is rank 0 that dies */
#define MAY_DIE                                                                                    \
    if                                                                                             \
    :: deaths < DEATHS && me == 0 -> goto death                                                    \
    :: true                                                                                        \
    fi
#else
#define MAY_DIE skip
#endif

/* ---- the table. A rank that holds the lock sees no other rank's steps, so these are atomic. */

inline fail(m)
{
#ifdef STATE_FIRST
    state[m] = FAILED;
    MAY_DIE;
#endif
    by[m] = me;
    cause[m] = serial[m];
    reason[m] = true;
    MAY_DIE;
    state[m] = FAILED
}

inline fail_open()
{
#ifndef NO_TAKEOVER
    i = 0;
    do
    :: i < MEETINGS && serial[i] != 0 && state[i] == OPEN -> fail(i)
    :: i < MEETINGS && !(serial[i] != 0 && state[i] == OPEN) -> i++
    :: i == MEETINGS -> i = 0; break
    od
#else
    skip
#endif
}

#define MAY_LOCK (holder == 0 || HAS(dead, holder - 1))
inline lock()
{
    if
    :: holder == 0 -> holder = me + 1
    :: else -> holder = me + 1; fail_open() /* the holder may have left one half written */
    fi
}

#ifdef REPLACE_ANY
#define IS_BETTER(m, than) (serial[m] < serial[than])
#else
#define IS_BETTER(m, than)                                                                         \
    ((inside[m] != 0) != (inside[than] != 0) -> (inside[than] != 0) : serial[m] < serial[than])
#endif

/* Takes the place of the oldest meeting that nobody is in. */
inline create()
{
    d_step {
        made = 0;
        i = 1;
        do
        :: i < MEETINGS ->
            if
            :: IS_BETTER(i, made) -> made = i
            :: else
            fi;
            i++
        :: else -> i = 0; break
        od;
        assert((inside[made] & ~dead) == 0); /* replaced */
        last++;
#ifdef HALF_MADE
        serial[made] = last;
#else
        serial[made] = 0;
        state[made] = OPEN;
#endif
        members[made] = list;
        came[made] = 0;
        inside[made] = 0;
        by[made] = 0;
        cause[made] = 0;
        reason[made] = false;
        with_list[made] = 0;
        outcome[made] = 0;
        is_last[made] = false
    }
    MAY_DIE;
    d_step {
        serial[made] = last;
        state[made] = OPEN
    }
}

/* Nobody looks at a meeting again that all members know of, so it leaves no trace in the state. */
inline unlock()
{
    d_step {
        i = 0;
        do
        :: i < MEETINGS ->
            if
            :: state[i] != OPEN && inside[i] == 0 &&
               (state[i] == COMPLETE || (members[i] & ~came[i]) == 0) ->
                state[i] = COMPLETE;
                members[i] = 0;
                came[i] = 0;
                by[i] = 0;
                cause[i] = 0;
                reason[i] = false;
                with_list[i] = 0;
                outcome[i] = 0;
                is_last[i] = false
            :: else
            fi;
            i++
        :: else -> i = 0; break
        od;
        holder = 0
    }
}

/* ---- coming */

#define IS_MINE(m) (serial[m] != 0 && HAS(members[m], me))
#define IS_SAME(m) (IS_MINE(m) && state[m] == OPEN && members[m] == list)
#define IN_CONFLICT(m)                                                                             \
    (IS_MINE(m) && state[m] == OPEN && members[m] != list && (came[m] & list) != 0)
#ifdef DEAF
#define IS_NEWS(m) false
#else
#define IS_NEWS(m) (IS_MINE(m) && state[m] == FAILED && !HAS(came[m], me) && HAS(list, by[m]))
#endif

inline look()
{
    d_step {
        same = NONE;
        conflict = NONE;
        news = NONE;
        i = 0;
        do
        :: i < MEETINGS ->
            if
            :: IS_SAME(i) -> same = i
            :: IN_CONFLICT(i) -> conflict = i
            :: IS_NEWS(i) ->
                if
                :: news == NONE -> news = i
                :: else ->
                    if
                    :: serial[i] < serial[news] -> news = i
                    :: else
                    fi
                fi
            :: else
            fi;
            i++
        :: else -> i = 0; break
        od
    }
}

#define ANY_CAUSE 0
inline know_failures(reason_of)
{
    d_step {
        i = 0;
        do
        :: i < MEETINGS ->
            if
            :: state[i] == FAILED && (reason_of == ANY_CAUSE || cause[i] == reason_of) ->
                came[i] = came[i] | (1 << me)
            :: else
            fi;
            i++
        :: else -> i = 0; break
        od
    }
}

/* Fails the meeting of this rank's list, and those with other lists. All who came to any of them
 * have the reason. */
inline fail_all()
{
    if
    :: same == NONE -> create(); same = made
    :: else
    fi;
    d_step {
        came[same] = came[same] | (1 << me);
        i = 0;
        do
        :: i < MEETINGS ->
            if
#ifdef ONE_CONFLICT
            :: i == conflict -> came[same] = came[same] | came[i]
#else
            :: IN_CONFLICT(i) -> came[same] = came[same] | came[i]
#endif
            :: else
            fi;
            i++
        :: else -> i = 0; break
        od
    }
    fail(same);
    do
    :: conflict != NONE ->
        came[conflict] = came[same];
        fail(conflict);
        cause[conflict] = cause[same];
#ifdef ONE_CONFLICT
        conflict = NONE
#else
        d_step {
            conflict = 0;
            do
            :: conflict < MEETINGS && !IN_CONFLICT(conflict) -> conflict++
            :: else -> break
            od
        }
#endif
    :: else -> break
    od
}

/* After this rank has come with another list, or has refused, nobody who waits for it goes on to
 * wait. `whom`: the ranks that are to learn of it. */
inline check_nobody_waits(whom)
{
    d_step {
        i = 0;
        do
        :: i < MEETINGS ->
            somebody_waits = IS_MINE(i) && state[i] == OPEN && (came[i] & (whom)) != 0;
            assert(!somebody_waits);
            i++
        :: else -> i = 0; break
        od
    }
}

/* A meeting of the same list has failed without this rank, which does not know it. */
inline check_news()
{
    d_step {
        i = 0;
        do
        :: i < MEETINGS ->
            was_told = !(IS_MINE(i) && state[i] == FAILED && members[i] == list &&
                         !HAS(came[i], me) && HAS(list, by[i]));
            assert(was_told);
            i++
        :: else -> i = 0; break
        od
    }
}

/* Comes to a meeting. in: which one; NONE: the call has failed. */
inline enter()
{
    look();
    if
    :: news != NONE && same == NONE ->
        assert(reason[news]);
        know_failures(cause[news]);
        in = NONE
    :: !(news != NONE && same == NONE) && conflict != NONE ->
        fail_all();
        check_nobody_waits(list);
        in = NONE
    :: else ->
        if
        :: same == NONE -> check_news(); know_failures(ANY_CAUSE); create(); in = made
        :: else -> know_failures(ANY_CAUSE); in = same
        fi;
        came[in] = came[in] | (1 << me);
        inside[in] = inside[in] | (1 << me);
        with_list[in] = with_list[in] | (1 << me);
        MAY_DIE;
        if
        :: came[in] == list ->
            state[in] = COMPLETE;
            is_last[in] = (list | dead) == ALL
        :: else
        fi
    fi
}

inline refuse()
{
    waits = false;
    look();
    made = 0;
    do
    :: made < MEETINGS ->
        if
        :: IS_MINE(made) && state[made] == OPEN ->
            came[made] = came[made] | (1 << me);
            fail(made);
            waits = true
        :: else
        fi;
        made++
    :: else -> made = 0; break
    od;
    if
    :: !waits ->
        create();
        came[made] = came[made] | (1 << me);
        fail(made)
    :: else
    fi;
    check_nobody_waits(ALL)
}

/* ---- waiting */

#define IS_OVER(m) (state[m] == COMPLETE || (state[m] == FAILED && reason[m]))
#ifdef NO_LOOK
#define IS_HOPELESS(m) false
#else
#define IS_HOPELESS(m) (state[m] == OPEN && (members[m] & ~came[m] & dead) != 0)
#endif

inline leave_meeting()
{
    assert(outcome[in] == 0 || outcome[in] == 1 + state[in]);
    outcome[in] = 1 + state[in];
    assert(state[in] == FAILED || with_list[in] == list);
    met = is_last[in];
    inside[in] = inside[in] & ~(1 << me)
}

inline wait()
{
    do
    :: atomic {
            MAY_LOCK && (holder != 0 || IS_OVER(in) || IS_HOPELESS(in)) ->
                lock();
                if
                :: IS_HOPELESS(in) -> fail(in)
                :: else
                fi;
                if
                :: IS_OVER(in) -> leave_meeting(); unlock(); break
                :: else -> unlock()
                fi
        }
    :: atomic {
            timeout && MAY_LOCK && state[in] == OPEN -> /* its deadline has passed */
                assert((members[in] & ~came[in] & ~dead) != 0); /* it waits for one who lives */
                lock();
                fail(in);
                leave_meeting();
                unlock();
                break
        }
    od
}

proctype rank(byte me)
{
    byte list, tries, in, made, same, conflict, news, i;
    bool met, waits, somebody_waits, was_told;
end_met:
    do
    :: atomic {
            /* those who have met go on without a member that dies */
            MAY_LOCK && (list == 0 || (list & dead) != 0) ->
                if
                :: tries > 0 -> list = ALL & ~dead
                :: tries == 0 -> select (list : 0 .. ALL)
                fi;
                if
                :: HAS(list, me)
                :: else -> list = REFUSED(list)
                fi;
                assert(tries < TRIES); /* all who live meet in the end */
                lock();
                MAY_DIE;
                if
                :: HAS(list, me) -> enter()
                :: tries == 0 -> refuse(); in = NONE
                fi;
                unlock()
        }
        if
        :: in != NONE -> wait()
        :: else
        fi;
        atomic {
            made = 0;
            same = 0;
            conflict = 0;
            news = 0;
            in = 0;
            was_told = false;
            waits = false;
            tries++;
            if
            :: met
            :: else -> list = 0
            fi;
            met = false
        }
    od;
death:
    atomic {
        dead = dead | (1 << me);
        deaths++
    }
}

init {
    byte r = 0;
    atomic {
        do
        :: r < RANKS -> run rank(r); r++
        :: else -> break
        od
    }
}
