#!/usr/bin/env bash
# The tests under sanitizers: address and undefined behaviour over all that runs without a GPU (ranks under MPI: 3), threads over the
# tests whose ranks are threads and processes of the test itself. CUDA is left out: it does not run here. Needs what test.sh installs.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
for kind in ${1:-address thread}; do
    build=$root/build/$kind
    echo "== $kind sanitizer"
    mkdir -p "$build"
    if ! { cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCECL_WERROR=ON -DCECL_CUDA=OFF -DCECL_NCCL=OFF \
        -DCECL_SANITIZE="$kind" -DCECL_TEST_RANKS=3 -DCECL_TEST_GPU_RANKS= &&
        cmake --build "$build" -j2; } >"$build/build.log" 2>&1; then
        tail -n 40 "$build/build.log"
        exit 1
    fi
    export CECL_TEST_CALLS=2000 CECL_TEST_CYCLES=200
    case $kind in
    address) (cd "$build" && ctest --output-on-failure -j2 -L 'unit|plan|multi' -E 'install_|example_prefetch') ;;
    thread) (cd "$build" && ctest --output-on-failure -j2 -L 'unit|plan' -E 'install_') ;;
    esac
done
