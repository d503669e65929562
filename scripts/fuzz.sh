#!/usr/bin/env bash
# fuzz.sh [--build] [--seed N] [SECONDS] [NAME...]: builds the fuzzers with clang's libFuzzer, and runs each from
# its corpus for SECONDS (20), two at a time. Default: a new seed in each run, and all fuzzers of tests/fuzz.
# --build: only builds. An input that ends a run stays in build/fuzz, and the command that repeats it is printed.
# Inputs that reach new code are in build/fuzz/new/NAME.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/common.sh
. "$root/scripts/common.sh"
seed=0 # 0: libFuzzer draws one
only_build=0
if [ "${1-}" = --build ]; then
    only_build=1
    shift
fi
if [ "${1-}" = --seed ]; then
    seed=${2:?a number expected after --seed}
    shift 2
fi
seconds=${1:-20}
[ $# -eq 0 ] || shift
names=("$@")
[ ${#names[@]} -gt 0 ] || names=(nccl trials api plan mesh bootstrap settings)
build=$root/build/fuzz
export UBSAN_OPTIONS=print_stacktrace=1

build "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_C_COMPILER=clang -DCECL_FUZZ=ON \
    -DCECL_WERROR=ON -DCECL_CUDA=OFF -DCECL_MPI=OFF -DCECL_BASELINE_NCCL=OFF -DCECL_TESTS=OFF \
    -DCECL_BENCH=OFF -DCECL_EXAMPLES=OFF
[ $only_build = 0 ] || exit 0

# run NAME: runs one fuzzer. If an input takes 150 s, a wait has no end: the library's time limits are 60 s.
run() {
    local name=$1 log=$build/$1.log found
    rm -rf "$build/new/$name" "$build/$name"-*
    mkdir -p "$build/new/$name"
    if "$build/fuzzers/fuzz_$name" -seed="$seed" -max_total_time="$seconds" -timeout=150 \
        -rss_limit_mb=4096 -max_len=600 -len_control=0 -artifact_prefix="$build/$name-" "$build/new/$name" \
        "$root/tests/fuzz/corpus/$name" >"$log" 2>&1; then
        echo "$name: $(sed -n 's/^Done \(.*\)/\1/p' "$log"), $(sed -n 's/^INFO: Seed:/seed/p' "$log")"
        return
    fi
    tail -n 60 "$log" >&2
    echo "$name: a finding; all of the output is in $log" >&2
    for found in "$build/$name"-*; do
        [ ! -e "$found" ] || echo "    repeat it: $build/fuzzers/fuzz_$name $found" >&2
    done
    return 1
}

status=0 running=0
for name in "${names[@]}"; do
    if [ "$running" -eq 2 ]; then
        wait -n || status=1
        running=1
    fi
    run "$name" &
    running=$((running + 1))
done
while [ "$running" -gt 0 ]; do
    wait -n || status=1
    running=$((running - 1))
done
exit $status
