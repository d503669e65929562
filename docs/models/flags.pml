/* The flag protocol of cecl's collectives, for Spin: one flag word at each rank from each peer, written
 * by that peer alone, values that grow through all calls and wrap around. A call is: barrier, a write
 * into every peer, barrier. Between calls a rank uses its own buffer.
 *
 * Checked: no deadlock; no rank's buffer is written while its user uses it; after a call all of its
 * blocks are there.
 * Planted faults: NO_FIRST_BARRIER and NO_LAST_BARRIER leave out that barrier; EQUAL_ONLY waits for an
 * exact value instead of "at least". */
#ifndef RANKS
#define RANKS 3
#endif
#ifndef CALLS
#define CALLS 3
#endif
#define WRAP 16 /* epochs are counted modulo this; half of it is more than any rank can be ahead */

byte flag[RANKS * RANKS];  /* [holder * RANKS + writer] */
byte block[RANKS * RANKS]; /* [holder * RANKS + writer]: the call whose data is there */
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
    byte p, call = 1, epoch = WRAP - 3; /* the epochs wrap around on the way */
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
