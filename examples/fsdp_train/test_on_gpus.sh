#!/usr/bin/env bash
# On two GPUs prefetch and overlap change no bit of the losses. Up to bfloat16's rounding the losses are
# those of one GPU, of the host, and of NCCL if the build has it. EXAMPLE MPIRUN...
# shellcheck source=examples/fsdp_train/test_common.sh
. "$(dirname "$0")/test_common.sh"
tiny=(--layers 3 --width 256 --heads 4 --sequence 128 --rate 2000)

run 2 --batch 4 --steps 40 --json "$work/2"
run 2 --batch 4 --steps 40 --prefetch 3 --json "$work/prefetch"
cmp <(losses "$work/2") <(losses "$work/prefetch") || fail "prefetch 3 changes losses"
run 2 --batch 4 --steps 40 --no-overlap --json "$work/no-overlap"
cmp <(losses "$work/2") <(losses "$work/no-overlap") || fail "overlap changes losses"
run 1 --batch 8 --steps 40 --json "$work/1"
near "$work/2" "$work/1" 40 0.02 0.6

# The host computes in float, with other code. Its first ten losses are equal up to bfloat16's rounding.
CECL_DEVICE=host run 2 --batch 4 --steps 10 --json "$work/host"
near "$work/host" "$work/2" 10 0.02 1

if grep -aq ncclCommInitRankConfig "$example"; then
    for kind in nccl nccl-ce; do
        run 2 --batch 4 --steps 40 --comm $kind --json "$work/$kind"
        near "$work/2" "$work/$kind" 40 0.02 0.6
    done
fi
