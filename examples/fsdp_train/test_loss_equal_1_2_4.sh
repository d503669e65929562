#!/usr/bin/env bash
# For one global batch 2 and 4 ranks have the losses of 1 rank, step by step, up to rounding: with
# and without overlap, and with any number of layers gathered ahead. EXAMPLE MPIRUN...
# shellcheck source=examples/fsdp_train/test_common.sh
. "$(dirname "$0")/test_common.sh"

# equal FILE: its losses are those of $work/1, within a millionth; and they fall, so that they
# depend on gradients and not on the first parameters alone.
equal() {
    paste <(losses "$work/1") <(losses "$1") | awk -v name="$1" '
        { d = $1 > $2 ? $1 - $2 : $2 - $1; if (d > most) most = d; last = $2 }
        NR == 1 { first = $2 }
        END {
            printf "%s: %d losses, %s -> %s, differ by %.1e at most\n", name, NR, first, last, most
            exit !(NR == 30 && most < 1e-6 * first && last < 0.8 * first)
        }' || fail "losses differ, or do not fall"
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
# The order of the work must not change a bit.
cmp <(losses "$work/4") <(losses "$work/4-prefetch-2") || fail "prefetch 2 changes losses"
cmp <(losses "$work/4") <(losses "$work/4-no-overlap") || fail "overlap changes losses"
# With another order of the data the losses differ, so the comparison can fail.
run 1 --batch 4 --steps 30 --seed 2 --json "$work/other"
! (equal "$work/other") >/dev/null || fail "another seed has the same losses"
