#!/bin/sh
# Fails when docs/env.md differs from the library's table of settings.
# check_env.sh CECL_INFO
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
"$1" --markdown | diff -u "$root/docs/env.md" - || {
    echo "docs/env.md differs from src/util/settings.h: cecl_info --markdown > docs/env.md"
    exit 1
}
