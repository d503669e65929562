#!/usr/bin/env bash
# The table of --stats: calls, who carried them out, and why; and refused calls.
# test_nccl_stats.sh PROGRAM STANDIN SCRATCH
#   PROGRAM  nccl_program, linked to the library in NCCL's place
# shellcheck disable=SC2317 # functions that `run` calls
set -uo pipefail
program=$1 scratch=$3
export CECL_NCCL_PATH=$2 CECL_NCCL_TRIALS=0
# shellcheck source=tests/nccl/expect.sh
. "$(dirname -- "$0")/expect.sh"
rm -rf "$scratch"
mkdir -p "$scratch"
slower="no measurement says that cecl is faster"
one="the communicator has one rank"

# expect_row FUNCTION BYTES CALLS TOTAL BY WHY: checks that each table has this row
expect_row() {
    local rows
    rows=$(tr -s ' ' <<<"$errors" | grep -cxF "cecl: $1 $2 $3 $4 $5 $6")
    [ "$rows" -eq "$tables" ] || wrong "$tables rows expected: $*"
}

# expect_table TIMES WHY WHY_EMPTY: checks the table of nccl_program; each process has made its calls TIMES times
expect_table() {
    expect_row ncclAllGather 0 "$1" 0 "NCCL unknown" "${3:-$2}"
    expect_row ncclAllGather "to 4 KiB" $((3 * $1)) $((12288 * $1)) "NCCL unknown" "$2"
    expect_row ncclAllGather "to 64 KiB" "$1" $((4100 * $1)) "NCCL unknown" "$2"
    expect_row ncclAllReduce "to 1 MiB" $((2 * $1)) $((320000 * $1)) "NCCL unknown" "$2"
    expect_row ncclBcast "to 4 KiB" "$1" $((64 * $1)) "NCCL unknown" "$2"
    expect_lines $((7 * tables)) # including the heading: NCCL's broadcast inside Bcast is not counted
}

case="no table without the setting"
run_to 0 "$program" processes 3
[ -z "$errors" ] || wrong "nothing on stderr expected"

case="a table for each process"
export CECL_NCCL_STATS=1
tables=3
run_to 0 "$program" processes 3
expect_table 1 "$slower" "the call moves no bytes"
for rank in 0 1 2; do
    expect_error "cecl: rank $rank of 3, process "
done

case="one table for threads"
tables=1
run_to 0 "$program" threads 3
expect_table 3 "$slower" "the call moves no bytes"
for rank in 0 1 2; do
    grep -qE "^cecl: ranks( [012])* $rank( [012])* of 3, process [0-9]+: calls of NCCL$" <<<"$errors" ||
        wrong "the heading names rank $rank"
done

case="the heading names the ranks of the largest of many communicators"
run_to 0 "$program" crowd 3
grep -qE "^cecl: ranks 0 1 2 of 3, process [0-9]+: calls of NCCL$" <<<"$errors" || wrong "ranks 0 1 2 of 3 expected"

case="the heading names the ranks of a communicator whose handle an earlier one had"
run_to 0 "$program" again 3
for rank in 0 1 2; do
    expect_error "cecl: rank $rank of 3, process "
done

case="children of a process that called NCCL count their own calls"
run_to 0 "$program" children 2
expect_lines 21
tables=2
expect_row ncclAllReduce "to 1 MiB" 2 320000 "NCCL unknown" \
    "this process was forked after its parent called NCCL"
tables=1
expect_row ncclAllReduce "to 1 MiB" 2 320000 "NCCL unknown" "$one"

case="the reason is the setting"
run env CECL_NCCL=off "$program" threads 1
expect_table 1 "CECL_NCCL=off"

case="the reason is an old NCCL"
run env CECL_TEST_NCCL_VERSION=21805 CECL_DEBUG=none "$program" threads 1
expect_table 1 "NCCL is older than 2.19"

case="strict refuses calls that only move data, and says why once for each function"
run_to 1 env CECL_NCCL=strict CECL_NCCL_STATS=0 "$program" threads 1
expect_lines 2
for name in ncclAllGather ncclBcast; do
    expect_error "CECL_NCCL=strict: $name is refused, because it would not be zero SM: $one"
done
[ "$(grep -c 'ncclAllGather 5' <<<"$output")" -eq 4 ] || wrong "4 refused all-gathers expected"
expect_output "ncclBcast 5"
[[ $output != *ncclAllReduce* ]] || wrong "a reduction is not refused"

case="refused calls are in the table"
run env CECL_NCCL=strict CECL_DEBUG=none "$program" threads 1
expect_row ncclAllGather "to 4 KiB" 3 12288 "refused -" "$one"
expect_row ncclAllGather 0 1 0 "NCCL unknown" "$one"
expect_row ncclAllReduce "to 1 MiB" 2 320000 "NCCL unknown" "$one"

case="calls that cecl serves are in the table, with whether they used SMs"
tables=2
run_to 0 env CECL_NCCL=all "$program" processes 2
expect_row ncclAllGather "to 4 KiB" 3 12288 "cecl yes" -
expect_row ncclAllReduce "to 1 MiB" 2 320000 "cecl no" -
expect_row ncclBcast "to 4 KiB" 1 64 "cecl yes" -
expect_row ncclAllGather 0 1 0 "NCCL unknown" "the call moves no bytes"
run_to 0 env CECL_NCCL=strict "$program" processes 2
expect_row ncclAllGather "to 64 KiB" 1 4100 "cecl yes" -

case="under strict no setting lets SMs into calls that only move data"
run_to 0 env CECL_NCCL=strict CECL_SM_POLICY=allow "$program" processes 2
expect_row ncclAllGather "to 4 KiB" 3 12288 "cecl yes" -

case="without SMs reductions are passed"
run_to 0 env CECL_NCCL=all CECL_SM_POLICY=never "$program" processes 2
expect_row ncclAllReduce "to 1 MiB" 2 320000 "NCCL unknown" "CECL_SM_POLICY=never: a reduction needs SMs"
expect_row ncclAllGather "to 4 KiB" 3 12288 "cecl yes" -

case="the reason is cecl's error: it could not make a communicator"
run_to 0 env CECL_NCCL=all CECL_POOL_BYTES=1 CECL_DEBUG=none "$program" processes 2
why="cecl could not make a communicator: ceclCommInitOob: rank 0: CECL_POOL_BYTES=1: bytes with optional K, M, G, T in "
expect_row ncclAllGather "to 4 KiB" 3 12288 "NCCL unknown" "${why}1M..16T expected"
tables=1

case="the reason is that libcecl.so cannot be loaded"
mkdir "$scratch/bad"
: >"$scratch/bad/$(grep -aom 1 'libcecl\.so\.[0-9]*\.[0-9]*' "$(ldd "$program" | grep -o '/.*libnccl\.so\.2')" | head -n 1)"
run_to 0 env CECL_NCCL=all LD_LIBRARY_PATH="$scratch/bad" "$program" processes 2
expect_error "all calls are passed to NCCL, because cecl could not make a communicator: $scratch/bad/libcecl.so."

case="under a limit on files calls are passed, and no signal ends the process"
tables=2
limited() {
    ulimit -f "$1"
    CECL_NCCL=all CECL_DEBUG=none CECL_STAGING_BYTES=64M "$program" processes 2
}
for kilobytes in 100 8000; do # too few for words that ranks share, and for memory
    run_to 0 limited "$kilobytes"
    expect_error "RLIMIT_FSIZE (ulimit -f) allows files of $((kilobytes * 1024))"
    [ "$(grep -c " NCCL .* cecl could not make a communicator: ceclCommInitOob: rank" <<<"$errors")" -eq 10 ] || wrong "all calls passed"
done
tables=1

case="a non-blocking communicator is served, or the table says why not"
tables=2
run_to 0 env CECL_NCCL=all NCCL_COMM_BLOCKING=0 "$program" processes 2
expect_row ncclAllGather "to 4 KiB" 3 12288 "cecl yes" -
expect_row ncclAllGather 0 1 0 "NCCL unknown" "the call moves no bytes"
run_to 0 env CECL_NCCL=all NCCL_COMM_BLOCKING=0 CECL_POOL_BYTES=1 CECL_DEBUG=none "$program" processes 2
expect_row ncclAllGather "to 4 KiB" 3 12288 "NCCL unknown" "${why}1M..16T expected"
tables=1

case="calls whose arguments cecl does not know are passed, and counted without bytes"
lacks="cecl does not serve this function"
run_to 0 env CECL_NCCL=all "$program" newest 2
expect_row ncclAllGatherConfig unknown 4 unknown "NCCL unknown" "$lacks"
expect_row ncclAllReduceConfig unknown 2 unknown "NCCL unknown" "$lacks"

case="strict refuses calls with unknown arguments, if they only move data"
run_to 1 env CECL_NCCL=strict CECL_DEBUG=none "$program" newest 2
expect_row ncclAllGatherConfig unknown 2 unknown "refused -" "$lacks"
expect_row ncclAllReduceConfig unknown 2 unknown "NCCL unknown" "$lacks"
run env CECL_NCCL=strict CECL_NCCL_STATS=0 "$program" newest 2
expect_error "CECL_NCCL=strict: ncclAllGatherConfig is refused, because it would not be zero SM: $lacks"
expect_lines 1

case="a group of many messages prints once that its messages do not all run at the same time"
run_to 0 env CECL_NCCL=all CECL_NCCL_STATS=0 "$program" messages 3
expect_error "cecl: a group has more than 256 calls of ncclSend with rank "
expect_lines 1

case="captured calls have rows of their own, and count once, however often they are replayed"
run_to 0 env CECL_NCCL=all "$program" captured 3
expect_row ncclSend "to 4 KiB" 1 4 "NCCL unknown" "captured: captured sends and receives are passed"
tables=3
expect_row ncclAllGather "to 4 KiB" 1 16 "cecl yes" "captured: -"
run_to 0 env CECL_NCCL=auto "$program" captured 3
expect_row ncclAllGather "to 4 KiB" 1 16 "NCCL unknown" "captured: $slower"
tables=1

# shellcheck disable=SC2016
without_proc='mount -t tmpfs none /proc && exec "$@"'
# not with a sanitizer, which reads /proc itself
if CECL_NCCL=off unshare -rm sh -c "$without_proc" - "$program" threads 1 >"$scratch/tried" 2>&1; then
    case="without /proc calls are passed"
    tables=2
    run_to 0 env CECL_NCCL=all unshare -rm sh -c "$without_proc" - "$program" processes 2
    expect_error "all calls are passed to NCCL, because cecl could not make a communicator: "
    expect_error "/proc/self/maps: No such file or directory; the host device"
    [ "$(grep -c " NCCL .* cecl could not make a communicator: " <<<"$errors")" -eq 10 ] || wrong "all calls passed"
    tables=1
else # scripts/verdict.sh lists it
    printf 'skipped: unshare cannot hide /proc here\n[  SKIPPED ] without_proc_calls_are_passed\n'
fi

# stats_to FILE: runs two processes that append their tables to FILE
stats_to() {
    CECL_NCCL_STATS_FILE=$1 timeout 60 "$program" processes 2
}
# expect_json TEXT: checks that TEXT has two lines of JSON
expect_json() {
    [ "$(grep -c '^{"process": .*}$' <<<"$1")" -eq 2 ] || wrong "two lines of JSON expected, not: $1"
}

case="tables go to a pipe, to the program's output, and to a program that reads slowly"
run stats_to /dev/stdout
expect_json "$output"
run stats_to /dev/stderr
expect_json "$errors"
mkfifo "$scratch/pipe"
(sleep 1 && cat) <"$scratch/pipe" >"$scratch/taken" &
reader=$!
exec 3>"$scratch/pipe" # or the reader would end after the first process
run stats_to "$scratch/pipe"
exec 3>&-
wait "$reader"
expect_json "$(cat "$scratch/taken")"

case="the program's own output to the same file is kept"
run bash -c '{ echo before; CECL_NCCL_STATS_FILE=/dev/stdout "$1" processes 2; echo after; } >"$2"' - \
    "$program" "$scratch/output"
expect_json "$(cat "$scratch/output")"
[[ $(cat "$scratch/output") == before*after ]] || wrong "the program's own lines expected"

case="what is no place for a table is named, and not waited for"
for named in "$scratch/pipe: not written: No such device or address (a pipe that nobody reads?)" \
    "$scratch: not written: Is a directory" "/dev/full: not written: 0 of "; do
    run_to 0 stats_to "${named%%: *}"
    expect_error "CECL_NCCL_STATS_FILE=$named"
done
limited() {
    ulimit -f 100
    CECL_NCCL=off stats_to "$scratch/long.json"
}
: >"$scratch/long.json"
truncate -s 102000 "$scratch/long.json"
run_to 0 limited
expect_error "CECL_NCCL_STATS_FILE=$scratch/long.json: not written: a file of "
expect_error " bytes: RLIMIT_FSIZE (ulimit -f) allows files of 102400"

if [ -x "${program}_own_malloc" ]; then
    case="with an allocator of the program's own, NCCL's own calls are not counted"
    run_to 0 "${program}_own_malloc" threads 1
    expect_table 1 "$one"
fi
exit $failed
