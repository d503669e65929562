/* Sub-allocation of an address range by a treap; see blocks.h. */
#include "alloc/blocks.h"

#include <stdlib.h>

struct cecl_block {
    uint64_t offset, bytes;
    /* offset at which this block's region starts; free neighbours merge only within one region */
    uint64_t region;
    uint64_t max_free; /* largest free block in this subtree */
    /* heap order of the treap; computed from the offset, so equal on all ranks */
    uint32_t priority;
    bool taken;
    struct cecl_block *left, *right;
};

/* A pseudo-random priority for an offset (the last step of a multiplicative hash). */
static uint32_t priority_of(uint64_t offset)
{
    uint64_t x = offset + 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)(x >> 32);
}

static uint64_t max_free_of(const struct cecl_block *node)
{
    return node ? node->max_free : 0;
}

static void update(struct cecl_block *node)
{
    uint64_t best = node->taken ? 0 : node->bytes;
    if (max_free_of(node->left) > best)
        best = node->left->max_free;
    if (max_free_of(node->right) > best)
        best = node->right->max_free;
    node->max_free = best;
}

/* Splits by offset: *low gets the nodes below `offset`, *high the others. */
static void split(struct cecl_block *node, uint64_t offset, struct cecl_block **low,
                  struct cecl_block **high)
{
    if (!node) {
        *low = *high = NULL;
    } else if (node->offset < offset) {
        split(node->right, offset, &node->right, high);
        *low = node;
        update(node);
    } else {
        split(node->left, offset, low, &node->left);
        *high = node;
        update(node);
    }
}

static struct cecl_block *merge(struct cecl_block *low, struct cecl_block *high)
{
    if (!low || !high)
        return low ? low : high;
    if (low->priority > high->priority) {
        low->right = merge(low->right, high);
        update(low);
        return low;
    }
    high->left = merge(low, high->left);
    update(high);
    return high;
}

static void insert(struct cecl_blocks *blocks, struct cecl_block *node)
{
    struct cecl_block *low, *high;
    split(blocks->root, node->offset, &low, &high);
    update(node);
    blocks->root = merge(merge(low, node), high);
}

/* Unlinks the node at `offset` and returns it. There must be one. */
static struct cecl_block *take_out(struct cecl_blocks *blocks, uint64_t offset)
{
    struct cecl_block *low, *node, *high;
    split(blocks->root, offset, &low, &high);
    split(high, offset + 1, &node, &high);
    blocks->root = merge(low, high);
    return node;
}

static struct cecl_block *node_new(struct cecl_blocks *blocks, uint64_t offset, uint64_t bytes,
                                   uint64_t region)
{
    struct cecl_block *node = blocks->spare;
    if (node)
        blocks->spare = node->right;
    else if (!(node = malloc(sizeof(*node))))
        return NULL;
    *node = (struct cecl_block){
        .offset = offset, .bytes = bytes, .region = region, .priority = priority_of(offset)};
    return node;
}

static void node_drop(struct cecl_blocks *blocks, struct cecl_block *node)
{
    node->left = NULL;
    node->right = blocks->spare;
    blocks->spare = node;
}

/* The last node that starts at or below `offset`, or NULL. */
static struct cecl_block *at_or_below(const struct cecl_blocks *blocks, uint64_t offset)
{
    struct cecl_block *best = NULL;
    for (struct cecl_block *node = blocks->root; node;) {
        if (node->offset <= offset) {
            best = node;
            node = node->right;
        } else {
            node = node->left;
        }
    }
    return best;
}

ceclResult_t cecl_blocks_reserve(struct cecl_blocks *blocks)
{
    struct cecl_block *region = node_new(blocks, 0, 0, 0), *rest = node_new(blocks, 0, 0, 0);
    if (region)
        node_drop(blocks, region);
    if (rest)
        node_drop(blocks, rest);
    return region && rest ? ceclSuccess
                          : cecl_fail(ceclOutOfMemory, "no host memory for the pool's table");
}

ceclResult_t cecl_blocks_add_region(struct cecl_blocks *blocks, uint64_t offset, uint64_t bytes)
{
    struct cecl_block *node = node_new(blocks, offset, bytes, offset);
    if (!node)
        return cecl_fail(ceclOutOfMemory, "no host memory for the pool's table");
    insert(blocks, node);
    return ceclSuccess;
}

bool cecl_blocks_take(struct cecl_blocks *blocks, uint64_t bytes, uint64_t *offset,
                      ceclResult_t *result)
{
    *result = ceclSuccess;
    if (max_free_of(blocks->root) < bytes)
        return false;

    struct cecl_block *node = blocks->root;
    for (;;) {
        if (max_free_of(node->left) >= bytes)
            node = node->left;
        else if (!node->taken && node->bytes >= bytes)
            break;
        else
            node = node->right;
    }

    struct cecl_block *rest = NULL;
    if (node->bytes > bytes) {
        rest = node_new(blocks, node->offset + bytes, node->bytes - bytes, node->region);
        if (!rest) {
            *result = cecl_fail(ceclOutOfMemory, "no host memory for the pool's table");
            return false;
        }
    }
    /* The node is taken out and inserted again, because max_free changes
     * on its path to the root. */
    node = take_out(blocks, node->offset);
    node->taken = true;
    node->bytes = bytes;
    insert(blocks, node);
    if (rest)
        insert(blocks, rest);
    blocks->used_bytes += bytes;
    blocks->used_blocks++;
    *offset = node->offset;
    return true;
}

bool cecl_blocks_give(struct cecl_blocks *blocks, uint64_t offset)
{
    struct cecl_block *node = at_or_below(blocks, offset);
    if (!node || node->offset != offset || !node->taken)
        return false;

    blocks->used_bytes -= node->bytes;
    blocks->used_blocks--;
    node = take_out(blocks, offset);
    node->taken = false;

    struct cecl_block *next = at_or_below(blocks, offset + node->bytes);
    if (next && next->offset == offset + node->bytes && !next->taken &&
        next->region == node->region) {
        next = take_out(blocks, next->offset);
        node->bytes += next->bytes;
        node_drop(blocks, next);
    }
    struct cecl_block *before = offset ? at_or_below(blocks, offset - 1) : NULL;
    if (before && !before->taken && before->region == node->region) {
        before = take_out(blocks, before->offset);
        before->bytes += node->bytes;
        node_drop(blocks, node);
        node = before;
    }
    insert(blocks, node);
    return true;
}

bool cecl_blocks_find(const struct cecl_blocks *blocks, uint64_t offset, uint64_t *start,
                      uint64_t *bytes)
{
    const struct cecl_block *node = at_or_below(blocks, offset);
    if (!node || !node->taken || offset - node->offset >= node->bytes)
        return false;
    *start = node->offset;
    *bytes = node->bytes;
    return true;
}

static void free_tree(struct cecl_block *node)
{
    if (!node)
        return;
    free_tree(node->left);
    free_tree(node->right);
    free(node);
}

void cecl_blocks_clear(struct cecl_blocks *blocks)
{
    free_tree(blocks->root);
    while (blocks->spare) {
        struct cecl_block *next = blocks->spare->right;
        free(blocks->spare);
        blocks->spare = next;
    }
    *blocks = (struct cecl_blocks){0};
}
