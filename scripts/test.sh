#!/usr/bin/env bash
# Installs missing packages, builds, and runs all tests. Without a GPU the GPU tests are skipped, and listed with
# the reason. The last line is the verdict. Arguments go to ctest (-L unit, -R pool, ...). The output of each run
# stays in build/test/logs. Long random tests on the CPU run a quarter of their rounds; CECL_TEST_SHARE=1 runs all,
# as .ci/nightly does.
set -euo pipefail
minutes=6 # that the build and all tests take, on 2 idle cores
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/test
# shellcheck source=scripts/common.sh
. "$root/scripts/common.sh"
"$root/scripts/setup.sh" "${test_packages[@]}"

echo "Building, then testing; all tests take about $minutes minutes on 2 idle cores (here: $(nproc)) ..."
export CECL_TEST_SHARE=${CECL_TEST_SHARE:-4}
# Without a GPU no kernel runs, so one architecture is enough.
kernels=-DCECL_ARCHITECTURES=90-real
! nvidia-smi -L >/dev/null 2>&1 || kernels=-UCECL_ARCHITECTURES
# A failed test needs only line numbers, for which the compiler takes a seventh less time than for -g.
build "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_C_FLAGS_RELWITHDEBINFO="-O2 -g1 -DNDEBUG" -DCECL_WERROR=ON \
    -DCECL_MPI=ON "$kernels" -DCECL_SOAK_SECONDS=$((60 / CECL_TEST_SHARE))
grep '^-- cecl ' "$build/build.log"

cd "$build"
# PROCESSORS in tests/CMakeLists.txt limits how many ranks run at a time.
status=0
mkdir -p logs
log=$build/logs/tests-$(date +%Y%m%d-%H%M%S).log
ctest --output-on-failure -j"$test_jobs" "$@" | tee "$log" || status=$?
# The verdict is computed now, because `ctest -N` below overwrites the log, and printed at the end.
verdict=$("$root/scripts/verdict.sh" "$log" Testing/Temporary/LastTest.log) ||
    [ $status -ne 0 ] || status=1
"$root/scripts/failures.sh" "$log"

# For each label: how many tests passed, failed and were skipped.
printf '\n%-8s %8s %8s %8s\n' label passed failed skipped
for label in unit plan multi fault exhaust soak gpu; do
    ctest -N -L "^$label\$" | awk -v label="$label" '
        FNR == 1 { file++ }
        file == 1 && /^ *Test +#[0-9]+: / { bears[$3] = 1 }
        file == 2 && /^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / {
            name = $0
            sub(/^[^:]*: /, "", name)
            sub(/ .*/, "", name)
            if (!(name in bears)) next
            if (/\*\*\*Skipped/) skipped++
            else if (/ Passed /) passed++
            else failed++
        }
        END { printf "%-8s %8d %8d %8d\n", label, passed, failed, skipped }' - "$log"
done
echo "$verdict"
exit $status
