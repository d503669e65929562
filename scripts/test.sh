#!/usr/bin/env bash
# Installs what is missing, builds, and runs all tests. GPU tests are skipped, and listed as such, where there is no GPU.
# Arguments go to ctest (-L unit, -R pool, ...).
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/test
# shellcheck source=scripts/packages.sh
. "$root/scripts/packages.sh"
# shellcheck disable=SC2086
"$root/scripts/setup.sh" $test_packages

echo "Building ..."
mkdir -p "$build"
if ! { cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCECL_WERROR=ON &&
    cmake --build "$build" -j2; } >"$build/build.log" 2>&1; then
    tail -n 40 "$build/build.log"
    exit 1
fi
grep -h '^-- cecl' "$build/build.log" | tail -n 1

cd "$build"
exec ctest --output-on-failure -j2 "$@"
