#!/usr/bin/env bash
# A training that is saved and resumed has, bit for bit, the losses of one that was not interrupted.
# EXAMPLE MPIRUN...
# shellcheck source=examples/fsdp_train/test_common.sh
. "$(dirname "$0")/test_common.sh"

for ranks in 1 3; do
    rm -rf "$work/kept"
    run $ranks --steps 25 --json "$work/through"
    run $ranks --steps 7 --checkpoint "$work/kept"
    run $ranks --steps 18 --checkpoint "$work/kept" --resume --save-every 5
    run $ranks --steps 25 --checkpoint "$work/kept" --resume --json "$work/resumed"
    [ "$(losses "$work/resumed" | wc -l)" -eq 7 ] || fail "7 losses expected: step 18 to 25"
    cmp <(losses "$work/through" | tail -n 7) <(losses "$work/resumed") ||
        fail "$ranks ranks: the losses after resuming differ"
    # One checkpoint is left: a file of each rank, and the name of the step.
    [ "$(find "$work/kept" -type f | wc -l)" -eq $((ranks + 1)) ] ||
        fail "old files are left: $(ls "$work/kept")"
done
