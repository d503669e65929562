#!/bin/sh
# Fails when a shared library exports anything but cecl*: check_exports.sh libcecl.so
set -eu
strangers=$(nm -D --defined-only "$1" | awk '{print $3}' | grep -v '^cecl' || true)
if [ -n "$strangers" ]; then
    echo "$1 exports names that are not cecl's:"
    echo "$strangers"
    exit 1
fi
count=$(nm -D --defined-only "$1" | wc -l)
[ "$count" -gt 20 ] || { echo "$1 exports only $count names"; exit 1; }
echo "$1: $count names, all cecl*"
