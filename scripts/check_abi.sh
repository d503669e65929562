#!/usr/bin/env bash
# check_abi.sh LIBRARY [--renew]: fails if the library's binary interface breaks programs that were built with the
# last release, because a function or a field is gone or has changed. Additions are fine, and so is a change that
# raises the number in libcecl.so.N (before 1.0: 0.N). abi/libcecl.abi describes the last release; at a release
# --renew writes it again (CONTRIBUTING.md). The check takes this file from the last tag vX.Y.Z, or from this
# checkout if git has no such tag.
set -euo pipefail
library=$1
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
file=abi/libcecl.abi
command -v abidw >/dev/null || { echo "skipped: no abidw and abidiff (Debian: abigail-tools)"; exit 77; }
# Describes the header's types only, without source locations.
describe() {
    abidw --headers-dir "$root/include/cecl" --drop-private-types --exported-interfaces-only --no-show-locs --no-corpus-path \
        --no-comp-dir-path --no-architecture "$library"
}
soname() {
    sed -n "s/.*<abi-corpus .*soname='\([^']*\)'.*/\1/p" "$1"
}
if [ "${2:-}" = --renew ]; then
    mkdir -p "$root/${file%/*}"
    describe >"$root/$file"
    exit
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if release=$(git -C "$root" describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null); then
    git -C "$root" show "$release:$file" >"$scratch/last"
else
    release="the last release, as $file has it (git knows no tag)"
    cp "$root/$file" "$scratch/last"
fi
describe >"$scratch/now"
if [ "$(soname "$scratch/last")" != "$(soname "$scratch/now")" ]; then
    echo "$library is $(soname "$scratch/now"): programs that use $(soname "$scratch/last") of $release must be built anew"
    exit
fi
abidiff --no-added-syms "$scratch/last" "$scratch/now" || {
    echo "$library: programs that were built with $release would break"
    exit 1
}
echo "$library: programs that were built with $release still fit"
