#!/usr/bin/env bash
# A bad option ends every rank with exit code 2, and one line names the option, its value and what was expected.
# A text that is too short, or a report that cannot be written, ends every rank with 1. EXAMPLE MPIRUN...
# shellcheck source=examples/fsdp_train/test_common.sh
. "$(dirname "$0")/test_common.sh"

# bad WORDS OPTION...
bad() {
    refuses 2 2 "$@"
    [ "$told" -eq 1 ] || fail "said $told times: $*"
}

bad "--layers 0: 1 to 1000 expected" --layers 0
bad "--width 12x: 8 to 65536 expected" --width 12x
bad "--width 12: a multiple of 8 expected" --width 12
bad "--heads 3: a divisor of --width 32 expected" --heads 3
bad "--batch 65536: batch x sequence x width" --batch 65536 --sequence 1024
bad "--steps 99999999999999999999: 1 to" --steps 99999999999999999999
bad "--seed -1: 0 to" --seed -1
bad "--comm mpi: cecl, nccl, nccl-ce or none expected" --comm mpi
bad "--prefetch 3: at most --layers 2 expected" --prefetch 3
bad "--no-such-option: no option" --no-such-option
bad "--json: a value expected" --json
# --comm nccl is refused without a GPU, and in a build without NCCL.
export CUDA_VISIBLE_DEVICES=
if grep -aq ncclCommInitRankConfig "$example"; then
    refuses 2 1 "rank 0: --comm nccl: a GPU for each rank expected" --comm nccl
else
    bad "--comm nccl: a build with CUDA and NCCL expected" --comm nccl
fi

# An error that only one rank finds ends all ranks.
refuses 2 1 "--json $work/no/such: No such file" --json "$work/no/such" --steps 1
refuses 2 1 "rank 1: " --batch 40000 --steps 1
