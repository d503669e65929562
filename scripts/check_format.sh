#!/usr/bin/env bash
# Fails when clang-format would change a source file. With --fix, clang-format rewrites the files.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
# The files are not listed by git: in a checkout that git does not trust its list is empty, and the check would
# pass.
mapfile -t files < <(find include src tests bench examples -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh')
[ ${#files[@]} -gt 0 ] || { echo "no source file was found"; exit 1; }
if [ "${1:-}" = --fix ]; then
    clang-format -i "${files[@]}"
else
    clang-format --dry-run -Werror "${files[@]}"
    echo "${#files[@]} files are formatted"
fi
