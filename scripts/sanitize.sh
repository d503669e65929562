#!/usr/bin/env bash
# The tests under sanitizers: sanitize.sh [address|thread], else both. Needs what test.sh installs.
#   address  with leaks and undefined behaviour: all that runs without a GPU, 3 ranks under MPI
#   thread   tests whose ranks are threads and processes of the test itself: MPI is not built for it,
#            and plans are made by one thread
# CUDA is left out: it does not run here.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/common.sh
. "$root/scripts/common.sh"

export CECL_TEST_CALLS=2000 CECL_TEST_CYCLES=200
export UBSAN_OPTIONS=print_stacktrace=1
for kind in ${1:-address thread}; do
    echo "== $kind sanitizer"
    build=$root/build/$kind
    build "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCECL_WERROR=ON -DCECL_CUDA=OFF \
        -DCECL_SANITIZE="$kind" -DCECL_TEST_RANKS=3
    # An outside program would have to be built with the same sanitizer, and 4 ranks of a model
    # that multiplies show nothing that 3 ranks of the tests do not. Tests that start a program
    # dozens of times (of the training, of settings) are left out: those that stay take a quarter of
    # the time, for the same code but that which words refusals. Charts and tables are drawn by
    # Python. One thread alone has no race.
    left_out='^install_|^plot_|^guide_|example_prefetch|^settings_differ'
    left_out="$left_out|fsdp_(resume|compare|refuses_bad_(data|options|checkpoints))"
    case $kind in
    address) labels='unit|plan|multi' ;;
    thread) labels=unit left_out="$left_out|^test_reduce_host|^fsdp_gradients" ;;
    esac
    (cd "$build" && ctest --output-on-failure -j"$test_jobs" -L "$labels" -E "$left_out")
done
