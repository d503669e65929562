/* The life of cecl's communicator beside one of NCCL (src/nccl/life.h, comms.c, begin.c), for
 * Spin; below, "ours" is cecl's communicator. One word has the state, the number of threads
 * inside, and the claim on the end of NCCL's communicator. A maker makes ours in the background.
 * Each thread of the program makes CALLS calls of its choice: a collective, finalize, destroy,
 * abort or revoke. After the end, another communicator gets the entry.
 *
 * Checked: no deadlock; no thread uses ours, or NCCL's communicator, after its end; ours ends
 * once, and before NCCL's; one call ends NCCL's; when a call that ends ours returns, ours has
 * ended; calls on the first communicator do not change the second one.
 *
 * With FOREVER no peer makes its calls, so calls end only when ours is made to fail; with STUCK
 * no collective ends at all. In both cases another thread aborts at some time.
 *
 * Planted faults: TWO_STEPS looks at the state before it goes inside; NO_DOOR ends ours while
 * threads are inside; READ_TWICE reads again whether all threads are out after the wait has
 * ended; NO_FAILURE does not make ours fail; STORED_READY ends finalizing in any state;
 * NO_GIVING_UP does not wait for the maker; NO_CLAIM lets destroy end NCCL's in any case;
 * LEAVE_FIRST leaves before it claims; KEEP_MADE does not end a communicator that the maker made
 * too late; LATE_RETIRE removes the entry from the table after it is free; NO_LOCK does not hold
 * the lock from finding an entry to its step. */
#ifndef RANKS
#define RANKS 2 /* threads of the program */
#endif
#ifndef CALLS
#define CALLS 1
#endif

#define FREE 0
#define MAKING 1
#define READY 2
#define FINALIZING 3
#define DESTROYING 4
#define ENDING 5
#define GIVING_UP 6
#define GIVEN_UP 7
#define LOST 8
#define SET(s) (1 << (s))
#define MADE (SET(READY) | SET(FINALIZING) | SET(DESTROYING))
#define EARLY (SET(MAKING) | SET(GIVING_UP) | SET(GIVEN_UP) | SET(FINALIZING))
#define IS(states) (((states) >> state) & 1)

/* The word of an entry: state, threads inside, and claim. */
byte state = MAKING;
byte inside;
bool claim;

byte found = 1; /* the communicator by which the entry is found; 0: none */
byte owner = 1; /* which communicator has the entry */

#define NONE 0
#define LIVES 1
#define ENDED 2
byte ours = NONE;
bool has_failed; /* ours has failed */
bool nccl_ended;
bool was_claimed; /* a call will end NCCL's communicator, or has ended it */
bool uses_nccl;   /* the maker uses NCCL's communicator */
byte users;       /* users of ours */

/* ---- the word */

inline go(from, to, did)
{
    d_step {
        did = state == from;
        if
        :: did -> state = to
        :: else
        fi
    }
}

/* Goes inside the entry that was found for the first communicator. */
inline enter(states, did)
{
#ifdef TWO_STEPS
    did = IS(states);
    if
    :: did -> inside++
    :: else
    fi
#else
    d_step {
        did = IS(states);
        inside++
    }
    if
    :: !did || found != 1 -> inside--; did = false
    :: else
    fi
#endif
}

inline leave()
{
    assert(inside > 0);
    inside--
}

inline claims(did)
{
    d_step {
        did = !claim;
        claim = true;
        was_claimed = was_claimed || did;
        assert(owner == 1) /* the second communicator is unchanged */
    }
}

/* ---- ours and NCCL's communicator */

#ifdef FOREVER
#define PEERS_COME has_failed
#else
#define PEERS_COME true
#endif

inline begin_use()
{
    assert(ours == LIVES); /* used */
    users++
}
inline end_use()
{
    assert(ours == LIVES); /* used */
    users--
}

inline finalize_ours()
{
    begin_use();
    PEERS_COME;
    end_use()
}

inline end_of_ours()
{
    d_step {
        assert(ours == LIVES && users == 0); /* ended */
        ours = ENDED
    }
}

/* If ours was given up, its maker ends it. */
#define HAS_ENDED (ours != LIVES || state == GIVEN_UP || state == LOST)
inline end_nccl()
{
    d_step {
        assert(!nccl_ended); /* ended twice */
        assert(!uses_nccl && HAS_ENDED); /* ended early */
        nccl_ended = true
    }
}

/* ---- the table. Each atomic step holds its lock. */

inline retire(from, to, did)
{
#ifdef LATE_RETIRE
    go(from, to, did);
    if
    :: did -> found = 0
    :: else
    fi
#else
    d_step {
        did = state == from;
        if
        :: did -> state = to; found = 0
        :: else
        fi
    }
#endif
}

/* ---- the maker */

active proctype maker()
{
    bool stepped, was_in;
    byte uses;
    do
    :: uses < 2 ->
        enter(SET(MAKING), was_in);
        if
        :: was_in ->
            assert(!nccl_ended);
            uses_nccl = true;
            assert(!nccl_ended);
            uses_nccl = false;
            leave();
            uses++
        :: else -> break
        fi
    :: else -> break
    od;
    if
    :: was_in -> ours = LIVES
    :: else
    fi;
    go(MAKING, READY, stepped);
    if
    :: !stepped -> go(GIVING_UP, ENDING, stepped)
    :: else
    fi;
    if
    :: stepped
    :: else ->
        if
#ifdef KEEP_MADE
        :: true
#else
        :: ours == LIVES -> end_of_ours()
        :: else
#endif
        fi;
        retire(GIVEN_UP, FREE, stepped);
        assert(stepped)
    fi
}

/* ---- the end */

/* Run by the thread that changed the state to ENDING. */
inline end_ours(destroys)
{
    if
#ifdef NO_DOOR
    :: true -> is_out = true
#else
    :: inside == 0 -> is_out = true
    :: timeout && inside > 0 -> is_out = false
#endif
    fi;
#ifdef READ_TWICE
    is_out = inside == 0;
#endif
#ifndef STUCK
    assert(is_out);
#endif
    if
    :: is_out && ours == LIVES -> end_of_ours()
    :: else
    fi;
    is_mine = false;
    if
    :: destroys -> claims(is_mine)
    :: else
    fi;
    if
    :: is_out -> retire(ENDING, FREE, stepped)
    :: else -> retire(ENDING, LOST, stepped)
    fi;
    assert(stepped)
}

inline begin_abort()
{
    if
    :: state == MAKING -> state = GIVING_UP; is_first = true
    :: IS(MADE) -> state = ENDING; is_first = true
    :: else -> is_first = false
    fi;
    assert(!is_first || owner == 1) /* the second communicator is unchanged */
}

inline abort_it(and_nccl)
{
#ifdef NO_LOCK
    is_there = found == 1;
    atomic {
#else
    atomic {
        is_there = found == 1;
#endif
        is_mine = !is_there && and_nccl && !was_claimed;
        is_first = false;
        if
        :: is_there && and_nccl -> claims(is_mine)
        :: else
        fi;
        if
        :: is_there -> begin_abort()
        :: else
        fi;
        was_claimed = was_claimed || is_mine
    }
    gives_up = false;
    if
    :: is_first && state == GIVING_UP ->
#ifndef NO_GIVING_UP
        (inside == 0 || state != GIVING_UP);
#endif
        retire(GIVING_UP, GIVEN_UP, gives_up)
    :: else
    fi;
    if
    :: is_there && !is_first -> found != 1
    :: is_first && !gives_up ->
        if
#ifndef NO_FAILURE
        :: inside > 0 && ours == LIVES -> has_failed = true
#endif
        :: else
        fi;
        keep = is_mine;
        end_ours(false);
        is_mine = keep
    :: else
    fi
}

inline destroy_inside()
{
    do
    :: atomic { state == READY -> state = DESTROYING; is_first = true; break }
    :: atomic { !IS(SET(READY) | SET(FINALIZING)) -> is_first = false; break }
    od;
    if
    :: is_first ->
        (inside == 1 || state != DESTROYING);
        if
        :: state == DESTROYING -> finalize_ours()
        :: else
        fi;
        go(DESTROYING, ENDING, is_first)
    :: else
    fi;
    is_mine = false;
#ifdef LEAVE_FIRST
    leave();
#endif
    if
    :: !is_first && state != DESTROYING -> claims(is_mine)
    :: else
    fi;
#ifndef LEAVE_FIRST
    leave();
#endif
    if
    :: is_first -> end_ours(true)
    :: else -> found != 1
    fi
}

inline destroy_it()
{
    atomic {
        is_there = found == 1;
        is_inside = false;
        is_mine = false;
        if
        :: !is_there -> is_mine = !was_claimed; was_claimed = true
        :: is_there && IS(MADE) -> inside++; is_inside = true
        :: else -> claims(is_mine)
        fi
    }
    if
    :: is_inside -> destroy_inside()
    :: !is_inside && is_there -> found != 1
    :: else
    fi
#ifdef NO_CLAIM
    ;
    is_mine = true
#endif
}

/* ---- the program */

proctype finalizer()
{
    bool stepped;
    finalize_ours();
#ifdef STORED_READY
    state = READY;
#else
    go(FINALIZING, READY, stepped);
#endif
    leave()
}

inline finalize_later()
{
    enter(MADE, is_inside);
    if
    :: is_inside ->
        go(READY, FINALIZING, stepped);
        if
        :: stepped -> run finalizer()
        :: else -> leave()
        fi
    :: else
    fi
}

inline collective()
{
    enter(MADE, is_inside);
    if
    :: is_inside ->
        begin_use();
#ifdef STUCK
end_stuck:
        false;
#endif
        PEERS_COME;
        end_use();
        leave()
    :: else
    fi
}

inline after_an_end()
{
    assert(HAS_ENDED); /* ours has ended by now */
    if
    :: is_mine -> end_nccl()
    :: else
    fi
}

proctype thread()
{
    byte calls;
    bool stepped, is_first, is_mine, is_out, is_there, is_inside, gives_up, keep;
    do
    :: calls < CALLS ->
        calls++;
        is_mine = false;
        if
        :: !IS(EARLY) -> collective()
        :: !IS(EARLY) -> finalize_later()
        :: !IS(EARLY) -> destroy_it(); after_an_end()
        :: abort_it(true); after_an_end()
        :: abort_it(false); after_an_end()
        fi
    :: else -> break
    od
}

#if defined(FOREVER) || defined(STUCK)
active proctype rescuer()
{
    bool stepped, is_first, is_mine, is_out, is_there, gives_up, keep;
    (state != MAKING);
    abort_it(true);
    after_an_end()
}
#endif

/* Another communicator, whose life is not modelled. */
active proctype second()
{
    bool left_alone = true;
end_never:
    atomic {
        state == FREE -> state = READY; claim = false; owner = 2; found = 2
    }
end_alone:
    (state != READY || found != 2 || claim);
    left_alone = false;
    assert(left_alone)
}

init {
    byte t = 0;
    atomic {
        do
        :: t < RANKS -> run thread(); t++
        :: else -> break
        od
    }
}
