#!/usr/bin/env bash
# Shows cecl at work: installs what is missing, builds, and runs the prefetching forward pass on every GPU there is, else on 4 ranks
# without any. Further arguments go to the example (--help).
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/demo
# shellcheck source=scripts/packages.sh
. "$root/scripts/packages.sh"
# shellcheck disable=SC2086
"$root/scripts/setup.sh" $build_packages

echo "Building cecl ..."
mkdir -p "$build"
if ! { cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DCECL_TESTS=OFF -DCECL_BENCH=OFF &&
    cmake --build "$build" -j2; } >"$build/build.log" 2>&1; then
    tail -n 30 "$build/build.log"
    exit 1
fi

ranks=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
if [ "${ranks:-0}" -lt 2 ] || ! grep -q 'CECL_CUDA.*AUTO\|CECL_CUDA.*ON' "$build/CMakeCache.txt"; then
    ranks=4
    export CECL_DEVICE=${CECL_DEVICE:-host}
    echo "No two GPUs here: $ranks ranks run on the CPU, with the same plans."
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
exec mpirun --oversubscribe --bind-to none --mca btl self,vader -n "$ranks" "$build/examples/example_prefetch" "$@"
