/* See gates.h. */
#include "flags/gates.h"

static uint32_t at(const struct cecl_flags *flags)
{
    return atomic_load_explicit((const _Atomic uint32_t *)flags->gates.at, memory_order_acquire);
}

/* As in cecl_flags_begin, the gate is counted before `silent` is read, so that either this thread sees
 * `silent`, or the watchdog sees the gate. */
bool cecl_gate_begin(struct cecl_flags *flags, uint32_t *word, uint32_t value,
                     struct cecl_memop ops[CECL_GATE_OPS])
{
    struct cecl_gates *gates = &flags->gates;
    const uint32_t n = atomic_load(&gates->made) + 1;
    struct cecl_gate *gate = &gates->list[n % CECL_GATES];
    atomic_store(&gate->word, (uintptr_t)word);
    atomic_store(&gate->value, value);
    atomic_store(&gates->made, n);
    ops[0] = (struct cecl_memop){gates->at, 2 * n - 2, CECL_MEMOP_WAIT}; /* the gate before */
    ops[1] = (struct cecl_memop){gates->at, 2 * n - 1, CECL_MEMOP_WRITE};
    ops[2] = (struct cecl_memop){word, value, CECL_MEMOP_WAIT};
    ops[3] = (struct cecl_memop){gates->at, 2 * n, CECL_MEMOP_WRITE};
    if (!atomic_load(&flags->silent))
        return true;
    cecl_gate_roll_back(flags);
    return false;
}

void cecl_gate_roll_back(struct cecl_flags *flags)
{
    atomic_fetch_sub(&flags->gates.made, 1);
}

/* Reads `at` first, because it is never ahead of a later `made`. */
static uint32_t count_pending(const struct cecl_flags *flags, uint32_t *made)
{
    const uint32_t now = at(flags);
    *made = atomic_load(&flags->gates.made);
    return (2 * *made - now + 1) / 2;
}

uint32_t cecl_gates_pending(const struct cecl_flags *flags)
{
    uint32_t made;
    return count_pending(flags, &made);
}

const struct cecl_gate *cecl_gate_now(const struct cecl_flags *flags)
{
    const uint32_t now = at(flags);
    return now % 2 == 0 ? NULL : &flags->gates.list[(now / 2 + 1) % CECL_GATES];
}

int64_t cecl_gates_look(struct cecl_flags *flags, int64_t now_ms)
{
    struct cecl_gates *gates = &flags->gates;
    const uint32_t now = at(flags);
    if (now % 2 == 0)
        return gates->since = 0;
    if (gates->since == 0 || now != gates->seen)
        gates->since = now_ms;
    gates->seen = now;
    return gates->since;
}

/* A word may belong to several gates. So the values are written in the order of the gates, and the last one
 * stays. */
void cecl_gates_release(const struct cecl_flags *flags)
{
    uint32_t made;
    for (uint32_t left = count_pending(flags, &made); left > 0; left--) {
        const struct cecl_gate *gate = &flags->gates.list[(made - left + 1) % CECL_GATES];
        (void)!flags->dev->ops->words_release(flags->dev, (uint32_t *)atomic_load(&gate->word), 1,
                                              atomic_load(&gate->value));
    }
}
