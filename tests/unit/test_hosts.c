/* Which ranks share a host and a node, according to what they report, and which ranks an error names if
 * their settings differ. */
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

/* The layout as text; "1 node" if all ranks share one. */
static const char *layout(void)
{
    static char words[CECL_NODES_WORDS];
    struct cecl_nodes *nodes;
    assert_int_equal(cecl_hellos_compare(hellos, count), ceclSuccess);
    assert_int_equal(cecl_hellos_nodes(hellos, count, &nodes), ceclSuccess);
    strcpy(words, "1 node");
    if (nodes)
        cecl_nodes_words(nodes, words);
    free(nodes);
    return words;
}

static void expect_refused(ceclResult_t result, const char *words)
{
    assert_int_equal(cecl_hellos_compare(hellos, count), result);
    if (!strstr(cecl_message(), words))
        fail_msg("'%s' does not say '%s'", cecl_message(), words);
}

static void hosts_are_nodes(void **state)
{
    meet("aaaa");
    assert_string_equal(layout(), "1 node");
    meet("aabb");
    assert_string_equal(layout(), "2 nodes of 2 ranks");
    meet("aaabbbbb");
    assert_string_equal(layout(), "2 nodes of 3 + 5 ranks");
    meet("abcd");
    assert_string_equal(layout(), "4 nodes of 1 ranks");
}

static void hosts_are_numbered_by_their_first_ranks(void **state)
{
    uint16_t host[MOST];
    static const uint16_t wanted[] = {0, 1, 0, 2, 1};
    meet("zbzab");
    assert_int_equal(cecl_hellos_hosts(hellos, count, host), 3);
    assert_memory_equal(host, wanted, sizeof(wanted));
    struct cecl_nodes *nodes;
    assert_int_equal(cecl_hellos_nodes(hellos, count, &nodes), ceclSuccess);
    assert_memory_equal(nodes->node, wanted, sizeof(wanted));
    free(nodes);
}

static void pretended_nodes_lie_within_hosts(void **state)
{
    meet("aaaabbbb");
    set_sizes("2");
    assert_string_equal(layout(), "4 nodes of 2 ranks");
    set_sizes("1,3,4");
    assert_string_equal(layout(), "3 nodes of 1 + 3 + 4 ranks");
    set_sizes("3");
    expect_refused(ceclInvalidArgument, "ranks 3 and 4 would be on one node");
    expect_refused(ceclInvalidArgument, "2 nodes of 4 ranks");
    set_sizes("3,5");
    expect_refused(ceclInvalidArgument, "CECL_NODE_SIZE=3,5: ranks 3 and 4 would be on one node");
}

static void child_has_the_nodes_of_its_parent(void **state)
{
    meet("abb");
    hellos[0].config.node = 1; /* node 0 has no member */
    hellos[1].config.node = hellos[2].config.node = 2;
    assert_string_equal(layout(), "2 nodes of 1 + 2 ranks");
}

static void odd_version_is_named(void **state)
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

static void rank_that_is_no_rank_of_cecl_is_named(void **state)
{
    meet("aab");
    memset(&hellos[1], 0x5a, sizeof(hellos[1]));
    expect_refused(ceclInvalidUsage, "rank 1 has a different version of cecl");
}

static void odd_settings_are_named(void **state)
{
    meet("aabb");
    hellos[2].config.timeout_ms += 1;
    expect_refused(ceclInvalidArgument, "ranks differ in timeoutMs");
    expect_refused(ceclInvalidArgument, "on rank 2");
    meet("aabb");
    strcpy(hellos[1].config.node_sizes, "2");
    expect_refused(ceclInvalidArgument, "CECL_NODE_SIZE: 2 on rank 1, not set on most others");
    meet("aabb");
    hellos[2].config.node = CECL_MAX_RANKS;
    expect_refused(ceclInternalError, "rank 2 introduced itself with a broken layout");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_are_nodes),
        cmocka_unit_test(hosts_are_numbered_by_their_first_ranks),
        cmocka_unit_test(pretended_nodes_lie_within_hosts),
        cmocka_unit_test(child_has_the_nodes_of_its_parent),
        cmocka_unit_test(odd_version_is_named),
        cmocka_unit_test(rank_that_is_no_rank_of_cecl_is_named),
        cmocka_unit_test(odd_settings_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
