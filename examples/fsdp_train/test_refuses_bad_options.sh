#!/usr/bin/env bash
# Each bad option ends every rank with 2, and one line names it, its value and what was expected.
# EXAMPLE MPIRUN...
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
bad "--batch -1: 1 to 65536 expected" --batch -1
bad "--batch 65536: batch x sequence x width" --batch 65536 --sequence 1024
bad "--sequence 1: 2 to 65536 expected" --sequence 1
bad "--steps 99999999999999999999: 1 to" --steps 99999999999999999999
bad "--lr 0: above 0, at most 1 expected" --lr 0
bad "--lr nan: above 0" --lr nan
bad "--seed -1: 0 to" --seed -1
bad "--comm mpi: cecl, nccl, nccl-ce or none expected" --comm mpi
bad "--prefetch 3: at most --layers 2 expected" --prefetch 3
bad "--sample 0: 1 to" --sample 0
bad "--save-every: --checkpoint DIR expected" --save-every 5
bad "--comm none: no --checkpoint and no --sample expected" --comm none --sample 5
bad "--comm none: no --checkpoint and no --sample expected" --comm none --checkpoint "$work/none"
bad "--resume: --checkpoint DIR expected" --resume
bad "--no-such-option: no option" --no-such-option
bad "--no-overlap=1: no option" --no-overlap=1
bad "--data: a value expected" --data
bad "surplus: only options expected" surplus
# NCCL does not run on the host: this build has none, or it finds no GPU.
export CUDA_VISIBLE_DEVICES=
if grep -aq ncclCommInitRankConfig "$example"; then
    refuses 2 1 "rank 0: --comm nccl: a GPU for each rank expected" --comm nccl
else
    bad "--comm nccl: this build has no NCCL (it needs CUDA and NCCL): cecl or none expected" --comm nccl
fi
