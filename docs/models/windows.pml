/* How windows of registered memory are opened and closed (src/alloc/registry.c, registry_peers.c,
 * registry_import.c, and registry_settle.c, src/api/register.c), for Spin. Each rank has a caller,
 * a worker, and a stream that carries out the rank's calls in order. A rank's memory is one range
 * of addresses with PIECES regions. In each call the rank's buffer is in one of these regions.
 * Before a call the program may map other memory at the addresses of a region that no pending call
 * uses, register a region, or deregister the window.
 *
 * The model assumes what places.pml and the verifier show: of each pair of ranks the later one
 * knows both places, and a call ends after all copies of the call.
 *
 * In the library callers close imports when the GPU is idle, and open handles that they need. If
 * memory cannot be opened before other memory is closed, the call that needs the memory does both.
 * In the model the worker opens and closes imports, and closes at any moment. If it must close some
 * before it opens memory, later messages wait.
 *
 * Checked: each copy goes through an open import, to the memory that its owner meant by the call; a
 * window that a call names exists; all waits end, also when a rank dies or an import fails; dropped
 * windows are closed in the end; no allocation is opened while an import holds its addresses.
 *
 * OWNERS: this many ranks have registered memory, and the others' buffers are in the pool. PIECES
 * 1: an allocation that peers open by its handle. DEATH: a rank may die. FAILURES: an import may
 * fail. CLOSE_AT_ONCE: a peer closes dropped imports without checking its own calls.
 *
 * Planted faults: SAME_NUMBER reuses a number; NO_IDS does not compare ids; NO_WAIT copies before
 * the region is imported; EARLY_DROP tells peers to drop a window that pending calls use;
 * NO_LATER_DROP never tells peers to drop such a window; LATE_DROP tells them only after the next
 * window was announced; NO_SWEEP closes nothing; FORGET_FAILED does not record that an import
 * failed; NO_END continues the wait for imports after the communicator has failed, and POST_NO_END
 * continues the wait for room to post. */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef CALLS
#define CALLS 3
#endif
#ifndef OWNERS
#define OWNERS RANKS
#endif
#ifndef PIECES
#define PIECES 2
#endif
#ifndef CHANGES
#define CHANGES 2 /* how often a rank's program changes its memory; at most 3 */
#endif
#define WINDOWS (CHANGES + 2) /* a rank makes fewer windows; windows are numbered from 1 */

#define ALL ((1 << RANKS) - 1)
#define ADD 1
#define DROP 2

#define REGION(rank, piece) ((rank) * PIECES + (piece))
#define TOLD(call, rank) ((call) * RANKS + (rank))
#define PAIR(me, peer) ((me) * RANKS + (peer))
#define LEAVING(rank, number) ((rank) * WINDOWS + (number))
#define IMPORT(me, peer, which) (PAIR(me, peer) * WINDOWS + (which))
#define THROUGH(call, me, peer) through[TOLD(call, me) * RANKS + (peer)]
#define MIRROR(me, peer, which, piece) (IMPORT(me, peer, which) * PIECES + (piece))
#define KEPT(me, peer, number, piece) kept[IMPORT(me, peer, number) * PIECES + (piece)]
#define IS_OPEN(me, peer, number, piece)                                                           \
    (import_of[IMPORT(me, peer, number)] != 0 &&                                                   \
     mirror[MIRROR(me, peer, import_of[IMPORT(me, peer, number)] - 1, piece)] != 0)
#define HAS_FAILED(me, peer, number)                                                               \
    (import_of[IMPORT(me, peer, number)] != 0 &&                                                   \
     failed_import[IMPORT(me, peer, import_of[IMPORT(me, peer, number)] - 1)])

#ifdef DEATH
#define MAY_DIE                                                                                    \
    if                                                                                             \
    :: !somebody_died -> goto death                                                                \
    :: true                                                                                        \
    fi
#else
#define MAY_DIE skip
#endif

/* The program's memory, by region: its id, which is never reused, and the last call that uses it. */
byte there[RANKS * PIECES];
byte busy[RANKS * PIECES];

/* A rank's own window. Number 0: no window. Id 0 of a region: peers do not know the region. */
byte number[RANKS];
byte region[RANKS * PIECES];
byte last_use[RANKS];
byte next_number[RANKS];
byte posted[RANKS];
byte leaving[RANKS * WINDOWS]; /* the last call that uses the window: then it is dropped; 0: it stays */

/* A rank's announcement of a call. `meant` is the id of the memory that the rank means. */
byte window[(CALLS + 1) * RANKS];
byte piece[(CALLS + 1) * RANKS];
byte meant[(CALLS + 1) * RANKS];
byte version[(CALLS + 1) * RANKS];
byte arrived[CALLS + 1]; /* the set of ranks that have announced the call */
bool late[CALLS + 1];    /* the decision was not to wait for all */

/* Imports, in the order in which they are made. A kept plan holds the import, not the number. */
byte imports[RANKS * RANKS];
byte import_number[RANKS * RANKS * WINDOWS];
/* the id of the memory at these addresses; 0: none */
byte mirror[RANKS * RANKS * WINDOWS * PIECES];
bool dropped[RANKS * RANKS * WINDOWS];
bool closed[RANKS * RANKS * WINDOWS];
byte import_use[RANKS * RANKS * WINDOWS];
byte import_of[RANKS * RANKS * WINDOWS]; /* 1 + the latest import with the number */
bool failed_import[RANKS * RANKS * WINDOWS];
byte taken[RANKS * RANKS];
byte kept[RANKS * RANKS * WINDOWS * PIECES]; /* 1 + the import to which the kept plan copies */

/* The imports through which a rank's stream copies: 1 + import, 0: no copy. */
byte through[(CALLS + 1) * RANKS * RANKS];
byte enqueued[RANKS];
byte begun[RANKS];
byte copied[RANKS];
byte done[RANKS];

bool failed[RANKS]; /* the rank's communicator */
bool dead[RANKS];
bool ended[RANKS]; /* the rank's caller */
bool an_import_failed, somebody_died; /* each happens at most once */

/* From each rank to each other rank. */
chan messages[RANKS * RANKS] = [1] of { byte, byte, byte, byte, byte };

/* ---- the caller: this rank's own windows */

/* Posts a message to each peer. The wait for room ends if the peer dies or the
 * communicator fails. */
inline post(kind, which, what)
{
    posted[me]++;
    p = 0;
    do
    :: p == RANKS || stop -> break
    :: p == me -> p++
    :: p < RANKS && p != me && !stop ->
        if
        :: messages[PAIR(me, p)]!kind, which, what, region[REGION(me, what)], posted[me]
#ifndef POST_NO_END
        :: dead[p] || failed[me] -> stop = true
#endif
        fi;
        p++
    od;
    p = 0
}

inline forget()
{
    gone = number[me];
    d_step {
        number[me] = 0;
        what = 0;
        do
        :: what < PIECES -> region[REGION(me, what)] = 0; what++
        :: else -> what = 0; break
        od
    }
    if
#ifndef EARLY_DROP
    :: last_use[me] > done[me] -> leaving[LEAVING(me, gone)] = last_use[me]
#endif
#ifndef LATE_DROP
    :: else -> post(DROP, gone, 0)
#else
    :: else -> leaving[LEAVING(me, gone)] = 1
#endif
    fi;
    last_use[me] = 0;
    gone = 0
}

#ifdef NO_LATER_DROP
#define MAY_TELL(which) false
#else
#define MAY_TELL(which)                                                                            \
    (leaving[LEAVING(me, which)] != 0 && leaving[LEAVING(me, which)] <= done[me])
#endif
inline tell_left()
{
    w = 1;
    do
    :: w < WINDOWS && MAY_TELL(w) -> leaving[LEAVING(me, w)] = 0; post(DROP, w, 0); w++
    :: w < WINDOWS && !MAY_TELL(w) -> w++
    :: w == WINDOWS -> w = 0; break
    od
}

/* Makes sure that peers know the memory that is mapped at this moment. */
inline settle(which)
{
    tell_left();
    if
#ifndef NO_IDS
    :: !stop && region[REGION(me, which)] != 0 &&
       region[REGION(me, which)] != there[REGION(me, which)] ->
        forget()
#endif
    :: else
    fi;
    if
    :: !stop && number[me] == 0 ->
        d_step {
            next_number[me]++;
#ifdef SAME_NUMBER
            number[me] = 1
#else
            number[me] = next_number[me]
#endif
        }
    :: else
    fi;
    if
    :: !stop && region[REGION(me, which)] == 0 ->
        region[REGION(me, which)] = there[REGION(me, which)];
        post(ADD, number[me], which)
    :: else
    fi
}

/* ---- the caller: the program, and a call */

inline select_piece()
{
    if
    :: q = 0
    :: PIECES == 2 && number[me] != 0 -> q = 1 /* before the first window, both pieces are equivalent */
    fi
}

/* The program's next step: it makes a call, or changes something first. It changes no memory that
 * a pending call uses. */
inline program()
{
    select_piece();
    if
    :: calls = true
    :: changes < CHANGES ->
        changes++;
        if
        :: region[REGION(me, q)] != 0 && busy[REGION(me, q)] <= done[me] ->
            newest++; /* frees the memory, and gets the address again */
            there[REGION(me, q)] = newest
        :: region[REGION(me, q)] != there[REGION(me, q)] -> registers = true
        :: number[me] != 0 && last_use[me] <= done[me] -> forget() /* deregisters the window */
        fi
    fi
}

inline tell()
{
    d_step {
        window[TOLD(call, me)] = number[me];
        piece[TOLD(call, me)] = q;
        meant[TOLD(call, me)] = there[REGION(me, q)];
        version[TOLD(call, me)] = posted[me];
        busy[REGION(me, q)] = call;
        earlier = arrived[call];
        arrived[call] = arrived[call] | (1 << me)
    }
}

/* Decides LATE, or finds that all ranks have announced the call. */
inline meet()
{
    atomic {
        if
        :: arrived[call] == ALL && !late[call] -> earlier = ALL
        :: arrived[call] != ALL -> late[call] = true
        :: late[call]
        fi
    }
}

/* Sets `i` to the open import of window `which`, or else to the index of the next import. */
inline find(peer, which)
{
    i = 0;
    do
    :: i < imports[PAIR(me, peer)] &&
       (import_number[IMPORT(me, peer, i)] != which || closed[IMPORT(me, peer, i)]) -> i++
    :: else -> break
    od
}

/* Finds a peer's window, and waits until the region that the peer announced is imported. For a kept
 * plan this was done before. A failed import fails the call. */
inline learn(peer)
{
    d_step {
        w = window[TOLD(call, peer)];
        what = piece[TOLD(call, peer)]
    }
#ifndef NO_WAIT
    if
    :: KEPT(me, peer, w, what) != 0
    :: KEPT(me, peer, w, what) == 0 && IS_OPEN(me, peer, w, what)
    :: KEPT(me, peer, w, what) == 0 && !IS_OPEN(me, peer, w, what) &&
       HAS_FAILED(me, peer, w) ->
        failed[me] = true;
        stop = true
    :: KEPT(me, peer, w, what) == 0 && !IS_OPEN(me, peer, w, what) &&
       !HAS_FAILED(me, peer, w) && taken[PAIR(me, peer)] >= version[TOLD(call, peer)] ->
        window_is_known = false;
        assert(window_is_known)
#ifndef NO_END
    :: KEPT(me, peer, w, what) == 0 && !IS_OPEN(me, peer, w, what) && failed[me] -> stop = true
#endif
    fi;
#endif
    if
    :: !stop ->
        d_step {
            i = KEPT(me, peer, w, what);
            if
            :: i == 0 ->
                i = import_of[IMPORT(me, peer, w)];
                window_is_known = (i != 0);
                assert(window_is_known);
                KEPT(me, peer, w, what) = i
            :: else
            fi;
            THROUGH(call, me, peer) = i;
            used[peer] = i;
            i = 0
        }
    :: stop
    fi;
    d_step {
        w = 0;
        what = 0
    }
}

/* Records that the call, which was enqueued, uses its windows. */
inline note_use()
{
    d_step {
        last_use[me] = (number[me] != 0 -> call : 0);
        p = 0;
        do
        :: p < RANKS ->
            if
            :: used[p] != 0 && !closed[IMPORT(me, p, used[p] - 1)] ->
                import_use[IMPORT(me, p, used[p] - 1)] = call
            :: else
            fi;
            used[p] = 0;
            p++
        :: else -> p = 0; break
        od
    }
}

proctype caller(byte me)
{
    byte call = 1, p, q, w, i, what, gone, earlier, changes, newest = PIECES, used[RANKS];
    bool stop, calls, registers, window_is_known;
    do
    :: call <= CALLS && !stop && !failed[me] ->
        do
        :: atomic {
                if
                :: me < OWNERS -> program()
                :: else -> calls = true
                fi;
                if
                :: me < OWNERS && (calls || registers) -> settle(q)
                :: else
                fi;
                if
                :: calls && !stop -> tell()
                :: else
                fi;
                registers = false;
                if
                :: calls || stop -> calls = false; break
                :: else -> q = 0
                fi
            }
        od;
        if
        :: stop -> break
        :: else
        fi;
        MAY_DIE;
        meet();
        do
        :: p < OWNERS && p != me && ((earlier >> p) & 1) && !stop -> learn(p); p++
        :: p < OWNERS && !(p != me && ((earlier >> p) & 1)) && !stop -> p++
        :: p == OWNERS || stop -> break
        od;
        p = 0;
        if
        :: !stop -> enqueued[me] = call; note_use()
        :: else -> failed[me] = true /* peers learn of the failure */
        fi;
        atomic {
            q = 0;
            earlier = 0;
            call++
        }
        MAY_DIE
    :: call > CALLS || stop || failed[me] -> break
    od;
    atomic {
        done[me] == CALLS || failed[me] || stop;
        if
        :: !stop && !failed[me] -> tell_left() /* in the library the next call does so */
        :: else
        fi;
        ended[me] = true
    }
    goto end;
death:
    skip;
    d_step {
        somebody_died = true;
        dead[me] = true;
        call = 0;
        q = 0;
        earlier = 0;
        changes = 0;
        newest = 0
    }
end:
    skip
}

/* ---- the worker: imports */

#ifdef CLOSE_AT_ONCE
#define UNUSED(me, peer, which) true
#else
#define UNUSED(me, peer, which) (import_use[IMPORT(me, peer, which)] <= done[me])
#endif
#ifdef NO_SWEEP
#define MAY_CLOSE(me, peer, which) false
#else
#define MAY_CLOSE(me, peer, which)                                                                 \
    (which <= CHANGES && dropped[IMPORT(me, peer, which)] &&                                       \
     !closed[IMPORT(me, peer, which)] && UNUSED(me, peer, which))
#endif

inline close(peer, which)
{
    closed[IMPORT(me, peer, which)] = true;
    dropped[IMPORT(me, peer, which)] = false;
    import_use[IMPORT(me, peer, which)] = 0;
    mirror[MIRROR(me, peer, which, 0)] = 0;
    mirror[MIRROR(me, peer, which, PIECES - 1)] = 0
}

/* Closes dropped imports, each once no call uses it. In the library the wait is bounded, and the
 * import fails at its limit. */
inline make_way(peer)
{
    j = 0;
    do
    :: j < imports[PAIR(me, peer)] && MAY_CLOSE(me, peer, j) -> close(peer, j)
    :: j < imports[PAIR(me, peer)] && closed[IMPORT(me, peer, j)] -> j++
    :: j < imports[PAIR(me, peer)] && !closed[IMPORT(me, peer, j)] && !MAY_CLOSE(me, peer, j) ->
        assert(dropped[IMPORT(me, peer, j)]); /* an import that is not dropped is never closed */
        MAY_CLOSE(me, peer, j) || failed[me]
    :: failed[me] -> break
    :: j == imports[PAIR(me, peer)] -> break
    od;
    j = 0
}

inline add(peer)
{
    d_step { find(peer, which) }
    if
    :: i == imports[PAIR(me, peer)] ->
#if PIECES == 1
        make_way(peer);
#endif
        d_step {
            import_number[IMPORT(me, peer, i)] = which;
            import_of[IMPORT(me, peer, which)] = i + 1;
            imports[PAIR(me, peer)]++
        }
    :: else
    fi;
    if
    :: !failed_import[IMPORT(me, peer, i)] -> mirror[MIRROR(me, peer, i, what)] = id
    :: failed_import[IMPORT(me, peer, i)]
#ifdef FAILURES
    :: !an_import_failed ->
        an_import_failed = true;
#ifndef FORGET_FAILED
        failed_import[IMPORT(me, peer, i)] = true
#endif
#endif
    fi
}

inline drop(peer)
{
    d_step {
        find(peer, which);
        if
        :: i < imports[PAIR(me, peer)] -> dropped[IMPORT(me, peer, i)] = true
        :: else
        fi
    }
}

inline carry_out(peer)
{
    if
    :: kind == ADD -> add(peer)
    :: kind == DROP -> drop(peer)
    fi;
    d_step {
        taken[PAIR(me, peer)] = count;
        i = 0;
        kind = 0;
        which = 0;
        what = 0;
        id = 0;
        count = 0
    }
}

#define IS_ALIVE (!failed[me] && !dead[me])

/* A process for each peer, so that Spin tries all orders. */
proctype worker(byte me; byte peer)
{
    byte kind, which, what, id, count, i, j;
end:
    do
    :: atomic {
            IS_ALIVE && nempty(messages[PAIR(peer, me)]) ->
                messages[PAIR(peer, me)]?kind, which, what, id, count;
                carry_out(peer)
        }
    :: d_step { IS_ALIVE && MAY_CLOSE(me, peer, 0) -> close(peer, 0) }
    :: d_step { IS_ALIVE && MAY_CLOSE(me, peer, 1) -> close(peer, 1) }
    :: d_step { IS_ALIVE && MAY_CLOSE(me, peer, 2) -> close(peer, 2) }
    :: d_step { IS_ALIVE && MAY_CLOSE(me, peer, 3) -> close(peer, 3) }
    :: d_step { IS_ALIVE && (failed[peer] || dead[peer]) -> failed[me] = true }
    od
}

/* ---- the stream */

#if RANKS == 2
#define ALL_REACHED(words) (words[0] >= call && words[1] >= call)
#else
#define ALL_REACHED(words) (words[0] >= call && words[1] >= call && words[2] >= call)
#endif

/* Once the communicator has failed, waits end, and enqueued work continues. A dead rank's stream
 * makes no more steps. */
proctype stream(byte me)
{
    byte call = 1, p;
end:
    do
    :: d_step { call <= CALLS && enqueued[me] >= call && !dead[me] -> begun[me] = call }
end_begun:
        d_step {
            (ALL_REACHED(begun) || failed[me]) && !dead[me];
            do
            :: p < RANKS ->
                if
                :: THROUGH(call, me, p) != 0 ->
                    assert(!closed[IMPORT(me, p, THROUGH(call, me, p) - 1)]); /* open */
                    assert(mirror[MIRROR(me, p, THROUGH(call, me, p) - 1,
                                         piece[TOLD(call, p)])] == meant[TOLD(call, p)]);
                    THROUGH(call, me, p) = 0
                :: else
                fi;
                p++
            :: else -> p = 0; break
            od;
            copied[me] = call
        }
end_copied:
        d_step {
            (ALL_REACHED(copied) || failed[me]) && !dead[me];
            if
            :: ALL_REACHED(copied) -> /* no rank needs these any more */
                window[TOLD(call, me)] = 0;
                piece[TOLD(call, me)] = 0;
                meant[TOLD(call, me)] = 0;
                version[TOLD(call, me)] = 0
            :: else
            fi;
            done[me] = call;
            call++
        }
    od
}

/* ---- the end */

/* Runs when no other process can continue. Then every open import must be of a window that its
 * owner still has. */
proctype monitor()
{
    byte r, p, i;
    timeout;
    do
    :: r < RANKS ->
        assert(ended[r] || dead[r]);
        p = 0;
        do
        :: p < RANKS ->
            i = 0;
            do
            :: i < imports[PAIR(r, p)] ->
                assert(failed[r] || dead[r] || dead[p] ||
                       closed[IMPORT(r, p, i)] || import_number[IMPORT(r, p, i)] == number[p]);
                i++
            :: else -> break
            od;
            p++
        :: else -> break
        od;
        r++
    :: else -> break
    od
}

init {
    byte r, p;
    atomic {
        do
        :: r < RANKS ->
            p = 0;
            do
            :: p < PIECES -> there[REGION(r, p)] = p + 1; p++
            :: else -> break
            od;
            p = 0;
            do
            :: p < RANKS ->
                if
                :: p != r -> run worker(r, p)
                :: else
                fi;
                p++
            :: else -> break
            od;
            run caller(r);
            run stream(r);
            r++
        :: else -> break
        od;
        run monitor()
    }
}
