/* How the members of a shrink meet (src/boot/meeting.c), for Spin: a table of meetings, which each
 * rank changes in one step (table.pml). Each rank makes one call with a list of its own choice, or
 * refuses it. Then it calls again, with all ranks that it does not know to be dead, until it
 * meets them. A rank may die between any two steps. A deadline passes only when nothing else can
 * happen.
 *
 * Checked: no deadlock, and all live ranks meet in the end; all ranks that return from a meeting
 * have one outcome; a meeting is complete only if all its members came with its list; without
 * deaths no wait needs its deadline, whatever lists differ; a rank makes a new meeting of a list
 * only if it knows that the last one failed; no meeting is replaced while a rank is in it.
 *
 * Planted faults: NO_CHAIN fails only the meetings that wait for this rank's own; DEAF does not
 * report a failure to late ranks; REPLACE_ANY replaces a meeting that ranks are in; NO_LOOK does
 * not check whether missing members live. */
#ifndef RANKS
#define RANKS 3
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#ifndef MEETINGS
#define MEETINGS 5
#endif
#ifndef TRIES
#define TRIES 8    /* a rank makes fewer calls until it meets all */
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
byte last; /* the last serial in use */
byte serial[MEETINGS];
byte state[MEETINGS];
byte by[MEETINGS];
byte cause[MEETINGS];
byte members[MEETINGS];
byte came[MEETINGS];   /* bits of the ranks that came with its list */
byte know[MEETINGS];   /* bits of the ranks that need not learn that it failed */
bool differ[MEETINGS]; /* the meeting failed because lists differ */
bool stuck[MEETINGS];
byte inside[MEETINGS];

byte last_of[RANKS]; /* the serial of the latest meeting of each rank */

byte dead;   /* bits of the ranks that have died */
byte deaths; /* number of deaths so far */

/* Events of each meeting. */
byte outcome[MEETINGS];   /* outcome of the ranks that have returned; 0: no rank has */
bool is_last[MEETINGS];   /* all live ranks have met */

#if DEATHS > 0 /* ranks are symmetric, so it is rank 0 that dies */
#define MAY_DIE                                                                                    \
    if                                                                                             \
    :: deaths < DEATHS && me == 0 -> goto death                                                    \
    :: true                                                                                        \
    fi
#else
#define MAY_DIE skip
#endif

/* ---- the table */

inline fail_for(m, who, why, known, is_differ)
{
    by[m] = who;
    cause[m] = why;
    know[m] = known;
    differ[m] = is_differ;
    state[m] = FAILED
}

inline fail(m) { fail_for(m, me, serial[m], came[m], false) }

#ifdef REPLACE_ANY
#define IS_BETTER(m, than) (serial[m] < serial[than])
#else
#define IS_BETTER(m, than)                                                                         \
    ((inside[m] != 0) != (inside[than] != 0) -> (inside[than] != 0) : serial[m] < serial[than])
#endif

/* Replaces the oldest meeting that no rank is in. */
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
        serial[made] = last;
        state[made] = OPEN;
        members[made] = list;
        came[made] = 0;
        inside[made] = 0;
        by[made] = 0;
        cause[made] = 0;
        know[made] = 0;
        differ[made] = false;
        outcome[made] = 0;
        is_last[made] = false
    }
}

/* A failed meeting can be forgotten if all ranks know of it, and if neither it nor another
 * meeting that failed for the same reason is any rank's last one. So it leaves no trace in the
 * state. */
inline forget()
{
    d_step {
        last_ones = 0;
        i = 0;
        do
        :: i < MEETINGS ->
            k = 0;
            do
            :: k < RANKS && serial[i] != 0 && last_of[k] == serial[i] && !HAS(dead, k) ->
                last_ones = last_ones | (1 << cause[i]);
                k++
            :: k < RANKS && !(serial[i] != 0 && last_of[k] == serial[i] && !HAS(dead, k)) -> k++
            :: k == RANKS -> break
            od;
            i++
        :: else -> i = 0; break
        od;
        do
        :: i < MEETINGS ->
            is_last_one = false;
            k = 0;
            do
            :: k < RANKS -> is_last_one = is_last_one || last_of[k] == serial[i]; k++
            :: else -> k = 0; break
            od;
            if
            :: state[i] != OPEN && inside[i] == 0 && !is_last_one &&
               (state[i] == COMPLETE ||
                ((ALL & ~(know[i] | dead)) == 0 && (last_ones & (1 << cause[i])) == 0)) ->
                state[i] = COMPLETE;
                members[i] = 0;
                came[i] = 0;
                know[i] = 0;
                differ[i] = false;
                by[i] = 0;
                cause[i] = 0;
                outcome[i] = 0;
                is_last[i] = false
            :: else
            fi;
            stuck[i] = false;
            i++
        :: else -> i = 0; break
        od;
        is_last_one = false;
        last_ones = 0
    }
}

/* ---- entering */

#define IS_MINE(m) (serial[m] != 0 && HAS(members[m], me))
#define IS_SAME(m) (IS_MINE(m) && state[m] == OPEN && members[m] == list)
#ifdef DEAF
#define IS_NEWS(m) false
#else
/* Whether lists differ, and this rank depends on a meeting that failed: as a member, or through
 * another rank's last call. lasts(m): bits of the ranks whose last call was meeting m */
#define MEETS(m)                                                                                   \
    ((came[m] & list) != 0 && (HAS(members[m], me) || (lasts(m) & list) != 0))
#define LASTS(m, r) ((last_of[r] == serial[m] -> 1 << r : 0) & came[m])
#if RANKS == 3
#define lasts(m) (LASTS(m, 0) | LASTS(m, 1) | LASTS(m, 2))
#else
#define lasts(m) (LASTS(m, 0) | LASTS(m, 1))
#endif
#define IS_NEWS(m)                                                                                 \
    (serial[m] != 0 && state[m] == FAILED && !HAS(know[m], me) &&                                  \
     (differ[m] -> MEETS(m) : HAS(members[m], me) && HAS(list, by[m])))
#endif

inline look()
{
    d_step {
        same = NONE;
        news = NONE;
        i = 0;
        do
        :: i < MEETINGS ->
            if
            :: IS_SAME(i) -> same = i
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

/* failed: the ranks whose calls failed for a reason */
inline failed_with(why)
{
    failed = 0;
    k = 0;
    do
    :: k < MEETINGS ->
        if
        :: serial[k] != 0 && state[k] == FAILED && cause[k] == why -> failed = failed | came[k]
        :: else
        fi;
        k++
    :: else -> k = 0; break
    od
}

inline know_all()
{
    d_step {
        i = 0;
        do
        :: i < MEETINGS ->
            if
            :: serial[i] != 0 && state[i] == FAILED -> know[i] = know[i] | (1 << me)
            :: else
            fi;
            i++
        :: else -> i = 0; break
        od
    }
}

inline know_news()
{
    failed_with(cause[news]);
    i = 0;
    do
    :: i < MEETINGS ->
        if
        :: serial[i] != 0 && state[i] == FAILED &&
           (cause[i] == cause[news] || (IS_NEWS(i) && (came[i] & failed) == 0)) ->
            know[i] = know[i] | (1 << me)
        :: else
        fi;
        i++
    :: else -> i = 0; break
    od
}

inline come(m)
{
    came[m] = came[m] | (1 << me);
    last_of[me] = serial[m]
}

#define WAITS_FOR(m, o) ((members[m] & ~came[m] & came[o]) != 0)

/* Ranks that know of the failure are at their next try. */
#define IS_NEXT_TRY(m) ((came[m] & ~(news != NONE -> know[news] : 0)) == 0)

/* callers: the ranks of `same` and of the blocked meetings */
inline find_stuck()
{
    callers = came[same];
    i = 0;
    do
    :: i < MEETINGS ->
        if
        :: i != same && serial[i] != 0 && state[i] == OPEN && !stuck[i] && !IS_NEXT_TRY(i) &&
           (members[i] & ~came[i] & callers) != 0 ->
            stuck[i] = true;
#ifndef NO_CHAIN
            callers = callers | came[i]; /* others may wait for its ranks */
#endif
            i = 0
        :: else -> i++
        fi
    :: else -> i = 0; break
    od
}

/* Adds to `known` the ranks whose last call was of the same round. */
inline find_who_called_before()
{
    i = 0;
    do
    :: i < MEETINGS ->
        failed_with(cause[i]);
        k = 0;
        do
        :: k < RANKS ->
            if
            :: serial[i] != 0 && last_of[k] == serial[i] &&
               (state[i] == FAILED -> (members[i] & callers) != 0 && (failed & callers) == 0
                                    : members[i] == members[same] && (came[i] & callers) == 0) ->
                known = known | (1 << k)
            :: else
            fi;
            k++
        :: else -> k = 0; break
        od;
        i++
    :: else -> i = 0; break
    od
}

/* Fails this rank's meeting and the meetings that are blocked. */
inline fail_stuck(who, why, is_differ)
{
    d_step {
        known = callers | (news != NONE -> know[news] : 0);
        find_who_called_before()
    }
    fail_for(same, who, why, known, is_differ);
    made = 0;
    do
    :: made < MEETINGS ->
        if
        :: stuck[made] -> fail_for(made, me, why, known, true)
        :: else
        fi;
        made++
    :: else -> made = 0; break
    od
}

/* A meeting of the same list has failed without this rank, which does not know it. */
inline check_news()
{
    d_step {
        i = 0;
        do
        :: i < MEETINGS ->
            was_told = !(IS_MINE(i) && state[i] == FAILED && members[i] == list &&
                         !HAS(know[i], me) && HAS(list, by[i]));
            assert(was_told);
            i++
        :: else -> i = 0; break
        od
    }
}

/* Enters a meeting. in: its index; NONE: the call has failed. */
inline enter()
{
    look();
    in = NONE;
    if
    :: same != NONE -> news = NONE
    :: else
    fi;
    if
    :: news != NONE ->
        create();
        same = made;
        d_step {
            come(same);
            know_news();
            find_stuck()
        }
        fail_stuck(by[news], cause[news], differ[news])
    :: else ->
        if
        :: same == NONE -> check_news(); know_all(); create(); same = made
        :: else -> know_all()
        fi;
        come(same);
        if
        :: came[same] == list ->
            state[same] = COMPLETE;
            is_last[same] = (list | dead) == ALL;
            in = same
        :: else ->
            d_step {
                find_stuck();
                is_circle = (members[same] & ~came[same] & callers) != 0
            }
            if
            :: is_circle -> fail_stuck(me, serial[same], true)
            :: else -> in = same
            fi
        fi;
        if
        :: in != NONE -> inside[in] = inside[in] | (1 << me)
        :: else
        fi
    fi
}

/* Refuses a call with this list, or a call whose list has the rank itself. */
inline refuse()
{
    look();
    news = NONE;
    if
    :: !HAS(list, me) ->
        create();
        same = made;
        d_step { come(same); find_stuck() }
        fail_stuck(me, serial[same], true)
    :: else ->
        if
        :: same == NONE -> create(); same = made
        :: else
        fi;
        d_step {
            come(same);
            callers = came[same];
            i = 0;
            do
            :: i < MEETINGS ->
                if
                :: IS_MINE(i) && state[i] == OPEN -> callers = callers | came[i]
                :: else
                fi;
                i++
            :: else -> i = 0; break
            od
        }
        made = 0;
        do
        :: made < MEETINGS ->
            if
            :: IS_MINE(made) && state[made] == OPEN ->
                fail_for(made, me, serial[same], callers, false)
            :: else
            fi;
            made++
        :: else -> made = 0; break
        od
    fi
}

/* ---- waiting */

#define IS_OVER(m) (state[m] != OPEN)
#ifdef NO_LOOK
#define IS_HOPELESS(m) false
#else
#define IS_HOPELESS(m) (state[m] == OPEN && (members[m] & ~came[m] & dead) != 0)
#endif

inline leave_meeting()
{
    assert(outcome[in] == 0 || outcome[in] == 1 + state[in]);
    outcome[in] = 1 + state[in];
    assert(state[in] == FAILED || came[in] == list);
    met = is_last[in];
    inside[in] = inside[in] & ~(1 << me)
}

inline wait()
{
    do
    :: atomic {
            IS_OVER(in) || IS_HOPELESS(in) ->
                if
                :: IS_HOPELESS(in) -> fail(in)
                :: else
                fi;
                leave_meeting();
                forget();
                break
        }
#if DEATHS > 0
    :: atomic { deaths < DEATHS && me == 0 -> goto death }
#endif
    :: atomic {
            timeout && state[in] == OPEN -> /* the meeting's deadline has passed */
                /* the meeting waits for a live rank */
                assert((members[in] & ~came[in] & ~dead) != 0);
                assert(deaths > 0); /* all call until they meet, so no wait needs its deadline */
                fail(in);
                leave_meeting();
                forget();
                break
        }
    od
}

proctype rank(byte me)
{
    byte list, tries, in, made, same, news, i, k, callers, known, failed;
    int last_ones;
    bool met, was_told, is_last_one, is_circle;
end_met:
    do
    :: atomic {
            /* ranks that have met go on without a member that dies */
            list == 0 || (list & dead) != 0 ->
                if
                :: tries > 0 -> list = ALL & ~dead
                :: tries == 0 -> select (list : 0 .. ALL)
                fi;
                if
                :: HAS(list, me)
                :: else -> list = REFUSED(list)
                fi;
                assert(tries < TRIES); /* all live ranks meet in the end */
                MAY_DIE;
                if
                :: HAS(list, me) -> enter()
                :: tries == 0 -> refuse(); in = NONE
                fi;
                forget()
        }
        if
        :: in != NONE -> wait()
        :: else
        fi;
        atomic {
            made = 0;
            same = 0;
            news = 0;
            in = 0;
            callers = 0;
            known = 0;
            failed = 0;
            was_told = false;
            is_circle = false;
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
