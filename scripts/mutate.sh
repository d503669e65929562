#!/usr/bin/env bash
# Changes src/ in one place at a time, and says which changes (mutants) no test notices. Such a mutant is a hole in
# the tests, or changes nothing that counts and belongs in scripts/mutants_known.txt. Run it by hand: 60 mutants take
# about 8 minutes on 16 cores. If coverage.sh ran before, lines that no test runs are left out. mutate.sh --help lists
# the options; the same --seed draws the same mutants.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/common.sh
. "$root/scripts/common.sh"
"$root/scripts/setup.sh" "${test_packages[@]}" git python3

# All workers first build the same sources, which ccache compiles once.
if command -v ccache >/dev/null; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache CCACHE_NOHASHDIR=1
    export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$root/build/mutate}
fi
PYTHONDONTWRITEBYTECODE=1 exec nice python3 "$root/scripts/mutate.py" "$@"
