#!/usr/bin/env bash
# If the global batch is the same, 2 and 4 ranks have in each step the loss of 1 rank, up to rounding: with
# and without overlap, and for each number of layers that are gathered ahead. EXAMPLE MPIRUN...
# shellcheck source=examples/fsdp_train/test_common.sh
. "$(dirname "$0")/test_common.sh"

# Losses, which begin at about 5.5, may differ by a millionth.
equal() {
    near "$work/1" "$1" 30 5.5e-6 0.8
}

run 1 --batch 4 --steps 30 --json "$work/1"
run 2 --batch 2 --steps 30 --json "$work/2"
equal "$work/2"
run 4 --batch 1 --steps 30 --json "$work/4"
equal "$work/4"
run 4 --batch 1 --steps 30 --prefetch 2 --json "$work/4-prefetch-2"
equal "$work/4-prefetch-2"
run 4 --batch 1 --steps 30 --no-overlap --json "$work/4-no-overlap"
equal "$work/4-no-overlap"
# Prefetch and overlap only change the order of the work: all losses stay the same, bit for bit.
cmp <(losses "$work/4") <(losses "$work/4-prefetch-2") || fail "prefetch 2 changes losses"
cmp <(losses "$work/4") <(losses "$work/4-no-overlap") || fail "overlap changes losses"
# Another order of the data gives other losses: the comparison must notice it.
run 1 --batch 4 --steps 30 --seed 2 --json "$work/other"
! (equal "$work/other") >/dev/null || fail "another seed has the same losses"

# --comm none keeps the parameters that its first step gathered: the first loss is the same, later ones differ.
run 4 --batch 1 --steps 30 --comm none --json "$work/none"
cmp <(losses "$work/4" | head -n 1) <(losses "$work/none" | head -n 1) || fail "none: first loss"
! (equal "$work/none") >/dev/null || fail "none: all losses are equal"
grep -q '"received_bytes": 0' "$work/none" || fail "none: bytes are received"
