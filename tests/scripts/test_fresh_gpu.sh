#!/usr/bin/env bash
# test_fresh_gpu.sh SCRATCH_DIR: runs scripts/fresh_gpu.sh with sources, a GPU driver, CMake, MPI and Python that only
# print, and compares its table with what it should say.
# shellcheck disable=SC2016 # the programs expand these variables
set -uo pipefail
root=$(cd -- "$(dirname -- "$0")/../.." && pwd)
scratch=$1
rm -rf "$scratch"
mkdir -p "$scratch/sources/scripts" "$scratch/sources/cmake" "$scratch/bin"
scratch=$(cd -- "$scratch" && pwd)
sources=$scratch/sources
cp "$root/scripts/fresh_gpu.sh" "$sources/scripts/"
grep -E '^    (\./scripts/|cmake -S|mpirun |python3 -m pip install|cecl-run)' "$root/README.md" >"$sources/README.md"
failed=0

# program PATH COMMAND: a program that runs the command
program() {
    printf '#!/bin/sh\n%s\n' "$2" >"$1"
    chmod +x "$1"
}
program "$scratch/bin/nvidia-smi" 'case $1 in -L) echo "GPU 0"; echo "GPU 1" ;; *) echo "fake GPU" ;; esac'
program "$scratch/bin/cmake" '[ "$1" != -S ] || echo "-- cecl 1.0: CUDA ON"'
program "$scratch/bin/mpirun" 'n=4; case "$*" in *"-n 2"*) n=2 ;; esac; echo "rank 0 of $n: 8 numbers gathered, 0 wrong"'
program "$scratch/bin/cecl-run" 'for r in 0 1; do echo "rank $r: trained, every element right"; done; echo "ncclAllGather 3 cecl 3"'
program "$scratch/bin/python3" 'case "$*" in *"pip install ."*) echo "Successfully installed cecl-1.0" ;; esac'
program "$sources/scripts/demo.sh" '[ -z "$CPATH$CUDA_HOME" ] && [ "$NCCL_HERE" = 1 ] && echo "Shown: 2 ranks"'
program "$sources/scripts/test.sh" 'echo "all 7 tests that ran passed, 2 skipped: no NVLink ($*)"'
export PATH=$scratch/bin:$PATH CPATH=/nowhere CUDA_HOME=/nowhere NCCL_HERE=1

# expect STATUS LINE...: the script must end with STATUS, and its table must have these lines.
expect() {
    local status=0 wanted=$1 said
    shift
    said=$(timeout 50 "$sources/scripts/fresh_gpu.sh" 2>&1 </dev/null) || status=$?
    for line in "$@"; do
        [ "$status" -eq "$wanted" ] && grep -Eq -- "^$line" <<<"$said" && continue
        printf 'expected, with %s: %s\nsaid, with %s:\n%s\n\n' "$wanted" "$line" "$status" "$said"
        failed=1
    done
}

expect 0 " +[0-9]+  right    README's demo$" " +[0-9]+  right    README's first program$" " +[0-9]+  right    README's wheel$" \
    " +[0-9]+  right    README's tests, -L gpu: all 7 tests that ran passed, 2 skipped: no NVLink \(-L gpu\)$" \
    "7 right, 0 wrong, 0 skipped$"
program "$scratch/bin/python3" 'case "$*" in *download* | *scikit_build*) echo "no network"; exit 1 ;; esac'
expect 0 " +0  skipped  README's wheel: PyPI is not reached, .*: no network$" "5 right, 0 wrong, 1 skipped$"
program "$sources/scripts/demo.sh" 'echo "2 ranks run on the CPU"; echo "Shown: 2 ranks"'
program "$sources/scripts/test.sh" 'echo "1 of 7 tests failed"; exit 1'
expect 1 " +[0-9]+  WRONG    README's demo: a line matches" " +[0-9]+  WRONG    README's tests, -L gpu: ended with 1: 1 of 7" \
    "3 right, 2 wrong, 1 skipped$"
program "$scratch/bin/nvidia-smi" 'exit 9'
expect 2 "fresh_gpu.sh: 2 GPUs are needed, 0 are here$"
exit $failed
