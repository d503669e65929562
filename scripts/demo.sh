#!/usr/bin/env bash
# Shows cecl at work: installs missing packages, builds, and runs two examples, a forward pass that prefetches
# layers, and a sharded training that learns a text. They run on all GPUs of the machine, or on 4 ranks on the CPU.
# Arguments go to the training (--help).
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
elif ! built_with toolkit "$build"; then
    why="$ranks GPUs, but no CUDA toolkit 12.8 or later to build for them"
fi
if [ -n "$why" ]; then
    ranks=4
    export CECL_DEVICE=${CECL_DEVICE:-host}
    echo "$why: $ranks ranks run on the CPU, with the same plans."
fi
size=()
if [ "${CECL_DEVICE:-}" != host ]; then
    size=(--layers 20 --width 2048 --heads 16 --sequence 1024 --rate 300) # a billion parameters
fi
ranks_of=("${mpi_run[@]}" -n "$ranks")
log=$build/training.log

printf '\n== 1. A forward pass: each layer gathered while the one before computes\n\n'
"${ranks_of[@]}" "$build/examples/example_prefetch"
printf '\n== 2. A training: the same in forward and backward passes\n\n'
"${ranks_of[@]}" "$build/examples/example_fsdp_train" "${size[@]}" "$@" | tee "$log"

loss=$(sed -n 's/.*first -> last step *\([0-9.]*\) -> \([0-9.]*\) .*/from \1 to \2/p' "$log")
waited=$(sed -n 's/.*waiting for communication .* \([0-9.]* %\) of a step.*/\1/p' "$log")
[ -n "$loss" ] || exit 0 # after --help nothing was trained
printf '\nShown: %d ranks with 1/%d of the parameters each computed the same bits as a rank that has them\n' \
    "$ranks" "$ranks"
printf 'all, and trained a network whose loss fell %s, while cecl fetched each layer\n' "$loss"
printf 'during the one before it.\n'
if [ "${CECL_DEVICE:-}" = host ]; then
    printf 'The training waited for %s of a step because %d ranks share %d cores: a rank that waits\n' \
        "${waited:-a part}" "$ranks" "$(nproc)"
    printf 'for a peer mostly waits until that peer gets a core. With a GPU for each rank, copy engines move the\n'
    printf 'data while the SMs compute.\n'
fi
