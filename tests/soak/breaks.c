/* Communicators that are aborted or revoked; see trouble.h. */
#include "bursts.h"
#include "trouble.h"

#define PENDING 3
/* Seconds until a failure must be known. Milliseconds are usual; a machine with more ranks than
 * cores may run other processes for a while. */

int trouble_aborts, trouble_revokes;

enum way { ABORT, REVOKE, ALL_ABORT, WAYS };

struct breakage {
    struct team *team;
    enum way way;
    int culprit;        /* its rank in the team */
    int calls, few;     /* calls that all others make, and calls that the culprit makes */
    bool leaves[RANKS]; /* ranks that are no members of the new communicator */
    /* there is a new communicator; on this rank: the old one is aborted at the end */
    bool shrinks, abrupt;
    struct mail *mail; /* messages after the calls; NULL: none */
};

static struct breakage draw(uint64_t *x)
{
    struct breakage b = {.team = teams_pick(x), .way = (enum way)(random_next(x) % WAYS)};
    const int n = b.team->n;
    b.culprit = (int)(random_next(x) % (uint64_t)n);
    b.calls = (int)(random_next(x) % (PENDING + 1));
    b.few = (int)(random_next(x) % (uint64_t)(b.calls + 1));
    b.shrinks =
        random_next(x) % 2 && b.way != ALL_ABORT && !teams_full() && (n > 1 || b.way != ABORT);
    for (int r = 0; r < n; r++)
        b.leaves[r] = r != (b.culprit + 1) % n && random_next(x) % 4 == 0;
    if (b.way == ABORT)
        b.leaves[b.culprit] = true;
    b.abrupt = random_next(&bursts_own) % 2;
    for (int i = 0; i < b.calls; i++)
        burst_draw(&burst[i], b.team, x);
    b.mail = random_next(x) % 2 ? &mails[0] : NULL;
    if (b.mail)
        mail_draw(b.mail, b.team, x, &bursts_own);
    return b;
}

/* Returns how many calls were made before this rank knew of the failure. */
static int make_calls(const struct breakage *b, int calls)
{
    for (int i = 0; i < calls; i++) {
        const int stream = i % TEAM_STREAMS;
        const ceclResult_t result = burst_make(&burst[i], stream, false);
        if (result == ceclSuccess)
            continue;
        multi_expect(b->team->comm, result, ceclRemoteError, NULL, "a call", __FILE__, __LINE__);
        return i;
    }
    return calls;
}

static void right_or_remote(const struct breakage *b, ceclResult_t result)
{
    if (result != ceclSuccess)
        multi_expect(b->team->comm, result, ceclRemoteError, NULL, "messages", __FILE__, __LINE__);
}

/* Makes messages after the calls. The culprit stops at any message, so others wait for it. */
static void make_messages(const struct breakage *b, bool culprit)
{
    const int stop = (int)(random_next(&bursts_own) % (MAIL_MESSAGES + 1));
    if (b->mail)
        right_or_remote(b,
                        mail_make(b->mail, culprit && stop < b->mail->count ? stop : b->mail->count,
                                  &bursts_own));
}

/* Checks that the failure is known soon, with the culprit's rank, and that later calls are
 * refused. */
static void hear(const struct breakage *b, int made)
{
    ceclComm_t comm = b->team->comm;
    char words[32] = "ceclCommRevoke was called";
    if (b->team->me != b->culprit)
        snprintf(words, sizeof(words), "rank %d %s", b->culprit, b->way == ABORT ? "" : "gave up");
    for (int i = 0; i < made; i++) {
        const ceclResult_t result = burst_finish(&burst[i]);
        assert_true(result == ceclSuccess || result == ceclRemoteError);
    }
    if (b->mail)
        right_or_remote(b, mail_finish(b->mail));
    /* an abort without a pending call only affects ranks that wait for the culprit */
    if (b->way == ABORT)
        right_or_remote(b, ceclBarrier(comm, 0));
    assert_int_equal(multi_async_within(comm, PROMPT), ceclRemoteError);
    multi_refused(comm, ceclBarrier(comm, 0), ceclRemoteError, words);
}

/* Returns whether this rank has ended the communicator. */
static bool misbehave(const struct breakage *b)
{
    const bool culprit = b->team->me == b->culprit;
    const int made = make_calls(b, culprit ? b->few : b->calls);
    if (!culprit || b->few == b->calls)
        make_messages(b, culprit);
    if (culprit)
        teams_come_late(&bursts_own, 2);
    if (b->way == ALL_ABORT || (culprit && b->way == ABORT)) {
        multi_ok(NULL, ceclCommAbort(b->team->comm));
        return true;
    }
    if (culprit)
        multi_ok(NULL, ceclCommRevoke(b->team->comm));
    hear(b, made);
    return false;
}

void trouble_breaks(uint64_t *x)
{
    const struct breakage b = draw(x);
    bool ended = b.team->me < 0;
    trouble_aborts += b.way != REVOKE;
    trouble_revokes += b.way == REVOKE;
    MPI_Barrier(MPI_COMM_WORLD); /* the pool has grown on all members */
    if (!ended)
        ended = misbehave(&b);
    if (b.shrinks)
        teams_shrink(b.team, b.leaves, x, &bursts_own);
    if (!ended && b.abrupt)
        multi_ok(NULL, ceclCommAbort(b.team->comm));
    else if (!ended)
        multi_refused(NULL, ceclCommDestroy(b.team->comm), ceclRemoteError, NULL);
    b.team->alive = false;
    MPI_Barrier(MPI_COMM_WORLD); /* no copies may reach memory that other calls use */
    if (b.mail)
        mail_forget(b.mail);
}
