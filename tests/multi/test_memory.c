/* Kept plans, and memory that is replaced at the same address; the host's time of calls whose peers are late. Random calls
 * on memory of all kinds are in test_mixed.c. */
#include "memory.h"
#include "random_call.h"

/* Repeats the same calls with the same pointers, so that plans are kept. Rank after rank replaces
 * its memory at these addresses. */
TEST(memory_allocated_anew_at_the_same_address_is_used)
{
    enum { CALLS = 4, SLACK = 10, SPREAD = 5000 };
    static const enum kind kinds[CALLS] = {ALL_GATHER, ALL_TO_ALL, ALL_REDUCE, BROADCAST};
    static struct random_slot slots[CALLS];
    struct memory send[CALLS], recv[CALLS];
    ceclComm_t comm = multi_comm(NULL);
    unsigned char *host = malloc(random_room());
    const int rounds = multi_share(300);
    uint64_t x = 7;
    int descriptors = 0, lines = 0;
    assert_non_null(host);
    for (int round = 0; round < rounds; round++) {
        const int i = round % CALLS;
        struct random_call *c = &slots[i].call;
        if (round < CALLS) {
            *c = (struct random_call){.rank = multi_rank, .nranks = multi_nranks};
            assert_non_null(slots[i].want = malloc(random_room()));
            send[i] = memory_new(comm, MEMORY_SHARED, random_room() + SPREAD);
            recv[i] = memory_new(comm, MEMORY_SHARED, random_room() + SPREAD);
            do
                random_draw_of(c, kinds[i], &x);
            while (random_received(c) == 0 || c->in_place);
        } else if (round / CALLS % multi_nranks == multi_rank) {
            memory_renew(comm, &send[i], round % 3 == 0 ? MEMORY_PRIVATE : MEMORY_SHARED);
            memory_renew(comm, &recv[i], MEMORY_SHARED);
        }
        ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
        options.smPolicy = CECL_SM_ALLOW;
        options.direction = round / CALLS % 2 ? CECL_DIRECTION_PULL : CECL_DIRECTION_PUSH;
        multi_ok(comm, ceclSetOptions(comm, &options));
        c->seed = random_next(&x);
        c->send = send[i].at + 256;
        c->recv = recv[i].at + 512 + 256 * multi_rank;
        slots[i].bytes = random_bytes_received(c);
        random_set_places(c, RANDOM_GUARD);
        random_put(comm, &slots[i], host);
        multi_ok(comm, random_make(comm, c, false));
        multi_ok(comm, ceclStreamSynchronize(comm, NULL));
        random_compare(comm, &slots[i], host);
        if (round == rounds / 5) { /* one-time setup is complete now */
            descriptors = multi_descriptors();
            lines = multi_mappings();
        }
    }
    multi_no_growth(multi_descriptors, descriptors, SLACK, "descriptors");
    multi_no_growth(multi_mappings, lines, SLACK, "mappings");
    for (int i = 0; i < CALLS; i++) {
        free(slots[i].want);
        memory_free(comm, &send[i]);
        memory_free(comm, &recv[i]);
    }
    free(host);
    multi_ok(NULL, ceclCommDestroy(comm));
}

TEST(a_late_rank_does_not_hold_up_its_peers_hosts)
{
    enum { TRIES = 11, CALLS = 3, BLOCK = 1000 };
    const unsigned late_us = 100000;
    const double limit = 40e-3;
    ceclComm_t comm = multi_comm(NULL);
    struct memory m = memory_new(comm, MEMORY_SHARED, (size_t)multi_nranks * BLOCK);
    double least = 1;
    for (int try = -1; try < TRIES; try++) { /* the first try opens the memory on peers */
        const bool late = (try + multi_nranks) % multi_nranks == multi_rank;
        MPI_Barrier(MPI_COMM_WORLD);
        if (late)
            usleep(late_us);
        const double begin = multi_seconds();
        for (int i = 0; i < CALLS; i++)
            multi_ok(comm,
                     ceclAllGather(m.at + multi_rank * BLOCK, m.at, BLOCK, ceclInt8, comm, NULL));
        const double took = multi_seconds() - begin;
        if (!late && try >= 0 && took < least)
            least = took;
        multi_ok(comm, ceclStreamSynchronize(comm, NULL));
    }
    /* A busy machine delays most tries; waiting for a late rank would delay every try. */
    if (least > limit)
        fail_msg("rank %d: %d early calls take their host %.3f ms, a rank is late by %.0f ms",
                 multi_rank, CALLS, least * 1e3, late_us * 1e-3);
    memory_free(comm, &m);
    multi_ok(NULL, ceclCommDestroy(comm));
}
