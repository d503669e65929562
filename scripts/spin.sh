#!/usr/bin/env bash
# Checks the model of the flag protocol exhaustively (docs/models/flags.pml), and that the checker finds a planted fault in it.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# verify NAME DEFINES...: prints the number of errors
errors() {
    spin -a "$@" "$root/docs/models/flags.pml" >spin.log 2>&1 || { cat spin.log >&2; exit 1; }
    gcc -O2 -w -DSAFETY -DMEMLIM=4096 -o pan pan.c
    ./pan -m200000 >pan.log 2>&1
    grep -q 'error: max search depth too small' pan.log && { echo "search was cut" >&2; exit 1; }
    sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.log
}

for ranks in 2 3; do
    found=$(errors -DRANKS=$ranks -DCALLS=3)
    [ "$found" = 0 ] || { echo "flags.pml, $ranks ranks: $found errors"; cat pan.log; exit 1; }
    echo "flags.pml, $ranks ranks, 3 calls: no error, $(sed -n 's/ *\([0-9]*\) states, stored.*/\1/p' pan.log) states"
done
for fault in NO_FIRST_BARRIER NO_LAST_BARRIER EQUAL_ONLY; do
    found=$(errors -DRANKS=2 -DCALLS=3 -D$fault)
    [ "$found" != 0 ] || { echo "flags.pml with $fault: the fault was not found"; exit 1; }
    echo "flags.pml with $fault: found"
done
