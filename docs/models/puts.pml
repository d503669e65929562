/* Puts and signals (src/launch/one_sided.c, src/flags/awaited.c, src/flags/lines.c,
 * src/comm/look.c, src/api/living.c), for Spin. There are two ranks. The host of each makes CALLS
 * puts, each with a signal, to the other, and waits for as many signals. A wait is for one signal
 * or several. Each call is on one of STREAMS streams. Spin chooses the streams, and the number of
 * signals of each wait. The words that count signals wrap around. Each call is counted on a line,
 * and a rank's streams share LINES lines. Then the host waits until its calls are done, asks
 * whether a failure is known, and leaves.
 *
 * ONE_WAY: rank 0 puts, and rank 1 waits. FAULTS: rank 0's communicator fails, at any time. DEATH:
 * rank 0 dies, at any time. END: rank 0's process ends. As on a GPU, its lines can then no longer
 * be read, and an exit handler may make one more call.
 *
 * Checked: no deadlock, so all waits end, also after a failure or a death; a rank that has waited
 * for its calls, and knows of no failure, has the blocks of all signals that it consumed; no rank
 * learns of a failure that did not happen; a rank that says goodbye has carried out all its calls.
 *
 * Planted faults: SIGNAL_FIRST sends a signal before its block; NO_ORDER lets a signal overtake the
 * one before it on the other stream; EQUAL_ONLY waits for an exact value, and not for later ones;
 * PLAIN_COMPARE compares values as if they did not wrap around; NO_LINE_WAIT lets calls of two
 * streams run on one line; RELEASE_FIRST ends waits before the peer learns of the failure;
 * RELEASE_ONCE ends waits once; LOOK_FIRST reads the word before it sees that the peer has left;
 * EARLY_GOODBYE says goodbye with calls pending; OLD_COUNT says goodbye although a call came after
 * the last look. */
#ifndef CALLS
#define CALLS 2
#endif
#ifndef LINES
#define LINES 2
#endif
#ifndef STREAMS
#define STREAMS 2
#endif
#define VALUES 8 /* modulus of a word */
#define FIRST 6  /* words begin with this value, so they wrap around */
#define NONE 255

#define STREAM(rank, s) ((rank) * 2 + (s))
#define LINE(rank, l) ((rank) * LINES + (l))
#define BLOCK(rank, k) ((rank) * VALUES + (k))
/* a call: its line, and its number on that line */
#define CALL(line, number) ((line) * 16 + (number))
#define IS_DONE(call) ((call) == NONE || done[(call) / 16] >= (call) % 16)

#define PUT 0
#define WAIT VALUES
/* Fields: PUT or WAIT, plus the value; the call to await first; the call to await before the signal
 * is sent or awaited; the call itself */
chan queue[4] = [2 * CALLS + 1] of { byte, byte, byte, byte };

byte word[2];              /* in the rank's memory: how many signals have arrived, from FIRST on */
byte sent[2], taken[2];    /* the values of the latest signal, and of the latest wait */
byte sender[2], taker[2];  /* the calls that have these values */
byte made[2 * LINES], done[2 * LINES]; /* how many calls of each line were made, and are done */
byte owner[2 * LINES];     /* the line's stream */
byte lines[2];             /* number of lines that were ever used */
bool block[2 * VALUES];    /* [rank, value of its signal]: the block has arrived */
bool wrong[2];             /* a wait has ended without its blocks */
bool failed[2], told[2], left[2], dead[2];

#define HEARD(rank) (failed[rank] || told[rank])
#define AHEAD(a, b) (((a) + VALUES - (b)) % VALUES)
#define IS_BEHIND(rank) (AHEAD(word[rank], taken[rank]) >= VALUES / 2)
#define IS_IDLE(rank)                                                                              \
    (made[LINE(rank, 0)] == done[LINE(rank, 0)] &&                                                 \
     made[LINE(rank, LINES - 1)] == done[LINE(rank, LINES - 1)])
#if defined(EQUAL_ONLY)
#define HAS_COME(rank, value) (word[rank] == value)
#elif defined(PLAIN_COMPARE)
#define HAS_COME(rank, value) (word[rank] >= value)
#else
#define HAS_COME(rank, value) (AHEAD(word[rank], value) < VALUES / 2)
#endif
#if defined(FAULTS) || defined(DEATH) || defined(END)
#define MAY_FAIL true
#else
#define MAY_FAIL false
#endif

#ifdef ONE_WAY
#define PUTS(rank) ((rank) == 0)
#define WAITS(rank) ((rank) == 1)
#else
#define PUTS(rank) true
#define WAITS(rank) true
#endif

/* Like cecl_line_begin: the stream's own line, or a free line, or a new line, or a shared line. */
inline begin_line(s)
{
    line = NONE;
    i = 0;
    do
    :: i < lines[me] && owner[LINE(me, i)] == s -> line = LINE(me, i); break
    :: i < lines[me] && owner[LINE(me, i)] != s ->
        if
        :: line == NONE && made[LINE(me, i)] == done[LINE(me, i)] -> line = LINE(me, i)
        :: else
        fi;
        i++
    :: i == lines[me] -> break
    od;
    if
    :: line == NONE && lines[me] < LINES -> line = LINE(me, lines[me]); lines[me]++
    :: line == NONE && lines[me] == LINES -> line = LINE(me, 0)
    :: else
    fi;
    first = NONE;
    if
    :: owner[line] != s && made[line] != done[line] -> first = CALL(line, made[line])
    :: else
    fi;
#ifdef NO_LINE_WAIT
    first = NONE;
#endif
    owner[line] = s;
    made[line]++
}

/* Sets `then` to the call that the signal, or the wait, must follow: to NONE if that call is on
 * this line, or done. */
inline come_behind(last)
{
    then = last;
    if
    :: last == NONE || last / 16 == line || IS_DONE(last) -> then = NONE
    :: else
    fi;
#ifdef NO_ORDER
    then = NONE;
#endif
    last = CALL(line, made[line])
}

inline make_put(s)
{
    d_step {
        begin_line(s);
        come_behind(sender[me]);
        sent[me] = (sent[me] + 1) % VALUES;
        queue[STREAM(me, s)]!(PUT + sent[me]), first, then, CALL(line, made[line])
    }
}

inline make_wait(s)
{
    d_step {
        begin_line(s);
        come_behind(taker[me]);
        taken[me] = (taken[me] + count) % VALUES;
        count = 0;
        queue[STREAM(me, s)]!(WAIT + taken[me]), first, then, CALL(line, made[line])
    }
}

/* A put passes on the blocks for which this rank waited. If a wait ended without its blocks, the
 * bytes of later puts are invalid. */
inline bring()
{
    block[BLOCK(1 - me, what % VALUES)] = !wrong[me]
}

/* Checks all blocks up to the value for which the stream waited. */
inline check_blocks()
{
    i = FIRST;
    do
    :: i != what % VALUES -> i = (i + 1) % VALUES; wrong[me] = wrong[me] || !block[BLOCK(me, i)]
    :: i == what % VALUES -> break
    od;
    i = 0
}

/* For Spin a stream that stays at an end label is no deadlock. But a host waits for all its calls,
 * so Spin finds a stream that is stuck there. */
proctype stream(byte me; byte s)
{
    byte what, first, then, call, i;
end_idle:
    do
    :: atomic { !dead[me] && queue[STREAM(me, s)]?[what, first, then, call] ->
            queue[STREAM(me, s)]?what, first, then, call };
        if
        :: what < WAIT ->
#ifndef SIGNAL_FIRST
end_first:
            atomic { IS_DONE(first) && !dead[me] -> bring() }
end_then:
            atomic {
                IS_DONE(then) && !dead[me] ->
                word[1 - me] = what % VALUES;
                done[call / 16] = call % 16
            }
#else
end_first:
            atomic { IS_DONE(first) && IS_DONE(then) && !dead[me] -> word[1 - me] = what % VALUES }
end_then:
            atomic { !dead[me] -> bring(); done[call / 16] = call % 16 }
#endif
        :: what >= WAIT ->
end_wait:
            atomic {
                IS_DONE(first) && IS_DONE(then) && HAS_COME(me, what % VALUES) && !dead[me] ->
                check_blocks();
                done[call / 16] = call % 16
            }
        fi
    od
}

/* The host waits for its calls, and learns what the peer has reported. */
inline leave()
{
#ifndef EARLY_GOODBYE
    IS_IDLE(me);
#endif
    d_step {
        assert(HEARD(me) || !wrong[me]);
        left[me] = !HEARD(me)
    }
}

/* The process waits until no call is pending, may make one more call, and ends. */
inline end_process()
{
    IS_IDLE(me);
    is_same = true;
    if
    :: !HEARD(me) -> make_put(0); is_same = false
    :: skip
    fi;
#ifdef OLD_COUNT
    is_same = true;
#endif
    d_step {
        assert(HEARD(me) || !is_same || IS_IDLE(me));
        left[me] = !HEARD(me) && is_same;
        dead[me] = true
    }
}

proctype host(byte me)
{
    byte puts = 0, count = 0, line, first, then, i;
    bool is_same;
    {
        do
        :: puts < CALLS && !HEARD(me) ->
            if
            :: PUTS(me) -> make_put(0)
            :: PUTS(me) && STREAMS > 1 -> make_put(1)
            :: !PUTS(me)
            fi;
            puts++;
            count++;
            if
            :: puts < CALLS || !WAITS(me) /* this signal is consumed later, with the next one */
            :: WAITS(me) -> make_wait(0)
            :: WAITS(me) && STREAMS > 1 -> make_wait(1)
            fi
        :: puts == CALLS || HEARD(me) -> break
        od;
#ifdef END
        if
        :: me == 0 -> end_process()
        :: me == 1 -> leave()
        fi
#else
        leave()
#endif
    } unless { dead[me] }
}

inline fail()
{
    assert(MAY_FAIL);
    failed[me] = true
}

inline release()
{
    word[me] = taken[me]
}

/* All signals of a rank that has left have arrived, so a signal that is missing then never comes.
 * Waits are ended repeatedly, because a late signal sets a word back. */
proctype watchdog(byte me)
{
    bool has_told = false;
end_watch:
    do
    :: atomic { !HEARD(me) && dead[1 - me] && !left[1 - me] && !dead[me] -> fail() }
#ifdef LOOK_FIRST
    :: !HEARD(me) && IS_BEHIND(me) && !dead[me] ->
        if
        :: atomic { left[1 - me] && !HEARD(me) -> fail() }
        :: !left[1 - me] || HEARD(me)
        fi
#else
    :: atomic { !HEARD(me) && left[1 - me] && IS_BEHIND(me) && !dead[me] -> fail() }
#endif
    :: HEARD(me) && !has_told ->
#ifdef RELEASE_FIRST
        release();
#endif
        told[1 - me] = true;
        has_told = true;
#ifdef RELEASE_ONCE
        release();
        break
#endif
    :: atomic { has_told && IS_BEHIND(me) -> release() }
    od
}

init
{
    byte i = 0;
    atomic {
        do
        :: i < 2 ->
            word[i] = FIRST;
            sent[i] = FIRST;
            taken[i] = FIRST;
            sender[i] = NONE;
            taker[i] = NONE;
            run host(i);
            run stream(i, 0);
            run stream(i, 1);
            run watchdog(i);
            i++
        :: i == 2 -> break
        od
    }
#ifdef FAULTS
    failed[0] = true
#endif
#ifdef DEATH
    dead[0] = true
#endif
}
