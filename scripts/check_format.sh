#!/usr/bin/env bash
# Fails when a source file is not as clang-format would have it; --fix writes it so.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
# Not git's list: that is empty, and all would be well, in a checkout that git does not trust.
mapfile -t files < <(find include src tests bench examples -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh')
[ ${#files[@]} -gt 0 ] || { echo "no source file was found"; exit 1; }
if [ "${1:-}" = --fix ]; then
    clang-format -i "${files[@]}"
else
    clang-format --dry-run -Werror "${files[@]}"
    echo "${#files[@]} files are formatted"
fi
