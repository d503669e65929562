#!/usr/bin/env bash
# Fails unless README's program is examples/allgather.c, line by line. test_readme.sh README
set -euo pipefail
here=$(cd -- "$(dirname -- "$0")" && pwd)
diff -u --label "$1" --label "$here/allgather.c" \
    <(awk '/^```/ { if (inside) exit; inside = /^```c$/; next } inside' "$1") "$here/allgather.c"
