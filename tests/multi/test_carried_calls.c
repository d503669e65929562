/* Random calls over several hosts, which CECL_NODE_SIZE pretends. NCCL carries them out; on the host device its
 * stand-in of tests/nccl does. CECL_TEST_CALLS and CECL_TEST_SEED override the number of calls and the seed. tests/net
 * tests all else about several hosts. */
#include "random_call.h"

/* Whether to draw the call. NCCL has no strided calls, no tiles, and no all-to-all in place, and adds floats in another
 * order than the model. In a group or a capture, ranks cannot exchange the places of a variable all-to-all. */
static bool is_carried(const struct random_call *c, bool together)
{
    return c->type < ceclFloat16 && c->kind != ALL_GATHER_STRIDED &&
           c->kind != ALL_TO_ALL_STRIDED && c->kind != REDUCE_SCATTER_TILES &&
           !(c->kind == ALL_TO_ALL && c->in_place) &&
           !(c->kind == ALL_TO_ALLV && c->exchange && together);
}

/* On GPUs, a graph captures some of the calls and groups. */
static void random_calls_are_right(const char *node_size)
{
    const char *calls = getenv("CECL_TEST_CALLS"), *given = getenv("CECL_TEST_SEED");
    const int total = multi_share(calls ? atoi(calls) : 400);
    const uint64_t seed = given ? strtoull(given, NULL, 10) : 88172645463325252u;
    multi_setenv("CECL_NODE_SIZE", node_size);
    ceclComm_t comm = multi_comm(NULL);
    random_carries = is_carried;
    for (int size = 1; size <= 4; size++)
        random_groups(comm, ALL_GATHER, KINDS - 1, size, total / 10, seed + (uint64_t)size);
    multi_ok(NULL, ceclCommDestroy(comm));
    multi_setenv("CECL_NODE_SIZE", NULL);
}

TEST(random_calls_are_carried_between_hosts_of_two_ranks)
{
    if (multi_nranks != 4)
        skip_because("it needs 4 ranks");
    random_calls_are_right("2");
}

TEST(random_calls_are_carried_between_hosts_of_unequal_size)
{
    if (multi_nranks != 4)
        skip_because("it needs 4 ranks");
    random_calls_are_right("3");
}

TEST(random_calls_are_carried_between_hosts_of_one_rank)
{
    random_calls_are_right("1");
}

int main(int argc, char **argv)
{
    char name[32];
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    snprintf(name, sizeof(name), "host%s", rank ? rank : "0");
    setenv("NCCL_HOSTID", name, 0); /* ranks may share a GPU, which NCCL refuses on one host */
    return multi_main(argc, argv);
}
