/* The start of a request against closing a peer's memory, for Spin (alloc/registry_start.c,
 * registry_claim in alloc/registry_peers.c). A start takes no lock: it announces itself, and then
 * checks whether the memory is closed. A thread that closes the memory does so under a lock: it
 * marks the memory as closed, and then looks for starts.
 *
 * One thread makes CALLS starts, the stream runs them, and another thread tries to close the
 * memory.
 *
 * Checked: after the memory is closed, no start is enqueued, and none runs; a start is refused
 * only then.
 *
 * Planted faults: NO_RECHECK closes without looking for starts again; LOOK_FIRST checks whether
 * the memory is closed before it announces the start; EARLY_END withdraws the announcement before
 * it records what is pending; NO_LOCK treats a mark that is removed again as the end. */
#ifndef CALLS
#define CALLS 3
#endif

bool starting, closed, has_started, locked;
byte pending, enqueued, done;
bool is_open = true;
bool refused;

inline lock() { atomic { !locked -> locked = true } }
inline unlock() { locked = false }

/* closed_now: the memory is closed, and not only marked for a moment. */
inline look()
{
    closed_now = closed;
#ifndef NO_LOCK
    if
    :: closed_now -> lock(); closed_now = closed; unlock()
    :: else
    fi
#endif
}

active proctype starter()
{
    byte call = 0;
    bool closed_now;
    do
    :: call < CALLS && !refused ->
#ifdef LOOK_FIRST
        look();
        starting = true;
#else
        starting = true;
        look();
#endif
        if
        :: closed_now ->
            assert(!is_open); /* refused */
            refused = true;
            starting = false
        :: else ->
            assert(is_open); /* open */
            enqueued++;
#ifdef EARLY_END
            starting = false;
            pending = enqueued;
            has_started = true;
#else
            pending = enqueued;
            has_started = true;
            starting = false;
#endif
            call++
        fi
    :: else -> break
    od
}

active proctype stream()
{
    do
    :: done < enqueued ->
        assert(is_open); /* runs */
        done++
    :: done == enqueued && (refused || done == CALLS) -> break
    od
}

/* unused: no start is being made, and none is pending. Each word is read separately. */
inline ask()
{
    unused = !starting;
    if
    :: unused && has_started -> target = pending; unused = done >= target
    :: else
    fi
}

active proctype closer()
{
    byte tries = 0, target;
    bool unused;
    do
    :: tries < 3 && is_open ->
        lock();
        ask();
        if
        :: unused ->
            closed = true;
#ifndef NO_RECHECK
            ask();
#endif
            if
            :: unused -> is_open = false
            :: else -> closed = false
            fi
        :: else
        fi;
        unlock();
        tries++
    :: else -> break
    od
}
