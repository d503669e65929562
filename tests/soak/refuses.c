/* Calls that are refused; see trouble.h. */
#include "bursts.h"
#include "trouble.h"

int trouble_refusals;

static void refuse_argument(const struct team *t)
{
    unsigned char *at = t->lent.at;
    ceclComm_t comm = t->comm;
    multi_refused(comm, ceclAllGather(at, NULL, 8, ceclInt8, comm, t->streams[1]),
                  ceclInvalidArgument, "recvbuff");
    multi_refused(comm, ceclAllReduce(at, at, 8, ceclInt32, (ceclRedOp_t)9, comm, 0),
                  ceclInvalidArgument, "9");
}

static void refuse_memory(const struct team *t)
{
    ceclRegistration_t none = NULL;
    multi_refused(t->comm, ceclMemFree(t->comm, t->lent.at + 256), ceclInvalidArgument, NULL);
    multi_refused(t->comm, ceclCommRegister(t->comm, t->lent.at, 0, &none), ceclInvalidArgument,
                  NULL);
    assert_null(none);
}

/* Two calls of a group write to the same bytes. */
static void refuse_group(const struct team *t)
{
    unsigned char *at = t->lent.at;
    multi_ok(NULL, ceclGroupStart());
    for (int i = 0; i < 2; i++)
        multi_ok(t->comm,
                 ceclAllReduce(at + 4096 * i, at + 8192, 64, ceclInt32, ceclSum, t->comm, 0));
    multi_refused(t->comm, ceclGroupEnd(), ceclInvalidArgument, "share memory");
}

/* If one rank refuses a call, all ranks do. */
static void refuse_split(const struct team *t)
{
    ceclComm_t comm = NULL;
    multi_refused(t->comm, ceclCommSplit(t->comm, t->me == 0 ? -9 : 1, 0, &comm, NULL),
                  ceclInvalidArgument, NULL);
    assert_null(comm);
}

void trouble_refuses(uint64_t *x)
{
    static void (*const refuse[])(const struct team *) = {refuse_argument, refuse_memory,
                                                          refuse_group, refuse_split};
    const struct team *t = teams_pick(x);
    const uint64_t which = random_next(x) % (sizeof(refuse) / sizeof(refuse[0]));
    trouble_refusals++;
    if (t->me >= 0)
        refuse[which](t);
}
