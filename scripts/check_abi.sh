#!/usr/bin/env bash
# Fails if the library's binary interface breaks programs that were built with the last release: a function or a
# field that is gone or changed. Additions are fine. check_abi.sh LIBRARY [--renew]
# abi/libcecl.abi describes the last release; --renew writes it anew, at a release (CONTRIBUTING.md).
set -euo pipefail
library=$1
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
known=$root/abi/libcecl.abi
command -v abidw >/dev/null || { echo "skipped: no abidw and abidiff (Debian: abigail-tools)"; exit 77; }
# Types of the header alone, and no places of the sources.
describe() {
    abidw --headers-dir "$root/include/cecl" --drop-private-types --exported-interfaces-only --no-show-locs --no-corpus-path \
        --no-comp-dir-path --no-architecture "$library"
}
if [ "${2:-}" = --renew ]; then
    mkdir -p "${known%/*}"
    describe >"$known"
    exit
fi
now=$(mktemp)
trap 'rm -f "$now"' EXIT
describe >"$now"
abidiff --no-added-syms "$known" "$now" || { echo "$library: programs built with the last release would break"; exit 1; }
echo "$library: programs built with the last release still fit"
