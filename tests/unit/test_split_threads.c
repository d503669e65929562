/* Splits and shrinks of ranks that are threads of one process, on the host device. */
#include "../with_cmocka.h"

#include <cecl/cecl.h>
#include <pthread.h>

#include "../world/works.h"
#include "comm/comm.h"

#define RANKS 5
#define ROUNDS 20

struct member {
    pthread_t thread;
    ceclComm_t comm;
    int rank, wrong;
    ceclResult_t result;
};

#define STEP(expr) \
    do { \
        if ((me->result = (expr)) != ceclSuccess) \
            return; \
    } while (0)

/* Checks that collectives on `child` are right. Its members are the parent's ranks first, first + step, ... */
static void use(struct member *me, ceclComm_t child, int first, int step)
{
    int n = 0, members[RANKS];
    char wrong[200];
    STEP(ceclCommCount(child, &n));
    for (int r = 0; r < n; r++) {
        members[r] = first + r * step;
        me->wrong += child->parent_ranks[r] != members[r];
    }
    STEP(comm_works(child, members, n, wrong, sizeof(wrong)));
    me->wrong += wrong[0] != '\0';
    STEP(ceclCommDestroy(child));
}

static void split_and_use(struct member *me)
{
    ceclComm_t child = NULL;
    STEP(ceclCommSplit(me->comm, me->rank % 2, me->rank, &child, NULL));
    use(me, child, me->rank % 2, 2);
    if (me->result == ceclSuccess)
        STEP(ceclCommSplit(me->comm, 3, -me->rank, &child, NULL));
    if (me->result == ceclSuccess)
        use(me, child, RANKS - 1, -1);
}

static void shrink_and_use(struct member *me)
{
    const int out = RANKS - 1;
    ceclComm_t rest = NULL;
    if (me->rank == out)
        return;
    STEP(ceclCommShrink(me->comm, &out, 1, &rest, NULL));
    use(me, rest, 0, 1);
}

static void *work(void *argument)
{
    struct member *me = argument;
    for (int round = 0; round < ROUNDS && me->result == ceclSuccess; round++) {
        split_and_use(me);
        if (me->result == ceclSuccess)
            shrink_and_use(me);
    }
    return NULL;
}

TEST(threads_split_and_shrink)
{
    ceclComm_t comms[RANKS];
    struct member members[RANKS] = {0};
    assert_int_equal(ceclCommInitAll(comms, RANKS, NULL), ceclSuccess);
    for (int r = 0; r < RANKS; r++) {
        members[r].rank = r;
        members[r].comm = comms[r];
        assert_int_equal(pthread_create(&members[r].thread, NULL, work, &members[r]), 0);
    }
    for (int r = 0; r < RANKS; r++)
        pthread_join(members[r].thread, NULL);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(members[r].result, ceclSuccess);
        assert_int_equal(members[r].wrong, 0);
        assert_int_equal(ceclCommDestroy(comms[r]), ceclSuccess);
    }
}

TEST(one_thread_that_has_all_ranks_is_told_why_it_waited)
{
    ceclComm_t comms[2], child = (ceclComm_t)8;
    setenv("CECL_DEBUG", "none", 1);
    setenv("CECL_TIMEOUT_MS", "200", 1);
    setenv("CECL_INIT_TIMEOUT_MS", "2000", 1);
    ceclResult_t made = ceclTimeout; /* if the machine stands still, this times out, too */
    for (int tries = 0; tries < 5 && made != ceclSuccess; tries++)
        made = ceclCommInitAll(comms, 2, NULL);
    assert_int_equal(made, ceclSuccess);
    assert_int_equal(ceclCommShrink(comms[0], NULL, 0, &child, NULL), ceclTimeout);
    assert_non_null(strstr(ceclGetLastError(NULL), "ceclCommShrink needs a thread for each rank"));
    assert_int_equal(ceclCommSplit(comms[0], 0, 0, &child, NULL), ceclTimeout);
    assert_non_null(strstr(ceclGetLastError(NULL), "ceclCommSplit needs a thread for each rank"));
    assert_ptr_equal(child, (ceclComm_t)8);
    for (int r = 0; r < 2; r++)
        assert_int_equal(ceclCommAbort(comms[r]), ceclSuccess);
    unsetenv("CECL_TIMEOUT_MS");
    unsetenv("CECL_INIT_TIMEOUT_MS");
}
