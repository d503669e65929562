/* With which ranks an exchange of the network of GPUs is that runs or begins; see nccl.c. */
#include "net/nccl_internal.h"

static void peers_of(const struct cecl_net_transfer *list, uint32_t count, uint64_t sets[SETS])
{
    for (uint32_t i = 0; i < count; i++)
        sets[list[i].peer / 64] |= UINT64_C(1) << list[i].peer % 64;
}

static uint32_t word_of(const uint32_t *word)
{
    return atomic_load_explicit((const _Atomic uint32_t *)word, memory_order_acquire);
}

/* If the exchange that noted its peers in the same place is pending, they stay there, too. */
const _Atomic uint64_t *cecl_net_nccl_note(struct nccl *nccl, uint32_t number,
                                           const struct cecl_net_transfer *list, uint32_t count)
{
    _Atomic uint64_t *note = nccl->peers[number % NOTES];
    const bool is_pending = (int32_t)(word_of(nccl->ended) - (number - NOTES)) < 0;
    uint64_t sets[SETS] = {0};
    peers_of(list, count, sets);
    for (int i = 0; i < SETS; i++)
        atomic_store_explicit(
            &note[i],
            sets[i] | (is_pending ? atomic_load_explicit(&note[i], memory_order_relaxed) : 0),
            memory_order_relaxed);
    return note;
}

static bool is_same(const _Atomic uint64_t mine[SETS], const uint64_t sets[SETS])
{
    for (int i = 0; i < SETS; i++)
        if (atomic_load_explicit(&mine[i], memory_order_relaxed) != sets[i])
            return false;
    return true;
}

uint32_t cecl_net_nccl_note_captured(struct nccl *nccl, const struct cecl_net_transfer *list,
                                     uint32_t count)
{
    uint64_t sets[SETS] = {0};
    uint32_t at = 0;
    peers_of(list, count, sets);
    while (at < nccl->ncaptured && !is_same(nccl->captured[at], sets))
        at++;
    if (at == NOTES)
        at--;
    if (at == nccl->ncaptured)
        nccl->ncaptured++;
    for (int i = 0; i < SETS; i++)
        atomic_fetch_or(&nccl->captured[at][i], sets[i]);
    return at + 1;
}

static void list_peers(const struct nccl *nccl, const _Atomic uint64_t *peers,
                       struct cecl_rank_list *list)
{
    for (int r = 0; r < nccl->nranks; r++)
        if (atomic_load(&peers[r / 64]) >> r % 64 & 1)
            cecl_rank_list_add(list, r);
}

bool cecl_net_nccl_late(struct cecl_net *net, struct cecl_rank_list *list, uint32_t *moved)
{
    const struct nccl *nccl = (const struct nccl *)net;
    const uint32_t ended = word_of(nccl->ended), begun = word_of(nccl->begun),
                   captured = word_of(nccl->replays);
    *moved += begun + ended;
    if (begun == ended)
        return false;
    list_peers(nccl,
               captured > 0 ? nccl->captured[(captured - 1) % NOTES] : nccl->peers[begun % NOTES],
               list);
    return true;
}

bool cecl_net_nccl_begins(struct cecl_net *net, struct cecl_rank_list *list)
{
    const struct nccl *nccl = (const struct nccl *)net;
    const _Atomic uint64_t *peers = atomic_load(&nccl->beginning);
    if (peers)
        list_peers(nccl, peers, list);
    return peers;
}
