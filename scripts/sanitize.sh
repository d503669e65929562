#!/usr/bin/env bash
# Runs the tests under sanitizers, without CUDA. Needs the packages that test.sh installs.
# sanitize.sh [--build] [address|thread]   default: both; --build: builds, and runs nothing
#   address  also finds leaks and undefined behaviour; all tests that need no GPU, with 3 ranks under MPI
#   thread   only tests whose ranks are threads and processes of the test itself: MPI is not built for
#            this sanitizer. Tests of plans are left out, because they have one thread.
# Long random tests run a quarter of their rounds.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/common.sh
. "$root/scripts/common.sh"

only_build=0
if [ "${1:-}" = --build ]; then
    only_build=1
    shift
fi
export CECL_TEST_CALLS=2000 CECL_TEST_CYCLES=200 CECL_TEST_SHARE=${CECL_TEST_SHARE:-4}
export UBSAN_OPTIONS=print_stacktrace=1
# Up to this much freed memory stays mapped: the default, 256 MiB, would disturb tests that count mappings.
export ASAN_OPTIONS=quarantine_size_mb=64${ASAN_OPTIONS:+:$ASAN_OPTIONS}
# die_after_fork=0: children of tests start threads, also if the parent had threads when it forked.
export TSAN_OPTIONS=suppressions=$root/tests/tsan.supp:history_size=7:die_after_fork=0
linker=() # mold links in a fifth of the time
! gcc -fuse-ld=mold -Wl,--version >/dev/null 2>&1 ||
    linker=(-DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=mold -DCMAKE_SHARED_LINKER_FLAGS=-fuse-ld=mold)
for kind in ${1:-address thread}; do
    [ $only_build = 1 ] || echo "== $kind sanitizer"
    build=$root/build/$kind
    parts=()
    [ "$kind" != thread ] || parts=(-DCECL_MPI=OFF -DCECL_BENCH=OFF -DCECL_EXAMPLES=OFF)
    # With -O1 and only line numbers, compilers take half the time of -O2 -g. But -O1 gives false warnings, so
    # warnings are no errors here; in test.sh and in clang's build they are.
    build "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_C_FLAGS_RELWITHDEBINFO="-O1 -g1 -DNDEBUG" \
        -DCECL_CUDA=OFF -DCECL_SANITIZE="$kind" -DCECL_TEST_RANKS=3 "${linker[@]}" "${parts[@]}"
    [ $only_build = 0 ] || continue
    # Some tests are left out:
    # - install_ and guide_ build a program of their own, which would need the same sanitizer;
    # - example_prefetch and fsdp_loss_equal compute a lot on 4 ranks, and cover nothing that other
    #   tests do not;
    # - tests that start a program dozens of times (training, settings): the other tests cover the same
    #   code, except the messages of refusals, in a quarter of the time;
    # - plot_ and fsdp_compare run Python;
    # - tune_writes measures for 22 s of a processor; .ci/nightly runs it;
    # - under the address sanitizer, corpora that .ci/run's fuzzers run under the same sanitizer; under the thread
    #   sanitizer the corpus of trials, which takes 38 s (nccl_trials has as many threads); .ci/nightly runs both;
    # - a test of a tool that waits for dozens of programs: nccl-tests' reader;
    # - tests of scripts, of names and of versions: they run nothing that was built with the sanitizer;
    # - under the thread sanitizer, tests with a single thread: they have no race; test_blame, which starts
    #   hundreds of processes: the sanitizer ends each of them a second later; and test_frames, which
    #   replaces functions of a device that other threads use.
    left_out='^install_|^plot_|^guide_|example_prefetch|^settings_differ'
    left_out="$left_out|^nccl_tests_compares|^script_|^compare_builds|^versions_agree|^exports_|_exports_are_|^documented_"
    left_out="$left_out|fsdp_(compare|loss_equal|refuses)|^perf_refuses_bad"
    case $kind in
    address)
        labels='unit|plan|multi'
        [ "$CECL_TEST_SHARE" = 1 ] || left_out="$left_out|^tune_writes|^fuzz_corpus_(nccl|api|plan|mesh|bootstrap|settings)"
        ;;
    thread)
        labels=unit
        left_out="$left_out|^test_(reduce|splits)_host|^test_learn_|^test_tuning|^fuzz_corpus_(plan|settings)"
        left_out="$left_out|^test_(bench|blocks|model|number|siphash)\$|^nccl_(gains|search)"
        left_out="$left_out|^test_blame|^test_frames"
        [ "$CECL_TEST_SHARE" = 1 ] || left_out="$left_out|^fuzz_corpus_trials"
        ;;
    esac
    log=$build/tests.log
    if ! (cd "$build" && ctest --output-on-failure -j"$test_jobs" -L "$labels" -E "$left_out") | tee "$log"; then
        "$root/scripts/failures.sh" "$log"
        exit 1
    fi
done
