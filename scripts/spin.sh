#!/usr/bin/env bash
# Checks the model of the flag protocol (docs/models/flags.pml) exhaustively, and checks that Spin finds
# each fault planted in it. Also fails when a search was cut short or Spin itself failed.
set -euo pipefail
shopt -s inherit_errexit
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() {
    echo "flags.pml, $1" >&2
    cat spin.log pan.log >&2 2>/dev/null || true
    exit 1
}

# search DEFINES...: searches the model's states; the checker's output is in pan.log.
search() {
    rm -f pan pan.c pan.log
    spin -a "$@" "$root/docs/models/flags.pml" >spin.log 2>&1 || fail "$*: spin refused it"
    gcc -O2 -w -DSAFETY -DMEMLIM=4096 -o pan pan.c || fail "$*: gcc refused it"
    ./pan -m200000 >pan.log 2>&1 || fail "$*: the checker broke"
}

# prove RANKS CALLS: fails unless every state was visited and none is wrong.
prove() {
    search -DRANKS="$1" -DCALLS="$2"
    grep -q 'errors: 0$' pan.log || fail "$1 ranks, $2 calls: a fault"
    ! grep -Eqi 'not completed|too small|reached -DMEMLIM|resizing' pan.log ||
        fail "$1 ranks, $2 calls: the search was cut"
    states=$(sed -n 's/ *\([0-9.e+]*\) states, stored.*/\1/p' pan.log)
    [ -n "$states" ] || fail "$1 ranks, $2 calls: no states"
    echo "flags.pml, $1 ranks, $2 calls: no error, $states states"
}

# catch FAULT WORDS: fails unless the search ends at a wrong state, with WORDS in the checker's output.
catch() {
    search -DRANKS=2 -DCALLS=3 "-D$1"
    grep -q 'errors: 1$' pan.log || fail "$1: the planted fault was not found"
    grep -q "$2" pan.log || fail "$1: found, but not as '$2'"
    echo "flags.pml with $1: found"
}

prove 2 9 # epochs wrap around and reach values that they had before
prove 3 4
prove 4 2
catch NO_FIRST_BARRIER 'assertion violated'
catch NO_LAST_BARRIER 'assertion violated'
catch EQUAL_ONLY 'invalid end state' # when a rank is ahead, the other waits for ever
