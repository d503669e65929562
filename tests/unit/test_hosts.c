/* Which ranks share a host, according to what they report, and which ranks an error names if their settings differ. */
#include "../with_cmocka.h"

#include "api/introduce.h"

#define MOST 16

static struct cecl_hello hellos[MOST];
static int count;

/* Makes introductions of ranks with equal settings. hosts: the host of each rank, as a letter. */
static void meet(const char *hosts)
{
    struct cecl_resolved config;
    assert_int_equal(cecl_config_resolve(NULL, &config), ceclSuccess);
    count = (int)strlen(hosts);
    for (int r = 0; r < count; r++)
        hellos[r] = (struct cecl_hello){.magic = CECL_HELLO_MAGIC,
                                        .version = CECL_VERSION,
                                        .nranks = count,
                                        .rank = r,
                                        .host = (uint64_t)hosts[r],
                                        .config = config};
}

/* Expects this many hosts. numbers: the number of each rank's host, as a digit. */
static void expect_hosts(int hosts, const char *numbers)
{
    uint16_t host[MOST];
    assert_int_equal(cecl_hellos_compare(hellos, count), ceclSuccess);
    assert_int_equal(cecl_hellos_hosts(hellos, count, host), hosts);
    for (int r = 0; r < count; r++)
        assert_int_equal(host[r], numbers[r] - '0');
}

static void pretend(int size)
{
    for (int r = 0; r < count; r++)
        hellos[r].config.node_size = size;
}

static void expect_refused(ceclResult_t result, const char *words)
{
    assert_int_equal(cecl_hellos_compare(hellos, count), result);
    if (!strstr(cecl_message(), words))
        fail_msg("'%s' does not say '%s'", cecl_message(), words);
}

TEST(hosts_are_numbered_by_their_first_ranks)
{
    meet("aaaa");
    expect_hosts(1, "0000");
    meet("a");
    expect_hosts(1, "0");
    meet("aaabbbbb");
    expect_hosts(2, "00011111");
    meet("zbzab");
    expect_hosts(3, "01021");
}

TEST(hosts_may_be_pretended)
{
    meet("aaaa");
    pretend(4);
    expect_hosts(1, "0000");
    pretend(2);
    expect_hosts(2, "0011");
    pretend(3);
    expect_hosts(2, "0001");
    meet("aabb"); /* ranks of two real hosts never share a pretended one */
    pretend(3);
    expect_hosts(3, "0012");
}

TEST(odd_version_is_named)
{
    meet("aabbb");
    hellos[3].version = CECL_VERSION + 1;
    expect_refused(ceclInvalidUsage, "rank 3 has a different version of cecl than rank 0");
    hellos[3].version = CECL_VERSION;
    hellos[0].version = CECL_VERSION - 1;
    expect_refused(ceclInvalidUsage, "rank 1 has a different version of cecl than rank 0");
}

TEST(rank_that_is_no_rank_of_cecl_is_named)
{
    meet("aab");
    memset(&hellos[1], 0x5a, sizeof(hellos[1]));
    expect_refused(ceclInvalidUsage, "rank 1 has a different version of cecl");
}

TEST(odd_settings_are_named)
{
    meet("aabb");
    hellos[2].config.timeout_ms += 1;
    expect_refused(ceclInvalidArgument, "ranks differ in timeoutMs");
    expect_refused(ceclInvalidArgument, "on rank 2");
    meet("aabb");
    hellos[1].config.node_size = 2;
    expect_refused(ceclInvalidArgument, "CECL_NODE_SIZE: 0 on rank 0, 2 on rank 1");
    meet("aabb");
    hellos[3].rank = 1;
    expect_refused(ceclInvalidArgument, "rank 1: taken twice");
    meet("aabb");
    hellos[1].nranks = 5;
    expect_refused(ceclInvalidArgument, "nranks: 5 on rank 1");
    meet("aabb");
    hellos[3].status = ceclOutOfMemory;
    strcpy(hellos[3].text, "no memory here");
    expect_refused(ceclOutOfMemory, "rank 3: no memory here");
}
