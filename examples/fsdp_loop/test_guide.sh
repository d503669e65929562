#!/usr/bin/env bash
# Fails unless the first program of the guide's "Fully sharded training" is what fsdp_loop.c has, line
# by line. test_guide.sh GUIDE
set -euo pipefail
here=$(cd -- "$(dirname -- "$0")" && pwd)
diff -u --label "$1" --label "$here/fsdp_loop.c" \
    <(sed -n '/^## Fully sharded training/,/^## /p' "$1" |
        awk '/^```/ { if (inside) exit; inside = 1; next } inside') \
    <(awk '/^\/\* ---- / { inside = /the guide.s lines/; next } inside' "$here/fsdp_loop.c" |
        sed -e '1{/^$/d}' -e '${/^$/d}')
