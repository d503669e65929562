/* How ranks change the table of meetings without a lock (src/boot/meeting_table.c), for Spin. Each
 * rank makes CALLS changes. The table is two words, which every change makes one larger. A rank may
 * be stopped for ever, or die, at each MAY_END: as the writer of a copy, amid writing it, and after it
 * has made the copy the newest.
 *
 * Checked: no deadlock, so ranks that are stopped or dead keep no other from its changes; a table
 * that was read is whole; no change is lost or half published.
 *
 * Planted faults: NO_CHECK believes a table that changed while it was read; LOOK_FIRST looks whether
 * the table has changed before it takes a copy, and not after; PLAIN_STORE makes a copy the newest, whether
 * or not another rank was faster; NUMBERLESS does not count the changes; IN_PLACE writes the newest
 * copy; NO_RETURN never takes a copy from a dead rank. */
#ifndef COPIES
#define COPIES 3 /* one counts, one is written, a stopped or dead rank keeps one */
#endif
#ifndef STOPS
#define STOPS 0
#endif
#ifndef DEATHS
#define DEATHS 0
#endif

byte newest;         /* number of changes * COPIES + copy */
byte writer[COPIES]; /* rank + 1, or 0 */
byte one[COPIES], two[COPIES];
byte changes;        /* number of changes that were published */
byte stops, deaths;
byte dead;           /* bits of the ranks that have died */

#define MAY_TAKE(c) (c != seen % COPIES)
#define IS_FREE(c) (MAY_TAKE(c) && writer[c] == 0)
#define IS_DEAD(c) (MAY_TAKE(c) && writer[c] != 0 && ((dead >> (writer[c] - 1)) & 1))
#if COPIES == 2
#define NONE_FREE (!IS_FREE(0) && !IS_FREE(1))
#else
#define NONE_FREE (!IS_FREE(0) && !IS_FREE(1) && !IS_FREE(2))
#endif

#ifdef NUMBERLESS
#define NEXT copy
#else
#define NEXT ((seen / COPIES + 1) * COPIES + copy)
#endif

#define MAY_END                                                                                    \
    if                                                                                             \
    :: atomic { stops < STOPS -> stops++; goto ended }                                             \
    :: atomic { deaths < DEATHS -> deaths++; dead = dead | (1 << me); goto ended }                 \
    :: true                                                                                        \
    fi

inline give_back()
{
    atomic {
        if
        :: writer[copy] == me + 1 -> writer[copy] = 0
        :: else
        fi
    }
}

proctype rank(byte me)
{
    byte calls, seen, a, b, copy, from;
    do
    :: calls < CALLS ->
again:
        seen = newest;
        a = one[seen % COPIES];
        b = two[seen % COPIES];
#ifndef NO_CHECK
        if
        :: newest == seen
        :: else -> goto again
        fi;
#endif
        assert(a == b); /* whole */
        a++;
        b++;
#ifdef LOOK_FIRST
        if
        :: newest == seen
        :: else -> goto again
        fi;
#endif
take:
        if
        :: newest != seen -> goto again
        :: atomic { IS_FREE(0) -> copy = 0; from = 0 }
        :: atomic { IS_FREE(1) -> copy = 1; from = 0 }
#if COPIES > 2
        :: atomic { IS_FREE(2) -> copy = 2; from = 0 }
#endif
#ifndef NO_RETURN
        :: atomic { NONE_FREE && IS_DEAD(0) -> copy = 0; from = writer[0] }
        :: atomic { NONE_FREE && IS_DEAD(1) -> copy = 1; from = writer[1] }
#if COPIES > 2
        :: atomic { NONE_FREE && IS_DEAD(2) -> copy = 2; from = writer[2] }
#endif
#endif
        fi;
        atomic {
            if
            :: writer[copy] == from -> writer[copy] = me + 1
            :: else -> goto take
            fi
        }
        MAY_END;
        if
#ifdef LOOK_FIRST
        :: true ->
#else
        :: newest == seen ->
#endif
#ifdef IN_PLACE
            give_back();
            copy = seen % COPIES;
#endif
            one[copy] = a;
            MAY_END;
            two[copy] = b;
            MAY_END;
            atomic {
                if
#ifdef PLAIN_STORE
                :: true ->
#else
                :: newest == seen ->
#endif
                    newest = NEXT;
                    changes++;
                    calls++;
                    assert(a == changes) /* lost */
                :: else
                fi
            }
            MAY_END
        :: else
        fi;
        give_back()
    :: else -> break
    od;
ended:
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
