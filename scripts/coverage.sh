#!/usr/bin/env bash
# Runs the tests without a GPU, and shows which lines of src/ and tests/verify/ no test runs, file by file, and what
# share of lines and branches runs. Fails below 92 % of lines, or if a test fails. Arguments go to ctest. Run it by
# hand on an idle machine: it takes about twice as long as test.sh, and counting slows down tests, which have time
# limits. Results stay in build/coverage; coverage.json there tells mutate.sh which lines to change.
set -euo pipefail
shopt -s inherit_errexit
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/coverage
# shellcheck source=scripts/common.sh
. "$root/scripts/common.sh"
"$root/scripts/setup.sh" "${test_packages[@]}" gcovr
least=92 # % of lines

# keep_counts.c saves the counts of processes that end by _exit, as ranks do that tests fork.
mkdir -p "$build"
gcc -O1 -Wall -c -fPIC -o "$build/keep_counts.o" "$root/scripts/keep_counts.c"
build "$build" -DCMAKE_BUILD_TYPE=None -DCECL_CUDA=OFF -DCECL_MPI=ON "-DCECL_TEST_RANKS=2;3;5" \
    -DCECL_TEST_LEAST_TIMEOUT=900 \
    -DCMAKE_C_FLAGS="-g -O1 --coverage -fprofile-update=atomic" \
    -DCMAKE_EXE_LINKER_FLAGS="$build/keep_counts.o -rdynamic" \
    -DCMAKE_SHARED_LINKER_FLAGS="$build/keep_counts.o"

# Counts add up over runs, and counts of older objects would not fit, so those of earlier runs are removed.
find "$build" -name '*.gcda' -delete
export CECL_TEST_CALLS=2000 CECL_TEST_CYCLES=200 # as under the sanitizers
status=0
# Left out: install_ and guide_ build programs of their own; plot_ runs Python; exports_ would fail because coverage
# adds symbols; nccl_pass_time and test_instructions would measure code that coverage adds.
left_out='^install_|^guide_|^plot_|^exports_|^nccl_pass_time|^test_instructions'
(cd "$build" && ctest --output-on-failure -j"$test_jobs" -E "$left_out" "$@") ||
    status=$?

cd "$root"
# Ranks that a test kills leave counts that do not add up, so gcov may report "-1" for a branch.
gcovr -r . --object-directory "$build" --filter src/ --filter tests/verify/ --exclude-unreachable-branches \
    --gcov-ignore-parse-errors -j "$jobs" --json "$build/coverage.json" "$build" \
    2>"$build/gcovr.log" || { cat "$build/gcovr.log" >&2; exit 1; }
echo
gcovr -r . -a "$build/coverage.json" --txt "$build/coverage.txt" --print-summary \
    --fail-under-line "$least" || status=1
# Prints the files with lines that no test runs, and these lines.
awk '/^(src|tests\/verify)\// && NF > 4 { print }' "$build/coverage.txt"
printf '\nNot in this build, because they need a GPU (scripts/measure.sh runs them):\n'
find src -name 'cuda*.[ch]' ! -name cuda_absent.c -o -name '*_cuda.c' -o -name '*.cu' | sort | xargs wc -l
exit $status
