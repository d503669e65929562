#!/usr/bin/env bash
# Checks the models in docs/models exhaustively, and checks that Spin finds each fault planted in them.
# Also fails when a search was cut short or Spin itself failed.
set -euo pipefail
shopt -s inherit_errexit
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() {
    echo "$model.pml, $1" >&2
    cat spin.log pan.log >&2 2>/dev/null || true
    exit 1
}

# search LEVEL DEFINES...: searches the states of $model with a checker that gcc optimizes to LEVEL; the
# checker's output is in pan.log.
search() {
    local level=$1
    shift
    rm -f pan pan.c pan.log
    spin -a "$@" "$root/docs/models/$model.pml" >spin.log 2>&1 || fail "$*: spin refused it"
    gcc "$level" -w -DSAFETY -DMEMLIM=4096 -o pan pan.c || fail "$*: gcc refused it"
    ./pan -m200000 >pan.log 2>&1 || fail "$*: the checker broke"
}

# prove RANKS CALLS [DEFINES...]: fails unless every state was visited and none is wrong.
prove() {
    local what="$1 ranks, $2 calls${3:+ with ${*:3}}" states
    search -O1 -DRANKS="$1" -DCALLS="$2" "${@:3}"
    grep -q 'errors: 0$' pan.log || fail "$what: a fault"
    ! grep -Eqi 'not completed|too small|reached -DMEMLIM|resizing' pan.log ||
        fail "$what: the search was cut"
    states=$(sed -n 's/ *\([0-9.e+]*\) states, stored.*/\1/p' pan.log)
    [ -n "$states" ] || fail "$what: no states"
    echo "$model.pml, $what: no error, $states states"
}

# catch CALLS FAULT WORDS [DEFINES...]: fails unless the search for 2 ranks ends at a wrong state, with
# WORDS in the checker's output. Few states are searched, so gcc takes longer than the checker.
catch() {
    search -O0 -DRANKS=2 -DCALLS="$1" "-D$2" "${@:4}"
    grep -q 'errors: 1$' pan.log || fail "$2: the planted fault was not found"
    grep -q "$3" pan.log || fail "$2: found, but not as '$3'"
    echo "$model.pml with $2: found"
}

model=flags
prove 2 9 # epochs wrap around and reach values that they had before
prove 3 4
prove 4 2
catch 3 NO_FIRST_BARRIER 'assertion violated'
catch 3 NO_LAST_BARRIER 'assertion violated'
catch 3 EQUAL_ONLY 'invalid end state' # when a rank is ahead, the other waits for ever

model=places
prove 2 7 # the ring goes round three times
prove 3 3
prove 2 7 -DCOUNTED
prove 3 5 -DCOUNTED
catch 4 LATE_RECORD 'assertion violated.*record'
catch 4 SPLIT_ARRIVAL 'assertion violated.*earlier'
catch 4 STORED_DECISION 'assertion violated.*outcome'
catch 4 NUMBERLESS 'assertion violated.*record'
catch 4 NO_ROOM 'assertion violated.*record'
catch 4 EARLY_FINISH 'assertion violated.*record'
catch 4 LARGE_GROUPS 'invalid end state' # the first rank waits for itself

model=windows
prove 2 2 -DOWNERS=1 -DCHANGES=3
prove 2 2 -DPIECES=1 -DCHANGES=1
prove 3 1 -DOWNERS=1 -DCHANGES=1
prove 2 2 -DOWNERS=1 -DCHANGES=1 -DFAILURES
prove 2 2 -DOWNERS=1 -DCHANGES=1 -DDEATH
prove 2 2 -DOWNERS=1 -DCLOSE_AT_ONCE
catch 2 SAME_NUMBER 'assertion violated.*meant' -DOWNERS=1
catch 2 NO_IDS 'assertion violated.*meant' -DOWNERS=1
catch 2 NO_WAIT 'assertion violated.*known' -DOWNERS=1
catch 2 EARLY_DROP 'assertion violated.*closed' -DOWNERS=1
catch 2 NO_LATER_DROP 'assertion violated.*number' -DOWNERS=1
catch 2 LATE_DROP 'assertion violated.*dropped' -DOWNERS=1 -DPIECES=1
catch 2 NO_SWEEP 'assertion violated.*number' -DOWNERS=1
catch 2 FORGET_FAILED 'assertion violated.*known' -DOWNERS=1 -DFAILURES
catch 2 NO_END 'assertion violated.*ended' -DOWNERS=1 -DDEATH
catch 2 POST_NO_END 'assertion violated.*ended' -DOWNERS=1 -DDEATH
