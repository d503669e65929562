/* How ranks of one host exchange the places of each call (src/alloc/places.c), for Spin: a ring of
 * entries with a record for each rank, an order of arrival, and one decision for each group of
 * calls. For each group a rank publishes its records, arrives, and waits for the decision: FULL
 * once all ranks have arrived, or LATE if a rank's wait ends before, which it may at any time.
 * After FULL a rank knows all records, after LATE those of the ranks that arrived before it. It
 * reads the records that it knows, and finishes. Groups have any size up to that of the ring.
 *
 * Checked: no deadlock; all ranks have the same outcome; after LATE, of each two ranks exactly one
 * knows the other, and it knows all ranks that the other one knows; the records that a rank knows
 * are those of the call until the rank has finished.
 *
 * COUNTED: the protocol for more ranks than a word has bits, in which no rank decides LATE.
 *
 * Planted faults: LATE_RECORD writes the records after the arrival; SPLIT_ARRIVAL arrives in two
 * steps; STORED_DECISION decides without compare-and-swap; NUMBERLESS accepts any decision as that
 * of its group; NO_ROOM reuses entries at once; EARLY_FINISH gives an entry back before it reads
 * the records; LARGE_GROUPS publishes more calls at once than the ring has entries. */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef CALLS
#define CALLS 5
#endif
#define ENTRIES 2 /* entries of the ring */
#define FULL 0
#define LATE 1
#define ALL ((1 << RANKS) - 1)
#define ENTRY(call) ((call) % ENTRIES)

/* The shared memory. A record has two words, because it is not written atomically. Each word
 * holds the number of its call. */
#define WORD(which, call, rank) record[((which) * ENTRIES + ENTRY(call)) * RANKS + (rank)]
byte record[2 * ENTRIES * RANKS];
byte arrivals[ENTRIES];
byte decision[ENTRIES]; /* call * 2 + outcome */
byte finished[RANKS];   /* the last call that the rank finished */

/* The program's groups, and the ranks' observations. Calls are numbered from 1. */
bool ends[CALLS + 1];            /* the call is the last of its group */
byte outcome[CALLS + 1];         /* 1 + the outcome, once a rank has it */
byte met[CALLS + 1];             /* the set of ranks that have the outcome */
byte knows[(CALLS + 1) * RANKS]; /* [call * RANKS + rank]: the set of ranks that the rank knows */

/* Decides call `last`, unless a rank has decided it. The load and the swap are two steps. */
inline decide(which)
{
    seen = decision[ENTRY(last)];
    if
#ifdef NUMBERLESS
    :: seen != 0 -> skip /* accepts an older call's decision as its own */
#else
    :: seen / 2 == last -> skip
#endif
    :: else ->
#ifdef STORED_DECISION
        decision[ENTRY(last)] = last * 2 + which
#else
        atomic {
            if
            :: decision[ENTRY(last)] == seen -> decision[ENTRY(last)] = last * 2 + which
            :: else
            fi
        }
#endif
    fi;
    seen = 0
}

/* Writes one of the two words in the records of all calls of the group. */
inline write_words(which)
{
    d_step {
        call = first;
        do
        :: call <= last -> WORD(which, call, me) = call; call++
        :: else -> call = 0; break
        od
    }
}

inline write_records()
{
    write_words(0);
    write_words(1)
}

/* Before a call all ranks' bits are equal, and each rank that arrives flips its own. So the ranks
 * whose bits differ from this rank's bit have arrived before this rank. */
inline arrive()
{
#ifdef COUNTED
    atomic {
        seen = arrivals[ENTRY(last)];
        /* In the library the counter grows; only its value modulo RANKS matters. */
        arrivals[ENTRY(last)] = (seen + 1) % RANKS;
        earlier = (seen == RANKS - 1 -> ALL & ~(1 << me) : 0);
        seen = 0
    }
#else
#ifndef SPLIT_ARRIVAL
    atomic {
#endif
        seen = arrivals[ENTRY(last)];
        arrivals[ENTRY(last)] = seen ^ (1 << me);
        earlier = (((seen >> me) & 1) -> ~seen : seen) & ALL & ~(1 << me);
        seen = 0
#ifndef SPLIT_ARRIVAL
    }
#endif
#endif
    if
    :: earlier == (ALL & ~(1 << me)) -> decide(FULL)
    :: else
    fi
}

/* Waits until every rank has finished the earlier calls whose entries the group needs. */
inline wait_for_room()
{
    p = 0;
    do
    :: p < RANKS ->
        last <= finished[p] + ENTRIES;
        p++
    :: else -> p = 0; break
    od
}

inline meet()
{
    do
    :: decision[ENTRY(last)] / 2 == last -> break
#ifdef NUMBERLESS
    :: decision[ENTRY(last)] != 0 -> break
#endif
#ifndef COUNTED
    :: else -> decide(LATE) /* this rank's wait for the others has ended */
#endif
    od;
    result = decision[ENTRY(last)] % 2
}

/* Compares this rank's outcome with those of the ranks that came here before. */
inline compare()
{
    d_step {
        if
        :: result == FULL -> earlier = ALL & ~(1 << me)
        :: else
        fi;
        assert(outcome[last] == 0 || outcome[last] == 1 + result);
        outcome[last] = 1 + result;
        knows[last * RANKS + me] = earlier;
        p = 0;
        do
        :: p < RANKS ->
            if
            :: p != me && ((met[last] >> p) & 1) && result == LATE ->
                /* One of the two came later. */
                assert(((earlier >> p) & 1) != ((knows[last * RANKS + p] >> me) & 1));
                /* The later rank knows all ranks that the earlier one knows. */
                assert((((earlier >> p) & 1) -> knows[last * RANKS + p] & ~earlier
                                              : earlier & ~knows[last * RANKS + p]) == 0)
            :: else
            fi;
            p++
        :: else -> break
        od;
        met[last] = met[last] | (1 << me);
        p = 0
    }
}

/* Reads one of the two words in all records that this rank knows. */
inline read_words(which)
{
    d_step {
        call = first;
        do
        :: call <= last ->
            p = 0;
            do
            :: p < RANKS ->
                assert((p != me && !((earlier >> p) & 1)) ||
                       WORD(which, call, p) == call);
                p++
            :: else -> p = 0; break
            od;
            call++
        :: else -> call = 0; break
        od
    }
}

proctype rank(byte me)
{
    byte first = 1, last, call, p, seen, earlier, result;
    do
    :: first <= CALLS ->
        last = first;
        do
        :: !ends[last] -> last++
        :: else -> break
        od;
#ifndef NO_ROOM
        wait_for_room();
#endif
#ifndef LATE_RECORD
        write_records();
#endif
        arrive();
#ifdef LATE_RECORD
        write_records();
#endif
        meet();
        compare();
#ifdef EARLY_FINISH
        finished[me] = last;
#endif
        read_words(0);
        read_words(1);
        finished[me] = last;
        first = last + 1;
        earlier = 0;
        result = 0
    :: else -> break
    od
}

init {
    byte i = 1, size;
    atomic {
        do
        :: i < CALLS ->
            size++;
#ifdef LARGE_GROUPS
            ends[i] = (size > ENTRIES);
#else
            if
            :: ends[i] = true
            :: size < ENTRIES -> skip
            fi;
#endif
            if
            :: ends[i] -> size = 0
            :: else
            fi;
            i++
        :: else -> break
        od;
        ends[CALLS] = true;
        i = 0;
        do
        :: i < RANKS -> run rank(i); i++
        :: else -> break
        od
    }
}
