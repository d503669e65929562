#!/usr/bin/env bash
# On two GPUs: order and overlap change no bit, resuming is exact, and up to bfloat16's rounding the
# losses are those of one GPU, and those of NCCL if the build has it. EXAMPLE MPIRUN...
# shellcheck source=examples/fsdp_train/test_common.sh
. "$(dirname "$0")/test_common.sh"
tiny=(--layers 3 --width 256 --heads 4 --sequence 128 --lr 0.002)

# near FILE: losses of 40 steps within 2 hundredths of $work/2, and they fall.
near() {
    paste <(losses "$work/2") <(losses "$1") | awk -v name="$1" '
        { d = $1 > $2 ? $1 - $2 : $2 - $1; if (d > most) most = d; last = $2 }
        NR == 1 { first = $2 }
        END {
            printf "%s: %d losses, %s -> %s, differ by %.1e at most\n", name, NR, first, last, most
            exit !(NR == 40 && most < 0.02 && last < 0.6 * first)
        }' || fail "losses differ, or do not fall"
}

run 2 --batch 4 --steps 40 --json "$work/2"
near "$work/2"
run 2 --batch 4 --steps 40 --prefetch 3 --json "$work/prefetch"
cmp <(losses "$work/2") <(losses "$work/prefetch") || fail "prefetch 3 changes losses"
run 2 --batch 4 --steps 40 --no-overlap --json "$work/no-overlap"
cmp <(losses "$work/2") <(losses "$work/no-overlap") || fail "overlap changes losses"
run 1 --batch 8 --steps 40 --json "$work/1"
near "$work/1"

run 2 --batch 4 --steps 17 --checkpoint "$work/kept"
run 2 --batch 4 --steps 40 --checkpoint "$work/kept" --resume --json "$work/resumed" --sample 20
cmp <(losses "$work/2" | tail -n 23) <(losses "$work/resumed") || fail "resuming is not exact"

if grep -aq ncclCommInitRankConfig "$example"; then
    for kind in nccl nccl-ce; do
        run 2 --batch 4 --steps 40 --comm $kind --json "$work/$kind"
        near "$work/$kind"
    done
fi
