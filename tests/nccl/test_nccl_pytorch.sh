#!/bin/sh
# PyTorch, if installed, with cecl in NCCL's place, on two GPUs. With CECL_SHARE_GPU=1 one is enough; copies then use SMs.
# test_nccl_pytorch.sh CECL_RUN [hybrid | BACKEND]
#   hybrid   only the part `hybrid`, on four ranks, which pretend two hosts
#   BACKEND  one of PyTorch's names for its NCCL backend; with it the test only makes the calls
set -u
run=$1
backend=${2:-}
program=$(dirname -- "$0")/pytorch.py
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
export OMP_NUM_THREADS=4

if ! python3 -c 'import torch.distributed' 2>"$log/torch"; then
    echo "skipped: python3 has no PyTorch: $(tail -n 1 "$log/torch")"
    exit 77
fi

fail() {
    echo "FAILED: $1"
    cat "$log"/*
    exit 1
}

# Shards lie within a host, so their gathers are served. Copies lie on both hosts, so their reductions are passed.
if [ "$backend" = hybrid ]; then
    CECL_NODE_SIZE=2 "$run" --policy all --stats python3 -m torch.distributed.run --nproc-per-node 4 "$program" \
        hybrid >"$log/out" 2>&1 || fail "hybrid shards"
    grep '^ok' "$log/out"
    for op in ncclAllGather ncclReduceScatter; do
        grep -q "$op .* cecl " "$log/out" || fail "no $op of the shards was served"
    done
    grep -q 'ncclAllReduce .* NCCL ' "$log/out" || fail "no ncclAllReduce of the copies was passed"
    exit 0
fi

if [ -n "$backend" ]; then
    has='import sys, torch.distributed as d; sys.exit(sys.argv[1] not in d.Backend.backend_list)'
    if ! python3 -c "$has" "$backend" 2>"$log/torch"; then
        echo "skipped: this PyTorch has no backend $backend"
        exit 77
    fi
    export CECL_TEST_BACKEND="$backend"
fi

# parts MEMORY_SETTING: runs all parts but `lose`, with this setting of PyTorch's allocator
parts() {
    PYTORCH_CUDA_ALLOC_CONF=$1 "$run" --policy all --stats python3 -m torch.distributed.run \
        --nproc-per-node 2 "$program" >"$log/out" 2>&1 || fail "pytorch.py with '$1'"
    grep '^ok' "$log/out"
    for op in ncclAllGather ncclAlltoAll ncclReduceScatter ncclAllReduce ncclSend ncclRecv; do
        grep -q "$op .* cecl " "$log/out" || fail "$op was never served with '$1'"
    done
    for op in ncclAllGather ncclAllReduce; do
        grep -q "$op .* cecl .*captured" "$log/out" || fail "no captured $op was served with '$1'"
    done
    for op in ncclSend ncclRecv; do
        grep -q "$op .* NCCL .*captured" "$log/out" || fail "no captured $op was passed with '$1'"
    done
    if [ "${CECL_SHARE_GPU:-0}" != 1 ]; then
        grep 'ncclAllGather .* cecl ' "$log/out" | grep -vq ' yes ' && fail "a gather took SMs"
    fi
}

# Under these policies some calls of a group are served, and others are passed.
mixed_groups() {
    "$run" --policy auto --stats python3 -m torch.distributed.run --nproc-per-node 2 "$program" \
        group_streams >"$log/out" 2>&1 || fail "groups on several streams"
    grep '^ok' "$log/out"
    grep -q 'ncclAllGather .* cecl ' "$log/out" || fail "no gather of a group was served"
    grep -q 'ncclSend .* NCCL ' "$log/out" || fail "no message of a group was passed"
    CECL_SM_POLICY=never "$run" --policy all --stats python3 -m torch.distributed.run --nproc-per-node 2 \
        "$program" group_streams >"$log/out" 2>&1 || fail "groups whose sums are passed, on several streams"
    if [ "${CECL_SHARE_GPU:-0}" != 1 ]; then # otherwise copies use SMs, so gathers are passed, too
        grep -q 'ncclAllGather .* cecl ' "$log/out" || fail "no gather was served beside a passed sum"
    fi
    grep -q 'ncclAllReduce .* NCCL ' "$log/out" || fail "no sum of a group was passed"
}

# Kills a rank. The other one must end before the time limits of NCCL and PyTorch, which are minutes.
lose() {
    export MASTER_ADDR=127.0.0.1 MASTER_PORT=29577 WORLD_SIZE=2
    LOCAL_RANK=1 RANK=1 "$run" --policy all python3 "$program" lose >"$log/dead" 2>&1 &
    LOCAL_RANK=0 RANK=0 timeout 50 "$run" --policy all python3 "$program" lose >"$log/left" 2>&1
    [ $? -ne 124 ] || fail "the remaining rank hangs"
    wait
    grep -q 'rank 1 ended unexpectedly' "$log/left" || fail "no rank reports that rank 1 ended"
    grep '^ok' "$log/left"
}

parts 'expandable_segments:False'
[ -z "$backend" ] || exit 0
parts 'expandable_segments:True'
mixed_groups
lose
