/* How the two ranks of a message find out which of them came second, and how the second one moves
 * the bytes (src/alloc/posts.c, src/ce/lower_messages.c), for Spin: a ring of entries for each
 * ordered pair of ranks, and words for "ready" and "done". Each rank has a host (it posts the
 * messages of a group and then issues the group), a stream (it runs groups one after the other),
 * and a lane for each peer.
 *
 * The program is any list of CALLS messages. With two ranks all messages go from rank 0 to rank 1
 * (BOTH: in either direction); with more ranks each goes between any two. Each rank has its own
 * messages in the order of the list, and divides them into groups as it likes. Such a program
 * always ends if each group ends once all groups that share messages with it have begun.
 *
 * HOSTS models only hosts. Without HOSTS only streams and lanes are modelled, and either rank of a
 * message may come second. (A model of all three has too many states.)
 *
 * Checked: no deadlock; each message is copied once, after both of its groups have begun and before
 * either has ended; the rank that comes second reads the post of that message.
 *
 * Planted faults: LATE_POST writes a post after the arrival; SPLIT_ARRIVAL arrives in two steps;
 * NO_ROOM reuses entries at once; EARLY_FINISH gives an entry back before it reads the peer's post;
 * ONE_WORD has one word for "ready" and "done"; NO_READY copies without waiting for "ready";
 * NO_DONE ends a group without waiting for "done"; ONE_LANE has one lane for all peers. */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef CALLS
#define CALLS 5
#endif
#define ENTRIES 2 /* entries of a ring */
#define PAIRS (RANKS * RANKS)
#define SENDER 0
#define RECEIVER 1
#define READY 0
#ifdef ONE_WORD
#define DONE 0
#else
#define DONE 1
#endif
#define NONE 2

/* The program. */
byte from[CALLS], to[CALLS];
byte number[CALLS];        /* the message's number within its pair, from 1 */
bool ends[RANKS * CALLS];  /* the rank's group ends with the message */
#define PAIR(m) (from[m] * RANKS + to[m])
#define IS_OF(me, m) (from[m] == me || to[m] == me)
#define ROLE(me, m) (from[m] == me -> SENDER : RECEIVER)
#define PEER(me, m) (from[m] == me -> to[m] : from[m])

/* The shared memory. A post has two words, because it is not written atomically. */
#define SLOT(m) (PAIR(m) * ENTRIES + number[m] % ENTRIES)
#define POST(which, role, m) post[((which) * 2 + (role)) * PAIRS * ENTRIES + SLOT(m)]
byte post[2 * 2 * PAIRS * ENTRIES]; /* the number of its message */
byte arrivals[PAIRS * ENTRIES];     /* a bit for each role */
byte finished[2 * PAIRS];           /* the last message that this end has finished */
#define FINISHED(role, m) finished[(role) * PAIRS + PAIR(m)]
byte word[2 * 2 * PAIRS];           /* written by the end `role` */
#define WORD(signal, role, m) word[((signal) * 2 + (role)) * PAIRS + PAIR(m)]

/* Events. */
byte second[CALLS];         /* the role of the rank that came second, or NONE */
byte open[CALLS];           /* a bit for each role whose group has begun, and has not ended */
bool copied[CALLS];
byte over; /* hosts that have posted everything */
byte started[RANKS];        /* the lanes may work on messages before this one */
byte passed[RANKS * RANKS]; /* a lane has reached this message */

inline find_last()
{
    d_step {
        last = first;
        do
        :: !ends[me * CALLS + last] -> last++
        :: else -> break
        od
    }
}

/* ---- hosts */

inline write_post(m)
{
    POST(0, ROLE(me, m), m) = number[m];
    POST(1, ROLE(me, m), m) = number[m]
}

inline arrive(m)
{
#ifdef SPLIT_ARRIVAL
    seen = arrivals[SLOT(m)];
    arrivals[SLOT(m)] = seen ^ (1 << ROLE(me, m));
#else
    atomic {
        seen = arrivals[SLOT(m)];
        arrivals[SLOT(m)] = seen ^ (1 << ROLE(me, m));
#endif
        is_second = ((seen & 1) != (seen >> 1));
        seen = 0
#ifndef SPLIT_ARRIVAL
    }
#endif
}

inline read_post(m)
{
    if
    :: is_second ->
        assert(POST(0, 1 - ROLE(me, m), m) == number[m]);
        assert(POST(1, 1 - ROLE(me, m), m) == number[m])
    :: else
    fi
}

inline post_message(m)
{
#ifndef LATE_POST
    write_post(m);
#endif
    arrive(m);
#ifdef LATE_POST
    write_post(m);
#endif
#ifdef EARLY_FINISH
    FINISHED(ROLE(me, m), m) = number[m];
#endif
    read_post(m);
    d_step {
        if
        :: is_second ->
            assert(second[m] == NONE); /* not both */
            second[m] = ROLE(me, m)
        :: else
        fi;
        is_second = false;
        FINISHED(ROLE(me, m), m) = number[m]
    }
}

/* Waits until the ring has room for all messages of the group, then posts them all. */
proctype host(byte me)
{
    byte first, last, m, seen;
    bool is_second;
    do
    :: first < CALLS ->
        find_last();
        m = first;
#ifndef NO_ROOM
        do
        :: m <= last ->
            !IS_OF(me, m) || number[m] <= FINISHED(1 - ROLE(me, m), m) + ENTRIES;
            m++
        :: else -> m = first; break
        od;
#endif
        do
        :: m <= last ->
            if
            :: IS_OF(me, m) -> post_message(m)
            :: else
            fi;
            m++
        :: else -> m = 0; break
        od;
        first = last + 1
    :: else -> break
    od;
    m = 0;
    d_step {
        over++;
        do
        :: over == RANKS && m < CALLS ->
            assert(second[m] != NONE); /* one of the two came second */
            m++
        :: else -> break
        od
    }
}

/* ---- streams */

/* Steps that no other process can tell apart are combined into one. */
#define AM_SECOND(me, m) (second[m] == ROLE(me, m))

inline move(m)
{
#ifndef NO_READY
    WORD(READY, 1 - ROLE(me, m), m) >= number[m];
#endif
    assert(open[m] == 3);
    assert(!copied[m]);
    copied[m] = true;
    WORD(DONE, ROLE(me, m), m) = number[m]
}

/* Of the messages with one peer, a lane moves those for which this rank came second, in the order
 * of the list. The peer's groups have the same order. */
#define IS_ON_LANE(me, peer, m) (IS_OF(me, m) && PEER(me, m) == peer && AM_SECOND(me, m))
inline pass_others(me, peer)
{
    do
    :: m < CALLS && !IS_ON_LANE(me, peer, m) -> m++
    :: else -> break
    od;
    passed[me * RANKS + peer] = m
}

/* `m`: the lane's first message. */
proctype lane(byte me; byte peer; byte m)
{
    do
    :: m < CALLS ->
        atomic {
            started[me] > m;
            move(m);
            m++;
            pass_others(me, peer)
        }
    :: else -> break
    od
}

/* The group begins, and signals "ready" for all messages for which this rank came first. */
inline begin_group()
{
    d_step {
        m = first;
        do
        :: m <= last ->
            if
            :: IS_OF(me, m) -> open[m] = open[m] | (1 << ROLE(me, m))
            :: else
            fi;
            if
            :: IS_OF(me, m) && !AM_SECOND(me, m) -> WORD(READY, ROLE(me, m), m) = number[m]
            :: else
            fi;
            m++
        :: else -> m = first; break
        od;
        started[me] = last + 1
    }
}

/* One lane for all peers: first moves the messages of the peer with the highest number. */
inline run_one_lane()
{
    p = RANKS;
    do
    :: p > 0 && m > last -> m = first; p--
    :: p > 0 && m <= last ->
        if
        :: IS_ON_LANE(me, p - 1, m) -> move(m)
        :: else
        fi;
        m++
    :: p == 0 -> break
    od
}

/* Waits for all lanes. */
inline join_lanes()
{
    do
    :: p < RANKS -> p == me || passed[me * RANKS + p] > last; p++
    :: else -> p = 0; break
    od
}

/* Waits for all messages that peers move. */
inline wait_for_done()
{
    do
    :: m <= last ->
        !IS_OF(me, m) || AM_SECOND(me, m) || WORD(DONE, 1 - ROLE(me, m), m) >= number[m];
        m++
    :: else -> m = first; break
    od
}

inline end_group()
{
    d_step {
        do
        :: m <= last ->
            if
            :: IS_OF(me, m) ->
                assert(copied[m]);
                open[m] = open[m] & ~(1 << ROLE(me, m))
            :: else
            fi;
            m++
        :: else -> m = 0; break
        od;
        first = last + 1;
        last = 0
    }
}

proctype stream(byte me)
{
    byte first, last, m, p;
    do
    :: first < CALLS ->
        atomic {
            find_last();
            begin_group()
        }
        atomic {
#ifdef ONE_LANE
            run_one_lane();
#else
            join_lanes();
#endif
#ifndef NO_DONE
            wait_for_done();
#endif
            end_group()
        }
    :: else -> break
    od
}

/* ---- programs */

inline draw_pair()
{
#if RANKS == 2
#ifdef BOTH
    if
    :: from[i] = 0; to[i] = 1
    :: from[i] = 1; to[i] = 0
    fi
#else
    from[i] = 0;
    to[i] = 1
#endif
#else
    if
    :: from[i] = 0
    :: i > 0 -> from[i] = 1 /* ranks are symmetric, so rank 0 sends the first message */
    :: i > 0 -> from[i] = 2
    fi;
    if
    :: to[i] = (from[i] + 1) % RANKS
    :: i > 0 -> to[i] = (from[i] + 2) % RANKS
    fi
#endif
}

inline draw_second()
{
#ifdef HOSTS
    second[i] = NONE
#else
    if
    :: second[i] = SENDER
    :: second[i] = RECEIVER
    fi
#endif
}

init {
    byte i, r, m, size;
    byte counts[PAIRS];
    atomic {
        do
        :: i < CALLS ->
            draw_pair();
            counts[PAIR(i)] = counts[PAIR(i)] + 1;
            number[i] = counts[PAIR(i)];
            draw_second();
            i++
        :: else -> i = 0; break
        od;
        do
        :: r < RANKS ->
            do
            :: i < CALLS ->
                if
                :: i == CALLS - 1 || IS_OF(r, i) -> ends[r * CALLS + i] = true; size = 0
                :: i < CALLS - 1 && !IS_OF(r, i) -> skip
                :: i < CALLS - 1 && IS_OF(r, i) && size < ENTRIES - 1 -> size++
                fi;
                i++
            :: else -> i = 0; size = 0; break
            od;
            r++
        :: else -> r = 0; break
        od;
        do
        :: r < RANKS ->
#ifdef HOSTS
            run host(r);
#else
            run stream(r);
#ifndef ONE_LANE
            i = 0;
            do
            :: i < RANKS ->
                if
                :: i != r ->
                    m = 0;
                    pass_others(r, i);
                    if
                    :: m < CALLS -> run lane(r, i, m)
                    :: else
                    fi
                :: else
                fi;
                i++
            :: else -> i = 0; break
            od;
#endif
#endif
            r++
        :: else -> break
        od
    }
}
