#!/usr/bin/env bash
# Shows cecl at work: installs what is missing, builds, and runs the prefetching forward pass on
# every GPU there is, else on 4 ranks without any. Arguments go to the example (--help).
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/demo
# shellcheck source=scripts/common.sh
. "$root/scripts/common.sh"
"$root/scripts/setup.sh" "${build_packages[@]}"

echo "Building ..."
build "$build" -DCMAKE_BUILD_TYPE=Release -DCECL_MPI=ON -DCECL_TESTS=OFF -DCECL_BENCH=OFF
example=$build/examples/example_prefetch
if [ ! -x "$example" ]; then
    grep '^-- examples:' "$build/build.log" >&2
    exit 1
fi

ranks=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
why=
if [ "$ranks" -lt 2 ]; then
    why="Fewer than two GPUs here"
elif ! built_with CUDA "$build"; then
    why="$ranks GPUs, but no CUDA toolkit 12.8 or later to build for them"
fi
if [ -n "$why" ]; then
    ranks=4
    export CECL_DEVICE=${CECL_DEVICE:-host}
    echo "$why: $ranks ranks run on the CPU, with the same plans."
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
exec mpirun --oversubscribe --bind-to none --mca btl self,vader -n "$ranks" "$example" "$@"
