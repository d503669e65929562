/* The flag protocol of cecl's collectives, for Spin: each rank has one flag word for each peer,
 * which only that peer writes. Values grow through all calls and wrap around. A call is a
 * barrier, a write into every peer, and a barrier. Between calls a rank uses its own buffer.
 *
 * Checked: no deadlock; no peer writes a rank's buffer while its user has it; after a call, all
 * its blocks have arrived.
 *
 * Planted faults: NO_FIRST_BARRIER and NO_LAST_BARRIER leave one barrier out; EQUAL_ONLY waits
 * for an exact value instead of "at least". */
#ifndef RANKS
#define RANKS 3
#endif
#ifndef CALLS
#define CALLS 3
#endif
#define WRAP 16 /* epochs are counted modulo this; half of this is more than any rank's lead */

byte flag[RANKS * RANKS];  /* [holder * RANKS + writer] */
byte block[RANKS * RANKS]; /* [holder * RANKS + writer]: the call whose data has arrived */
bool users[RANKS];         /* the user has the rank's buffer */

#ifdef EQUAL_ONLY
#define REACHED(have, want) ((have) == (want))
#else
#define REACHED(have, want) ((((have) + WRAP - (want)) % WRAP) < WRAP / 2)
#endif

inline barrier()
{
    epoch = (epoch + 1) % WRAP;
    p = 0;
    do
    :: p < RANKS ->
        if
        :: p != me -> flag[p * RANKS + me] = epoch
        :: else
        fi;
        p++
    :: else -> break
    od;
    p = 0;
    do
    :: p < RANKS ->
        if
        :: p != me -> REACHED(flag[me * RANKS + p], epoch)
        :: else
        fi;
        p++
    :: else -> break
    od
}

proctype rank(byte me)
{
    byte p, call = 1, epoch = WRAP - 3; /* the epochs wrap around during the run */
    do
    :: call <= CALLS ->
        users[me] = true;
        users[me] = false;
#ifndef NO_FIRST_BARRIER
        barrier();
#endif
        p = 0;
        do
        :: p < RANKS ->
            assert(p == me || !users[p]);
            block[p * RANKS + me] = call;
            p++
        :: else -> break
        od;
#ifndef NO_LAST_BARRIER
        barrier();
#endif
        p = 0;
        do
        :: p < RANKS -> assert(block[me * RANKS + p] == call); p++
        :: else -> break
        od;
        call++
    :: else -> break
    od
}

init {
    byte r = 0;
    atomic {
        do
        :: r < RANKS * RANKS -> flag[r] = WRAP - 3; r++
        :: else -> break
        od;
        r = 0;
        do
        :: r < RANKS -> run rank(r); r++
        :: else -> break
        od
    }
}
