#!/bin/sh
# check_version.sh BUILD: fails if a version differs from that of cecl.h: in CHANGELOG.md, in what a build says and
# installs, in the Python package's rule, or in the tag of this commit.
set -eu
build=$1
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
header=$root/include/cecl/cecl.h
part() {
    sed -n "s/^#define CECL_$1 \([0-9][0-9]*\)$/\1/p" "$header"
}
version=$(part MAJOR).$(part MINOR).$(part PATCH)
wrong=0

# is WHERE FOUND: the version FOUND must be that of cecl.h
is() {
    [ "$2" = "$version" ] || { echo "$1: version '$2', cecl.h has '$version'" && wrong=1; }
}

# The newest heading with a number; "Unreleased" may come before it.
is CHANGELOG.md "$(sed -n 's/^## \([0-9][0-9.]*\).*/\1/p' "$root/CHANGELOG.md" | head -n 1)"
is cecl.pc "$(sed -n 's/^Version: //p' "$build/cecl.pc")"
is cecl-config-version.cmake \
    "$(sed -n 's/^set(PACKAGE_VERSION "\([0-9.]*\)")$/\1/p' "$build/cecl-config-version.cmake")"
is libcecl.so "$(basename "$(readlink -f "$build/libcecl.so")" | sed 's/^libcecl.so.//')"
[ ! -x "$build/bench/cecl_info" ] || is cecl_info "$("$build/bench/cecl_info" | sed -n '1s/^cecl //p')"
[ ! -e "$build/packages/changelog" ] ||
    is "Debian's changelog" "$(sed -n '1s/.*(\(.*\)).*/\1/p' "$build/packages/changelog")"
if command -v python3 >/dev/null && python3 -c 'import tomllib' 2>/dev/null; then
    is pyproject.toml "$(python3 - "$root/pyproject.toml" "$header" <<'PYTHON'
import re, sys, tomllib
rule = tomllib.load(open(sys.argv[1], "rb"))["tool"]["scikit-build"]["metadata"]["version"]
print(rule["result"].format(**re.search(rule["regex"], open(sys.argv[2], encoding="utf-8").read()).groupdict()))
PYTHON
    )"
fi
tag=$(git -C "$root" tag --points-at HEAD --list 'v[0-9]*' 2>/dev/null || true)
[ -z "$tag" ] || is "the tag of this commit" "${tag#v}"
[ "$wrong" -eq 0 ] || exit 1
echo "$version everywhere"
