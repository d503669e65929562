#!/usr/bin/env bash
# --comm none: the first step makes the calls of a training, and has its loss; later steps make no
# calls.
# EXAMPLE MPIRUN...
# shellcheck source=examples/fsdp_train/test_common.sh
. "$(dirname "$0")/test_common.sh"

# calls STEPS KIND: how many gathers and reduce-scatters rank 0 makes.
calls() {
    rm -f "$work"/trace*
    CECL_TRACE=$work/trace run 2 --steps "$1" --comm "$2" --json "$work/$2-$1"
    cat "$work"/trace*0* | grep -Ec '"ceclAllGather"|"ceclReduceScatter"'
}

one=$(calls 1 cecl) two=$(calls 2 cecl) alone=$(calls 12 none)
# the second step's first gathers are enqueued amid the first step's update
[ "$one" -eq 10 ] && [ "$alone" -ge "$one" ] && [ "$alone" -lt "$two" ] ||
    fail "calls: $one in one step, $two in two, $alone in 12 steps of which one communicates"
[ "$(losses "$work/cecl-2" | head -n 1)" = "$(losses "$work/none-12" | head -n 1)" ] ||
    fail "the first losses differ"
[ "$(losses "$work/none-12" | wc -l)" -eq 12 ] || fail "not 12 losses"
grep -q '"received_bytes": 0' "$work/none-12" || fail "bytes are received"
