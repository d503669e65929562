#!/usr/bin/env bash
# Shows cecl at work: installs missing packages, builds, and runs two examples. They are a forward pass
# that prefetches layers, and a sharded training that learns a text and then writes some. They run on
# all GPUs of the machine, or on 4 ranks on the CPU. Arguments go to the training (--help).
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/demo
# shellcheck source=scripts/common.sh
. "$root/scripts/common.sh"
"$root/scripts/setup.sh" "${build_packages[@]}"

echo "Building ..."
build "$build" -DCMAKE_BUILD_TYPE=Release -DCECL_MPI=ON -DCECL_TESTS=OFF -DCECL_BENCH=OFF
for example in prefetch fsdp_train; do
    if [ ! -x "$build/examples/example_$example" ]; then
        grep '^-- examples:' "$build/build.log" >&2
        exit 1
    fi
done

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
ranks_of=(mpirun --oversubscribe --bind-to none --mca btl "self,vader" -n "$ranks")

printf '\n== 1. A forward pass: each layer gathered while the one before computes\n\n'
"${ranks_of[@]}" "$build/examples/example_prefetch"
printf '\n== 2. A training: the same, there and back, until the network can write\n\n'
exec "${ranks_of[@]}" "$build/examples/example_fsdp_train" --sample 300 "$@"
