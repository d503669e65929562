/* Which ranks share a host, according to what they report; how the host device refuses ranks of several hosts; and which ranks an
 * error names if their settings differ. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../with_cmocka.h"

#include "api/introduce.h"

#define MOST 16

static struct cecl_hello hellos[MOST];
static int count;

/* Ranks on these hosts, with equal settings. `hosts`: a letter for each rank. */
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

static void set_sizes(const char *sizes)
{
    for (int r = 0; r < count; r++)
        strcpy(hellos[r].config.node_sizes, sizes);
}

static ceclResult_t refuse_hosts(void)
{
    uint16_t host[MOST];
    int hosts;
    CECL_TRY(cecl_hellos_hosts(hellos, count, host, &hosts));
    return hosts == 1 ? ceclSuccess : cecl_hellos_refuse_hosts(hellos, count, host, hosts);
}

/* What all ranks are told on the host device; "" if they are on one host. */
static const char *refusal(void)
{
    assert_int_equal(cecl_hellos_compare(hellos, count), ceclSuccess);
    const ceclResult_t result = refuse_hosts();
    assert_int_equal(result, result == ceclSuccess ? ceclSuccess : ceclInvalidUsage);
    return result == ceclSuccess ? "" : cecl_message();
}

static void expect_hosts(const char *words)
{
    const char *told = refusal();
    if (strncmp(told, words, strlen(words)) != 0)
        fail_msg("'%s' does not begin with '%s'", told, words);
}

static void expect_refused(ceclResult_t result, const char *words)
{
    assert_int_equal(cecl_hellos_compare(hellos, count), result);
    if (!strstr(cecl_message(), words))
        fail_msg("'%s' does not say '%s'", cecl_message(), words);
}

TEST(ranks_of_several_hosts_are_refused)
{
    meet("aaaa");
    assert_string_equal(refusal(), "");
    meet("a");
    assert_string_equal(refusal(), "");
    meet("aabb");
    assert_string_equal(refusal(),
                        "ranks are on 2 hosts (2 + 2 ranks): all ranks on one host, in one "
                        "network namespace, expected; over several hosts NCCL carries calls, on "
                        "GPUs only");
    meet("aaabbbbb");
    expect_hosts("ranks are on 2 hosts (3 + 5 ranks): ");
    meet("abcdefghij");
    expect_hosts("ranks are on 10 hosts (1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + ... ranks): ");
}

TEST(hosts_are_numbered_by_their_first_ranks)
{
    uint16_t host[MOST];
    static const uint16_t wanted[] = {0, 1, 0, 2, 1};
    int hosts;
    meet("zbzab");
    assert_int_equal(cecl_hellos_hosts(hellos, count, host, &hosts), ceclSuccess);
    assert_int_equal(hosts, 3);
    assert_memory_equal(host, wanted, sizeof(wanted));
}

TEST(hosts_may_be_pretended)
{
    meet("aaaa");
    set_sizes("4");
    assert_string_equal(refusal(), "");
    set_sizes("2");
    expect_hosts("ranks are on 2 hosts (2 + 2 ranks, with CECL_NODE_SIZE=2): ");
    set_sizes("3");
    expect_hosts("ranks are on 2 hosts (3 + 1 ranks, with CECL_NODE_SIZE=3): ");
    set_sizes("1,3");
    expect_hosts("ranks are on 2 hosts (1 + 3 ranks, with CECL_NODE_SIZE=1,3): ");
    meet("aabb"); /* each pretended host of real ones is a host */
    set_sizes("3");
    expect_hosts("ranks are on 3 hosts (2 + 1 + 1 ranks, with CECL_NODE_SIZE=3): ");
}

TEST(sizes_that_do_not_fit_are_refused)
{
    static const char *const wrong[] = {"1,2", "3,2", "2,2,1"};
    meet("aaaa");
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        set_sizes(wrong[i]);
        assert_int_equal(refuse_hosts(), ceclInvalidArgument);
        assert_non_null(strstr(cecl_message(), "sizes that sum to 4 ranks expected"));
    }
}

TEST(odd_version_is_named)
{
    meet("aabbb");
    hellos[3].version = CECL_VERSION + 1;
    expect_refused(ceclInvalidUsage, "rank 3 has a different version of cecl than rank 0");
    hellos[3].version = CECL_VERSION;
    hellos[0].version = CECL_VERSION - 1; /* rank 0 has no priority over the others */
    expect_refused(ceclInvalidUsage, "rank 0 has a different version of cecl than rank 1");
    for (int r = 1; r < count; r++)
        hellos[r].version = CECL_VERSION - 1;
    expect_refused(ceclInvalidUsage, "the other ranks have a different version");
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
    strcpy(hellos[1].config.node_sizes, "2");
    expect_refused(ceclInvalidArgument, "CECL_NODE_SIZE: '' on rank 0, '2' on rank 1");
    meet("aabb");
    memset(hellos[2].config.node_sizes, '2', CECL_NODE_SIZES_BYTES);
    expect_refused(ceclInvalidArgument, "CECL_NODE_SIZE: '' on rank 0, '2222");
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
