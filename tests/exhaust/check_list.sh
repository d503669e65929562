#!/bin/sh
# check_list.sh LIBRARY: every libc function that an object of LIBRARY calls must be refused by exhaust_cases
# (REFUSED_CALLS in refuse.h), or be listed with a reason in not_refused.txt. Objects that need CUDA are not checked.
set -eu
here=$(dirname "$0")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
nm -A "$1" 2>/dev/null | awk '
    { object = $1; kind = $(NF - 1); name = $NF }
    object ~ /:[^:]*(cuda|\.cu\.)[^:]*:$/ { next }
    kind == "U" { asked[name] = 1 }
    kind ~ /^[TDBRVWC]$/ { defined[name] = 1 }
    END { for (name in asked) if (!(name in defined)) print name }' |
    grep -Ev '^(__asan|__ubsan|__tsan|__lsan|__sanitizer|__gcov|__llvm|__msan|__sancov|cecl|__start|__stop)' |
    sort -u >"$folder/asked"
{
    sed -n 's/^ *CALL(\([a-z0-9_]*\),.*/\1/p' "$here/refuse.h"
    grep -v '^#' "$here/not_refused.txt" | tr ' ' '\n'
} | sort -u >"$folder/known"
[ -s "$folder/asked" ] || { echo "nm found nothing in $1"; exit 1; }
comm -23 "$folder/asked" "$folder/known" >"$folder/new"
if [ -s "$folder/new" ]; then
    echo "Refuse these in tests/exhaust/refuse.c, or say why not in not_refused.txt:"
    cat "$folder/new"
    exit 1
fi
echo "$(wc -l <"$folder/asked") functions are asked for, all known"
