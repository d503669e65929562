/* Groups on two communicators (src/launch/group.c, src/launch/make.c, src/ce/run.c), for Spin.
 * The calls of a group on one communicator are one plan, so here they are one call. A thread
 * first announces the calls of all communicators, then reads what peers have announced, then
 * issues all calls. Each rank has STREAMS streams. Spin tries all groups, of one communicator or
 * both, and all choices of streams.
 *
 * Checked: no deadlock, so every call ends; the calls of a communicator run one after the other
 * on each rank; an announced call is issued, unless its communicator has failed.
 *
 * COUNTED: more ranks than bits, where all ranks wait for all. ONE_THREAD: one thread has all
 * ranks. OWN_STREAMS: each communicator has its own stream. ANY_ORDER: each rank has its own
 * order of communicators in a group. COMPARED: ranks compare a group on all its communicators
 * before they announce it (CECL_CHECK). FAILURE: an error occurs after a call was announced.
 *
 * Planted faults: NO_FOLLOW does not wait for the last call, which is on another stream;
 * TELL_AND_LEARN reads the announcements of a communicator before it announces on the next;
 * IN_TURN compares on one communicator after the other; NO_BREAK fails only the communicator
 * whose call cannot be made. */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef CALLS
#define CALLS 2 /* number of groups */
#endif
#ifndef STREAMS
#define STREAMS 2
#endif
#define COMMS 2
#define ENTRIES 1 /* length of the ring in which places are announced */
#define ALL ((1 << RANKS) - 1)
#define OF(comm, rank) ((comm) * RANKS + (rank))
#define QUEUE(rank, stream) ((rank) * STREAMS + (stream))

bool is_in[CALLS * COMMS]; /* the group has a call on the communicator */

/* By communicator and rank: the latest call that the rank has announced, has finished reading, or
 * has begun, and the word `done`. */
byte compared[COMMS * RANKS]; /* how many groups the rank has begun to compare */
byte told[COMMS * RANKS];
byte finished[COMMS * RANKS];
byte begun[COMMS * RANKS];
byte done[COMMS * RANKS];
bool owes[COMMS * RANKS]; /* an announced call is not issued */
bool failed[COMMS];
bool has_failed; /* the error happens once */

chan queue[RANKS * STREAMS] = [CALLS * COMMS] of { byte, byte }; /* communicator, call */

#if RANKS == 2
#define ALL_HAVE(word, comm, least) (word[OF(comm, 0)] >= (least) && word[OF(comm, 1)] >= (least))
#else
#define ALL_HAVE(word, comm, least)                                                                \
    (word[OF(comm, 0)] >= (least) && word[OF(comm, 1)] >= (least) && word[OF(comm, 2)] >= (least))
#endif

/* Each communicator of a group has a thread, so a rank begins the comparison on all of them
 * before it waits. */
inline compare()
{
    compared[OF(comm, rank)]++;
#ifdef IN_TURN
    agree()
#endif
}

inline agree()
{
    ALL_HAVE(compared, comm, compared[OF(comm, rank)])
}

/* Waits for room in the ring. */
inline tell()
{
    atomic {
        told[OF(comm, rank)] < ENTRIES || failed[comm] ||
            ALL_HAVE(finished, comm, told[OF(comm, rank)] + 1 - ENTRIES);
        told[OF(comm, rank)]++;
        owes[OF(comm, rank)] = true
    }
}

/* A rank waits a short time for others, and then goes on. */
inline learn()
{
    atomic {
#ifdef COUNTED
        ALL_HAVE(told, comm, told[OF(comm, rank)]) || failed[comm];
#endif
        finished[OF(comm, rank)] = told[OF(comm, rank)]
    }
}

inline issue()
{
    atomic {
#ifdef OWN_STREAMS
        stream = comm;
#else
        select (stream : 0 .. STREAMS - 1);
#endif
        queue[QUEUE(rank, stream)]!comm, told[OF(comm, rank)];
        owes[OF(comm, rank)] = false;
        stream = 0
    }
}

/* The communicator of an announced call that is not issued fails. */
inline refuse()
{
    d_step {
        has_failed = true;
        failed[comm] = true;
        i = 0;
        do
        :: i < COMMS * RANKS ->
            if
#ifndef NO_BREAK
            :: owes[i] && i % RANKS >= from && i % RANKS <= to -> failed[i / RANKS] = true
#endif
            :: else
            fi;
            i++
        :: else -> break
        od;
        i = 0
    }
}

/* The n-th communicator in this thread's order. */
#define NTH(n) (other_order -> COMMS - 1 - (n) : (n))

#define COMPARE 0
#define AGREE 1
#define TELL 2
#define LEARN 3
#define ISSUE 4
#define STAGES 5
#ifdef COMPARED
#define FIRST COMPARE
#else
#define FIRST TELL
#endif

inline carry_out()
{
    if
    :: stage == COMPARE -> compare()
    :: stage == AGREE -> agree()
#ifdef TELL_AND_LEARN
    :: stage == TELL -> tell(); learn()
    :: stage == LEARN
#else
    :: stage == TELL -> tell()
    :: stage == LEARN -> learn()
#endif
    :: stage == ISSUE -> issue()
    fi
}

#ifdef FAILURE
#define MAY_FAIL (stage > TELL && !has_failed)
#else
#define MAY_FAIL false
#endif

proctype thread(byte from; byte to)
{
    byte group, stage = FIRST, n, comm, rank, stream, i;
    bool stop, other_order;
    do
    :: atomic {
            group < CALLS && !stop ->
#ifdef ANY_ORDER
                if
                :: other_order = true
                :: other_order = false
                fi;
#endif
                rank = from
        }
        do
        :: atomic {
                stage < STAGES && !stop ->
                    comm = NTH(n);
                    if
                    :: is_in[group * COMMS + comm] ->
                        if
                        :: MAY_FAIL -> refuse(); stop = true
                        :: true -> carry_out()
                        fi
                    :: else
                    fi;
                    rank++; /* the next rank, communicator, stage */
                    if
                    :: rank > to -> rank = from; n++
                    :: else
                    fi;
                    if
                    :: n == COMMS -> n = 0; stage++
                    :: else
                    fi
            }
        :: stage == STAGES || stop -> break
        od;
        atomic {
            stage = FIRST;
            n = 0;
            rank = 0;
            comm = 0;
            group++
        }
    :: group == CALLS || stop -> break
    od
}

/* A call begins after the last call of its communicator, and ends once all ranks have begun it. */
proctype stream(byte me; byte number)
{
    byte comm, call;
end:
    do
    :: atomic {
            queue[QUEUE(me, number)]?comm, call;
#ifndef NO_FOLLOW
            done[OF(comm, me)] == call - 1 || failed[comm];
#endif
            assert(done[OF(comm, me)] == call - 1 || failed[comm]);
            begun[OF(comm, me)] = call
        }
        d_step {
            ALL_HAVE(begun, comm, call) || failed[comm];
            done[OF(comm, me)] = call;
            comm = 0;
            call = 0
        }
    od
}

/* At the end each announced call is done, unless its communicator has failed. */
proctype monitor()
{
    byte comm, rank;
    timeout;
    do
    :: comm < COMMS ->
        rank = 0;
        do
        :: rank < RANKS ->
            assert(failed[comm] || done[OF(comm, rank)] == told[OF(comm, rank)]);
            rank++
        :: else -> break
        od;
        comm++
    :: else -> break
    od
}

init {
    byte i, r, s;
    atomic {
        do
        :: i < CALLS ->
            if
            :: is_in[i * COMMS] = true
            :: is_in[i * COMMS + 1] = true
            :: is_in[i * COMMS] = true; is_in[i * COMMS + 1] = true
            fi;
            i++
        :: else -> i = 0; break
        od;
        do
        :: r < RANKS ->
#ifndef ONE_THREAD
            run thread(r, r);
#endif
            s = 0;
            do
            :: s < STREAMS -> run stream(r, s); s++
            :: else -> break
            od;
            r++
        :: else -> break
        od;
#ifdef ONE_THREAD
        run thread(0, RANKS - 1);
#endif
        run monitor()
    }
}
