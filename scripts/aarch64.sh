#!/usr/bin/env bash
# aarch64.sh [WHEEL]: runs unit tests and, if a WHEEL is given, four ranks with it, in QEMU's emulator of aarch64,
# without kernels and GPUs. aarch64.sh --build only builds. On Debian, as root, it installs what it needs, also
# packages of the architecture arm64.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
cd -- "$root"
# shellcheck source=scripts/common.sh
. scripts/common.sh
folder=build/aarch64
emulator=(qemu-aarch64-static -L /)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# Tests that kill, stop or fork ranks, or look at a process's mappings, are left out: QEMU does this differently
# from Linux, or slowly.
tests=(bench blocks boot_mesh boot_tcp boot_trouble check_threads closing error flags frames history host_graph host_small
    host_stream host_words hosts launch lifeline model number one_sided_failure peer_table rank_words refusals registry
    settings siphash splits_behind splits_torch steady_state tuning turns waits)
# These take half of the emulator's time, so only .ci/nightly runs them.
[ "${CECL_TEST_SHARE:=4}" != 1 ] || tests+=(check_says graphs_end machine posts reduce_host shared_gpu small_host)
export CECL_TEST_SHARE

has_all() {
    command -v aarch64-linux-gnu-gcc qemu-aarch64-static >/dev/null && [ -e /usr/lib/aarch64-linux-gnu/libcmocka.so ]
}

install() {
    [ "$(id -u)" -eq 0 ] && command -v apt-get dpkg >/dev/null || return 1
    dpkg --add-architecture arm64 && apt-get -q update &&
        DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends gcc-aarch64-linux-gnu libc6-dev-arm64-cross \
            qemu-user-static libcmocka-dev:arm64
}

if ! has_all && { ! install >"$scratch/log" 2>&1 || ! has_all; }; then
    tail -n 3 "$scratch/log"
    echo "skipped: gcc-aarch64-linux-gnu, qemu-user-static and libcmocka-dev:arm64 are needed"
    exit 77
fi
for test in "${tests[@]}"; do
    [ -e "tests/unit/test_$test.c" ] || { echo "aarch64.sh: there is no tests/unit/test_$test.c" >&2; exit 1; }
done
# shellcheck disable=SC2034 # build's
targets=("${tests[@]/#/test_}")
build "$root/$folder" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG=-O1 -DCECL_WERROR=ON -DCECL_CUDA=OFF -DCECL_MPI=OFF \
    -DCECL_EXAMPLES=OFF -DCECL_BENCH=OFF -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
    -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc "-DCMAKE_CROSSCOMPILING_EMULATOR=$(command -v "${emulator[0]}");-L;/"
[ "${1:-}" != --build ] || exit 0
if [ -n "${1:-}" ]; then
    python3 -m zipfile -e "$1" "$scratch"
    perf=$scratch/cecl/bin/cecl_perf
    chmod +x "$perf"
    CECL_DEVICE=host "${emulator[@]}" "$perf" --ranks 4 -b 4K -e 64K -n 3 -w 1 --rounds 2 | tee "$scratch/log"
    grep -q '^# every byte right' "$scratch/log"
fi
# shellcheck disable=SC2154 # common.sh's
ctest --test-dir "$folder" -R "^test_($(IFS='|' && echo "${tests[*]}"))\$" --output-on-failure -j"$test_jobs"
