#!/usr/bin/env bash
# Builds cecl on a machine with GPUs, runs the GPU tests, and measures what docs/measurements.md records.
# measure.sh [tests|quick|data|train|faults|full]   default: full
# measure.sh only NAME...
#   tests  only the GPU tests
#   quick  the GPU tests and a few sizes
#   full   the GPU tests and all measurements except the training
#   data   the measurements that the charts show (docs/data/README.md), without tests
#   train  only the training, without tests
#   faults only tests of failing ranks: with few and with many hardware queues; a part of the fault suite; a soak
#   only   only the named measurements, without tests: all_gather alltoall allowed_sms reductions messages queues graphs
#          puts splits published
# Environment:
#   CECL_CMOCKA_ROOT  folder with the content of a cmocka package, if none is installed; without cmocka no tests run
#   OUT               folder for the results
#   SOAK_SECONDS (180)  how long the soak takes
#   TRAIN_ROUNDS (3), TRAIN_COMMS (cecl,nccl,nccl-ce,none)  the training's rounds and libraries
# Ends with 1 if a test or a measurement failed, for example by a wrong byte; the others are made nevertheless.
set -uo pipefail
mode=${1:-full}
root=$(cd -- "$(dirname -- "$0")/.." && pwd)
build=$root/build/measure
out=${OUT:-$build}
gpus=$(nvidia-smi -L | grep -c '^GPU')
export PATH=$PATH:/usr/local/cuda/bin
export LD_LIBRARY_PATH=/usr/local/cuda/lib64:${LD_LIBRARY_PATH:-}
export CECL_DEVICE=cuda NCCL_NVLS_ENABLE=0 # NVLink multicast stays off
run="mpirun --allow-run-as-root --oversubscribe --bind-to none --mca btl self,vader"

tests=OFF examples=OFF bench=ON
case $mode in
tests | quick | full | faults)
    if [ -n "${CECL_CMOCKA_ROOT:-}" ] || [ -e /usr/include/cmocka.h ]; then
        tests=ON
    elif [ "$mode" = tests ] || [ "$mode" = faults ]; then
        echo "measure.sh: no cmocka, so no tests: install it (Debian: libcmocka-dev), or set CECL_CMOCKA_ROOT" >&2
        exit 2
    fi
    ;;
data) ;;
only)
    [ $# -gt 1 ] || set -- only nothing
    for name in "${@:2}"; do
        case $name in
        all_gather | alltoall | allowed_sms | reductions | messages | queues | graphs | published) ;;
        puts | splits) ;;
        *)
            echo "measure.sh: only: $name is not a measurement" >&2
            exit 2
            ;;
        esac
    done
    ;;
train) bench=OFF ;;
*) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
case $mode in
quick | faults | only) ;;
*) examples=ON ;; # for the examples' tests, or for the training
esac
mkdir -p "$out"
cmake -S "$root" -B "$build" -DCECL_CUDA=ON -DCECL_MPI=ON -DCECL_BASELINE_NCCL=ON -DCECL_TESTS=$tests \
    -DCECL_CMOCKA_ROOT="${CECL_CMOCKA_ROOT:-}" -DCECL_EXAMPLES=$examples -DCECL_BENCH=$bench >"$out/build.log" 2>&1 &&
    cmake --build "$build" -j16 >>"$out/build.log" 2>&1 || { tail -n 30 "$out/build.log"; exit 1; }
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1

[ -z "${CECL_CMOCKA_ROOT:-}" ] || export LD_LIBRARY_PATH=$CECL_CMOCKA_ROOT/usr/lib/x86_64-linux-gnu:$LD_LIBRARY_PATH
failed=0
if [ $tests = ON ] && [ "$mode" != faults ]; then
    export CECL_TEST_BIG=1
    (cd "$build" && ctest -L '^gpu$' --output-on-failure -j1 2>&1) | tee "$out/gpu_tests.log" | tail -n ${TEST_LINES:-40} || failed=1
fi

[ "$mode" != tests ] || exit $failed

# ranks LOG PROGRAM OPTION...: runs a rank on each GPU.
ranks() {
    local log=$1 program=$2
    shift 2
    echo "\$ ${program##*/} $*"
    $run -n "$gpus" "$build/$program" "$@" 2>&1 | tee -a "$out/$log.log" && return
    echo "FAILED: ${program##*/} $*"
    failed=1
}
perf() { ranks perf bench/cecl_perf "$@"; }
overlap() { ranks overlap bench/cecl_overlap "$@"; }
all_gather() { perf --op all_gather -b 4K -e 256M -f 4 --rounds 11 -n 20 --baseline nccl,nccl-ce --enqueue --alloc --json "$out/all_gather.json"; }
alltoall() { perf --op alltoall -b 64K -e 256M -f 4 --rounds 11 -n 20 --baseline nccl,nccl-ce --json "$out/alltoall.json"; }
reductions() {
    local op
    for op in all_reduce reduce_scatter; do
        local place=--out-of-place
        [ $op = reduce_scatter ] || place=--in-place
        perf --op $op --type bfloat16 -b 4K -e 256K -f 4 -n 50 --rounds 9 --baseline nccl,nccl-ce $place
        perf --op $op --type bfloat16 -b 1M -e 256M -f 4 -n 12 --rounds 9 -c 0 --baseline nccl,nccl-ce $place
    done
    CECL_MAX_SMS=8 perf --op reduce_scatter --type bfloat16 -b 256M -e 256M -n 12 --rounds 9 -c 0 --baseline nccl --out-of-place
    perf --op all_reduce --type bfloat16 -b 128M -e 512M -f 2 -n 12 --rounds 9 -c 0 --baseline nccl,nccl-ce --in-place
    perf --op all_reduce --type bfloat16 -b 1G -e 1G -n 12 --rounds 9 -c 0 --baseline nccl,nccl-ce --in-place
}
allowed_sms() {
    CECL_SM_POLICY=allow perf --op all_gather -b 4K -e 256K -f 4 -n 50 --rounds 9 --baseline nccl,nccl-ce --in-place
    CECL_SM_POLICY=allow perf --op alltoall -b 16K -e 1M -f 4 -n 50 --rounds 9 --baseline nccl,nccl-ce
    CECL_SM_POLICY=allow perf --op alltoall -b 4M -e 1G -f 4 --rounds 7 -n 10 --baseline nccl,nccl-ce
    CECL_SM_POLICY=allow perf --op all_gather -b 1M -e 256M -f 4 --rounds 9 -n 20 --baseline nccl,nccl-ce --out-of-place
}
messages() {
    local op
    for op in sendrecv send; do
        perf --op $op --memory malloc -b 256 -e 1M -f 4 -n 100 --rounds 9 --enqueue --baseline nccl
        perf --op $op --memory malloc -b 4M -e 256M -f 4 -n 20 --rounds 9 --baseline nccl
    done
}
# Each side is measured twice: eager, and captured. A graph has one call, or many small ones.
graphs() {
    perf --op all_gather -b 4K -e 64M -f 4 -n 40 --rounds 9 --graph 1 --enqueue --baseline nccl,nccl-ce
    perf --op all_gather -b 1M -e 1M -n 64 --rounds 9 --graph 64 --in-place --baseline nccl,nccl-ce
    perf --op alltoall -b 64K -e 64M -f 8 -n 40 --rounds 9 --graph 1 --baseline nccl,nccl-ce
    perf --op all_reduce --type bfloat16 -b 4K -e 64M -f 8 -n 40 --rounds 9 --graph 1 --in-place --baseline nccl,nccl-ce
}
puts() {
    perf --op put -b 256 -e 1M -f 4 -n 100 --rounds 9 --enqueue --baseline nccl
    perf --op put -b 4M -e 256M -f 4 -n 20 --rounds 9 --baseline nccl
}
# The largest size is 448 MiB a rank: 4,096 tokens of 7,168 bfloat16, each sent to 8 experts.
splits() {
    local op
    for op in alltoallv_device dispatch combine; do
        CECL_SM_POLICY=allow perf --op $op --type bfloat16 -b 448K -e 448M -f 4 -n 20 --rounds 9 --baseline nccl
    done
}
# With 32 hardware queues, and with one: a waiting stream blocks its queue.
queues() {
    local few
    for few in 32 1 32 1; do
        echo "CUDA_DEVICE_MAX_CONNECTIONS=$few"
        CUDA_DEVICE_MAX_CONNECTIONS=$few overlap -b 64M -e 64M --rounds 7
    done
}
# tell NAME COMMAND...: prints one line on how the command ended, and the end of its log if it failed.
tell() {
    local name=$1 start=$SECONDS
    shift
    if "$@" >"$out/$name.log" 2>&1; then
        echo "$name: passed, $((SECONDS - start)) s"
    else
        echo "$name: FAILED ($?), $((SECONDS - start)) s"
        failed=1
        tail -n 15 "$out/$name.log"
    fi
}
faults() {
    local connections
    export CECL_TEST_DEVICE=cuda CECL_SHARE_GPU=1
    for connections in 8 32; do
        tell "release_$connections" env CUDA_DEVICE_MAX_CONNECTIONS=$connections \
            timeout 120 "$build/tests/test_cuda_release"
    done
    tell queue_tests ctest --test-dir "$build" -R '_queue$' --no-tests=error -j1 --output-on-failure --timeout 120
    for connections in 1 8; do
        tell "failure_$connections" env CUDA_DEVICE_MAX_CONNECTIONS=$connections timeout 120 "$build/tests/test_failure"
    done
    tell fault_cases timeout 240 "$build/tests/fault_cases" --part 5/20 --jobs 4
    tell soak timeout $((SOAK_SECONDS + 120)) $run -n "$gpus" "$build/tests/soak/cecl_soak" "$SOAK_SECONDS"
    tail -n 8 "$out/soak.log"
}
SOAK_SECONDS=${SOAK_SECONDS:-180}
published() { overlap --preset published --json "$out/overlap_published.json"; }
# Each run trains about a billion parameters for 33 steps; the first 3 are not counted.
train() {
    "$root/scripts/compare_training.sh" "$out" "${TRAIN_ROUNDS:-3}" "${TRAIN_COMMS:-cecl,nccl,nccl-ce,none}" $run -n "$gpus" \
        "$build/examples/example_fsdp_train" --layers 20 --width 2048 --heads 16 --sequence 1024 --rate 300 --steps 33
}

case $mode in
train) train; exit ;;
faults) faults; exit $failed ;;
only)
    for name in "${@:2}"; do
        "$name" || failed=1
    done
    exit $failed
    ;;
data) published; train || failed=1; exit $failed ;;
esac
if [ "$mode" = quick ]; then
    perf --op all_gather -b 4K -e 256M -f 4 --rounds 5 -n 10 --baseline nccl,nccl-ce --enqueue
    perf --op alltoall -b 64M -e 256M -f 4 --rounds 5 -n 10 --baseline nccl,nccl-ce
else
    all_gather
    alltoall
    allowed_sms
    reductions
    messages
    queues
    graphs
    puts
    splits
    perf -b 64K -e 64K --rounds 9 --group 64
    perf -b 64M -e 64M --rounds 9 --rows 2048
    overlap
    overlap --op alltoall -b 64M -e 256M -f 2
    overlap --op reduce_scatter -b 16M -e 64M -f 2 --json "$out/overlap_reduce_scatter.json"
    published
    overlap --hostcopies -b 64M -e 64M --rounds 11
    CECL_FLAGS=host perf --op all_gather -b 4K -e 256M -f 16 --rounds 7 -n 20 --in-place --baseline nccl-ce --enqueue
    ranks prefetch examples/example_prefetch --steps 10
    ranks prefetch examples/example_prefetch --steps 10 --in-place
    CECL_DIRECTION=pull perf --op all_gather -b 4K -e 256M -f 16 --rounds 7 -n 20
fi
exit $failed
