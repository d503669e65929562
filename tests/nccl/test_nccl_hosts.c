/* Communicators over several hosts, which CECL_NODE_SIZE=2 pretends, are passed. Their children of one host are served.
 *
 * test_nccl_hosts CECL_NCCL=all and CECL_NODE_SIZE=2; CECL_NCCL_PATH names the stand-in */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "../with_cmocka.h"

#include "ranks.h"

#define RANKS 4
#define ON_A_HOST 2

static __typeof__(standin_last) *last;
static ncclUniqueId all_id;

/* Whether a gather is right, and is served or passed as expected. */
static bool gathers(const struct rank *r, bool served)
{
    int in = 100 + r->rank, out[RANKS] = {0}, count;
    ncclCommCount(r->comm, &count); /* this call always goes to the stand-in */
    const ncclResult_t result = ncclAllGather(&in, out, 1, ncclInt32, r->comm, NULL);
    bool is = (strcmp(last().name, "ncclCommCount") == 0) == served;
    is = outcome_of(r->comm, result) == 0 && count == r->nranks && is;
    for (int i = 0; i < r->nranks; i++)
        is = is && out[i] == 100 + i;
    return is;
}

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

int main(void)
{
    const char *path = getenv("CECL_NCCL_PATH");
    void *standin = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!standin) {
        print_error("CECL_NCCL_PATH: %s\n", dlerror());
        return 2;
    }
    *(void **)&last = dlsym(standin, "standin_last");
    return tests_run(NULL, NULL);
}
