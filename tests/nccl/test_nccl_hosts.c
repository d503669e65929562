/* Communicators over several hosts, which CECL_NODE_SIZE=2 pretends, are passed. Their children of one host are served.
 *
 * test_nccl_hosts CECL_NCCL=all and CECL_NODE_SIZE=2; CECL_NCCL_PATH names the stand-in */
#include "../with_cmocka.h"

#include "served.h"

#define RANKS 4
#define ON_A_HOST 2

static ncclUniqueId all_id;

TEST_OF_RANKS(children_of_one_host_are_served, RANKS)
{
    struct rank host = {.nranks = ON_A_HOST, .rank = r->rank % ON_A_HOST}, all = *r;
    bool is = gathers(r, false) &&
              ncclCommSplit(r->comm, r->rank / ON_A_HOST, r->rank, &host.comm, NULL) == 0 &&
              gathers(&host, true) && gathers(r, false);
    is = is && ncclCommSplit(r->comm, 0, r->rank, &all.comm, NULL) == 0 && gathers(&all, false);
    return is && gathers(&host, true) && ncclCommDestroy(all.comm) == 0 &&
           ncclCommDestroy(host.comm) == 0;
}

/* NCCL makes both in the background. */
static bool split_in_background(struct rank *r)
{
    struct config config;
    struct rank all = *r, host = {.nranks = ON_A_HOST, .rank = r->rank % ON_A_HOST};
    bool is =
        ncclCommInitRankConfig(&all.comm, r->nranks, all_id, r->rank, non_blocking(&config)) ==
            IN_PROGRESS &&
        await_comm(all.comm) == 0 && gathers(&all, false) &&
        ncclCommSplit(all.comm, r->rank / ON_A_HOST, r->rank, &host.comm, NULL) == IN_PROGRESS &&
        await_comm(all.comm) == 0 && await_comm(host.comm) == 0;
    return is && gathers(&host, true) && gathers(&all, false) && ncclCommDestroy(host.comm) == 0 &&
           ncclCommDestroy(all.comm) == 0;
}

TEST(non_blocking_children_of_one_host_are_served)
{
    assert_int_equal(ncclGetUniqueId(&all_id), 0);
    assert_true(run_ranks(RANKS, split_in_background));
}

TEST_OF_RANKS(a_communicator_of_one_host_is_served, ON_A_HOST)
{
    return gathers(r, true);
}
