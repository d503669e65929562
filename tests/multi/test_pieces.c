/* Between calls, pieces of memory in one range are replaced, swapped, added and removed. Calls give the right bytes. */
#include "given.h"

enum { GPU_ROUNDS = 1200, HOST_ROUNDS = 300 };
enum { PLACES = 5, LEAST = 2, BLOCK = 1500, WHOLE_EVERY = 50 };

/* A range of addresses. Its pieces lie side by side from its start on. */
struct range {
    const struct memory_pieces *ops;
    unsigned char *at;
    size_t piece; /* bytes */
    uint64_t pieces[PLACES];
    size_t count;
};

static void put_piece(struct range *range, size_t place)
{
    range->ops->map(given_comm, range->at + place * range->piece, range->pieces[place],
                    range->piece);
}

static void take_piece(struct range *range, size_t place)
{
    range->ops->unmap(given_comm, range->at + place * range->piece, range->piece);
}

static void grow(struct range *range)
{
    range->pieces[range->count] = range->ops->make(given_comm, range->piece);
    put_piece(range, range->count++);
}

static void shrink(struct range *range)
{
    take_piece(range, --range->count);
    range->ops->free(given_comm, range->pieces[range->count]);
}

static void replace(struct range *range, size_t place)
{
    take_piece(range, place);
    range->ops->free(given_comm, range->pieces[place]);
    range->pieces[place] = range->ops->make(given_comm, range->piece);
    put_piece(range, place);
}

static void swap(struct range *range, size_t a, size_t b)
{
    const uint64_t piece = range->pieces[a];
    take_piece(range, a);
    if (a != b)
        take_piece(range, b);
    range->pieces[a] = range->pieces[b];
    range->pieces[b] = piece;
    put_piece(range, a);
    if (a != b)
        put_piece(range, b);
}

static void change_pieces(struct range *range, uint64_t *own)
{
    const size_t a = multi_draw(own) % range->count, b = multi_draw(own) % range->count;
    switch (multi_draw(own) % 5) {
    case 0: replace(range, a); break;
    case 1: swap(range, a, b); break;
    case 2:
        if (range->count < PLACES)
            grow(range);
        break;
    case 3:
        if (range->count > LEAST)
            shrink(range);
        break;
    default: break; /* no change */
    }
}

/* Calls on a buffer that lies across a seam of two pieces, within a piece, or over two whole pieces. On the host device a
 * piece is a mapping of its own, and a registered buffer must lie within one. */
static void call_on_pieces(struct range *range, uint64_t round, uint64_t *all, uint64_t *own)
{
    const enum given_role role = (enum given_role)(multi_draw(all) % ROLES);
    const bool over_a_seam = multi_draw(all) % 2 == 0, whole = round % WHOLE_EVERY == 0;
    const size_t nranks = (size_t)multi_nranks;
    const size_t bytes = whole ? 2 * range->piece / nranks * nranks : nranks * BLOCK;
    const size_t seams = range->count - 1;
    size_t begin = multi_draw(own) % seams * range->piece;
    if (!whole && over_a_seam)
        begin += range->piece - 1 - multi_draw(own) % (bytes - 1);
    else if (!whole)
        begin += multi_draw(own) % 2 * range->piece + multi_draw(own) % (range->piece - bytes + 1);
    unsigned char *at = range->at + begin;
    if (!multi_on_gpus(given_comm) && given_mode == ON_USE && (whole || over_a_seam)) {
        given_refused(role, at, bytes, GIVEN_ENDS);
        return;
    }
    given_fill(role, at, bytes, round);
    multi_ok(given_comm, given_call(role, at, bytes));
    given_check(role, at, bytes, round);
}

static void let_pieces_come_and_go(enum given_mode how)
{
    uint64_t all = 4711, own = 815 + (uint64_t)multi_rank;
    given_open(how, 2);
    struct range range = {.ops = memory_pieces(given_comm)};
    const size_t least = (size_t)multi_nranks * BLOCK, granule = range.ops->granule(given_comm);
    range.piece = (least + granule - 1) / granule * granule;
    range.at = range.ops->reserve(given_comm, PLACES * range.piece);
    given_close();
    given_open(how, 2 * range.piece);
    while (range.count < LEAST + 1)
        grow(&range);
    const uint64_t rounds = multi_on_gpus(given_comm) ? GPU_ROUNDS : HOST_ROUNDS;
    for (uint64_t round = 0; round < rounds; round++) {
        call_on_pieces(&range, round, &all, &own);
        change_pieces(&range, &own);
    }
    while (range.count > 0)
        shrink(&range);
    range.ops->unreserve(given_comm, range.at, PLACES * range.piece);
    given_close();
}

TEST(pieces_come_and_go_between_calls)
{
    let_pieces_come_and_go(ON_USE);
}

TEST(pieces_that_are_not_registered_come_and_go_between_calls)
{
    let_pieces_come_and_go(PRIVATE);
}
