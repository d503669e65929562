#!/usr/bin/env bash
# Checks the models in docs/models exhaustively, and checks that Spin finds each fault planted in them.
# Also fails when a search was cut short or Spin itself failed. Two searches run at a time, where memory
# suffices.
# spin.sh [--if-changed]   --if-changed: nothing is searched if the models and this script are as docs/models/checked says,
# which a run writes that found all as it should be
set -euo pipefail
shopt -s inherit_errexit
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
checked=$root/docs/models/checked
# Spin, this script, and each model with its name, without comments
models=$({
    spin -V
    cat "$root/scripts/spin.sh"
    for file in "$root"/docs/models/*.pml; do
        basename "$file"
        perl -0pe 's{/\*.*?\*/}{}gs' "$file"
    done
} | sha256sum)
if [ "${1:-}" = --if-changed ] && [ "$models" = "$(cat "$checked" 2>/dev/null || true)" ]; then
    echo "skipped: Spin, the models and this script are as they were when all searches ended as they should"
    exit 77
fi
work=$(mktemp -d)
trap 'wait; rm -rf "$work"' EXIT
at_once=2 # of 2 GB at most
awk '/^MemAvailable/ && $2 < 8000000 { exit 1 }' /proc/meminfo || at_once=1

fail() {
    echo "$model.pml, $1" >&2
    cat spin.log pan.log >&2 2>/dev/null || true
    touch "$work/failed"
    exit 1
}

# search LEVEL DEFINES...: searches the states of $model with a checker that gcc optimizes to LEVEL; the
# checker's output is in pan.log.
search() {
    local level=$1
    shift
    spin -a "$@" "$root/docs/models/$model.pml" >spin.log 2>&1 || fail "$*: spin refused it"
    gcc "$level" -w -DSAFETY -DMEMLIM=2000 -o pan pan.c || fail "$*: gcc refused it"
    ./pan -m200000 >pan.log 2>&1 || fail "$*: the checker broke"
}

# begin COMMAND...: runs a search in a folder of its own, once less than $at_once others run. None is
# begun after one has failed. A search that succeeds removes its folder. Its process number is no
# sign of success, because the system may have given that number to another process by then.
begin() {
    local folder
    while [ "$(jobs -rp | wc -l)" -ge "$at_once" ]; do
        wait -n || true
    done
    [ ! -e "$work/failed" ] || exit 1
    folder=$(mktemp -d -p "$work")
    (
        trap - EXIT
        cd "$folder"
        "$@"
        rm -rf "$folder"
    ) &
}

# shows RANKS CALLS [DEFINES...]: fails unless every state was visited and none is wrong.
shows() {
    local what="$1 ranks, $2 calls${3:+ with ${*:3}}" states
    search -O1 -DRANKS="$1" -DCALLS="$2" "${@:3}"
    grep -q 'errors: 0$' pan.log || fail "$what: a fault"
    ! grep -Eqi 'not completed|too small|reached -DMEMLIM|resizing' pan.log ||
        fail "$what: the search was cut"
    states=$(sed -n 's/ *\([0-9.e+]*\) states, stored.*/\1/p' pan.log)
    [ -n "$states" ] || fail "$what: no states"
    echo "$model.pml, $what: no error, $states states"
}

# finds RANKS CALLS FAULT WORDS [DEFINES...]: fails unless the search ends at a wrong state, with WORDS
# in the checker's output. Few states are searched, so gcc takes longer than the checker.
finds() {
    search -O0 -DRANKS="$1" -DCALLS="$2" "-D$3" "${@:5}"
    grep -q 'errors: 1$' pan.log || fail "$3: the planted fault was not found"
    grep -q "$4" pan.log || fail "$3: found, but not as '$4'"
    echo "$model.pml with $3: found"
}

prove() { begin shows "$@"; }
catch() { begin finds 2 "$@"; }       # with 2 ranks
catch_among() { begin finds "$@"; }

model=graphs
prove 3 1 -DFAULTS -DPHASES=3 # the longest search
prove 2 3 -DFAULTS
prove 2 4
prove 3 3
for fault in TWO_PHASES NO_WAIT_0 SAME_BIT TWO_BITS; do
    catch 2 $fault 'assertion violated.*signals'
done
catch 2 NO_ORDER 'assertion violated.*block'
catch 1 ONE_BIT 'invalid end state'
for fault in RELEASE_ONCE RELEASE_OWN ONLY_AMID WHOLE_WORD; do
    catch 2 $fault 'invalid end state' -DFAULTS
done
catch 2 TELL_LATE 'assertion violated.*block' -DFAULTS -DPHASES=3
prove 2 2 -DFAULTS -DDIFFER -DPHASES=3
for fault in NUMBER_STAYS EARLY_NUMBER LATE_END; do
    catch 2 $fault 'assertion violated.*number'
done
catch 2 NO_NUMBER 'assertion violated.*number' -DFAULTS -DDIFFER -DPHASES=3
catch 2 NO_WAIT_ENDS 'invalid end state' -DFAULTS

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

model=pairs
prove 2 5 -DHOSTS # the ring goes round twice
prove 2 5
prove 2 3 -DBOTH
prove 3 3
catch 5 LATE_POST 'assertion violated.*post' -DHOSTS
catch 5 SPLIT_ARRIVAL 'assertion violated.*second' -DHOSTS
catch 5 NO_ROOM 'assertion violated.*post' -DHOSTS
catch 5 EARLY_FINISH 'assertion violated.*post' -DHOSTS
catch 4 ONE_WORD 'assertion violated.*copied'
catch 4 NO_READY 'assertion violated.*open'
catch 4 NO_DONE 'assertion violated.*copied'
catch_among 3 3 ONE_LANE 'invalid end state'

model=puts
prove 2 2 -DLINES=1
prove 2 3 -DONE_WAY
prove 2 1 -DFAULTS
prove 2 2 -DFAULTS -DSTREAMS=1
prove 2 1 -DDEATH
prove 2 2 -DDEATH -DONE_WAY
prove 2 2 -DEND -DONE_WAY
catch 2 SIGNAL_FIRST 'assertion violated.*wrong' -DONE_WAY
catch 2 NO_ORDER 'assertion violated 0' -DONE_WAY
catch 2 EQUAL_ONLY 'invalid end state' -DONE_WAY
catch 2 PLAIN_COMPARE 'assertion violated.*wrong' -DONE_WAY
catch 2 NO_LINE_WAIT 'invalid end state' -DONE_WAY -DLINES=1
catch 2 RELEASE_FIRST 'assertion violated.*wrong' -DFAULTS -DSTREAMS=1
catch 2 RELEASE_ONCE 'invalid end state' -DFAULTS -DSTREAMS=1
catch 2 LOOK_FIRST 'assertion violated 0' -DONE_WAY
catch 2 EARLY_GOODBYE 'assertion violated 0' -DONE_WAY
catch 1 OLD_COUNT 'assertion violated.*is_same' -DONE_WAY -DEND

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

model=release
prove 2 2
prove 2 1 -DFAULTS=2
prove 2 2 -DWRITES
prove 2 1 -DWRITES -DFAULTS=2
prove 2 2 -DKERNELS
prove 2 1 -DFINALIZE -DWRITES
prove 2 2 -DDEATHS=1 -DFAULTS=0
prove 3 1 -DDEATHS=1 -DFAULTS=0
catch 1 RELEASE_FIRST 'assertion violated.*wrong' -DWRITES
catch 1 NO_SILENCE 'assertion violated.*has_come'
catch 1 KERNELS_LAST 'assertion violated.*has_come' -DKERNELS
catch 1 NO_QUESTION 'assertion violated.*wrong' -DWRITES -DFINALIZE
catch 2 SAME_QUARTER 'assertion violated.*in_vain'
catch 1 ONE_RELEASE 'invalid end state'
catch 1 LATE_TARGET 'invalid end state'
catch 1 NO_END_MARK 'invalid end state'

model=trial
prove 2 22 -DTURNS=4
prove 2 14 -DSTOPS
prove 2 14 -DEARLY
prove 2 14 -DCOMMS=2
prove 2 11 -DAGAIN -DATTEMPTS=1
prove 3 7 -DATTEMPTS=1 -DMOST_PUT_OFF=1 -DTURNS=1
prove 3 6 -DCOMMS=2 -DOVERLAP -DATTEMPTS=1 -DMOST_PUT_OFF=1 -DTURNS=1
catch 14 STORED 'assertion violated.*had'
catch 14 OWN_OFFERS 'assertion violated.*had'
catch 14 OWN_TIMES 'assertion violated.*had'
catch 14 USED_TWICE 'assertion violated.*mine'
catch 14 NUMBERLESS 'assertion violated.*tries'
catch 14 ANY_OFFER 'assertion violated.*tries'
catch 11 OLD_OFFER 'assertion violated.*tries' -DAGAIN -DATTEMPTS=1
catch 14 NO_RESERVE 'assertion violated.*seen' -DCOMMS=2
catch 14 NO_RELEASE 'assertion violated.*tries'
catch 18 NO_BOUND 'assertion violated.*since'
catch 14 WAITS 'invalid end state'

wait
[ -z "$(ls "$work")" ] || { echo "a search did not end as it should" >&2; exit 1; }
echo "$models" >"$checked"
