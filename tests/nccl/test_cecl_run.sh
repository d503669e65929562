#!/usr/bin/env bash
# How cecl-run changes a command, and what it refuses.
# test_cecl_run.sh CECL_RUN PROBE STANDIN SCRATCH TORCH TOOL
#   TOOL  any library that can be preloaded
set -uo pipefail
run=$1 standin=$3 scratch=$4 tool=$6 # the other arguments as in test_nccl_preload.sh
here=$(cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=tests/nccl/expect.sh
. "$here/expect.sh"
rm -rf "$scratch"
mkdir -p "$scratch"
unset LD_PRELOAD LD_LIBRARY_PATH CECL_NCCL CECL_NCCL_PATH CECL_NCCL_STATS CECL_RUN_NOTE
library=$(cd -- "$(dirname -- "$run")/../lib/cecl" && pwd)/libnccl.so.2

case="cecl-run sets the environment, and says so in one line"
run_to 0 "$run" env
expect_lines 1
expect_error "cecl-run: preloads $library; CECL_NCCL=auto; the real NCCL: looked for by each process"
expect_output "LD_PRELOAD=$library"
[[ $output != *CECL_NCCL* ]] || wrong "no setting is set that was not asked for"

case="options become settings"
run "$run" --stats --policy all --nccl "$standin" env
expect_output "CECL_NCCL_STATS=1"
expect_output "CECL_NCCL=all"
expect_output "CECL_NCCL_PATH=$standin"
expect_error "CECL_NCCL=all; the real NCCL: $standin"
cd "$(dirname "$standin")" || exit 1
run "$run" --policy=strict --nccl=libnccl.so.2 -- env
expect_output "CECL_NCCL=strict"
expect_output "CECL_NCCL_PATH=$standin"

case="the library comes before another NCCL, and after all other preloaded libraries"
run env LD_PRELOAD="$standin" "$run" env
expect_output "LD_PRELOAD=$library:$standin"
run env LD_PRELOAD="$tool" "$run" env
expect_output "LD_PRELOAD=$tool:$library"
run env LD_PRELOAD="$tool $standin:$standin" "$run" env
expect_output "LD_PRELOAD=$tool:$library:$standin:$standin"

case="cecl-run works through a link and by a relative path"
ln -s "$run" "$scratch/by-link"
cd "$scratch" || exit 1
run ./by-link env
expect_output "LD_PRELOAD=$library"

case="cecl-run passes on the command's arguments and exit status"
# shellcheck disable=SC2016
run_to 41 "$run" sh -c 'echo "$1 and $2"; exit 41' sh "two words" --stats
expect_output "two words and --stats"

case="a command that is not found"
run_to 127 "$run" no-such-command-here
expect_error "no-such-command-here"

case="bad options"
for options in "--policy none true" "--policy" "--nccl $scratch/none true" "--nccl" "--what true" "" \
    "--stats"; do
    # shellcheck disable=SC2086
    run_to 2 "$run" $options
    expect_error "Usage: cecl-run"
done
run "$run" --policy none true
expect_error "--policy none: one of off, auto, all, strict expected"

case="a file for statistics that cannot be written is named"
for file in "$scratch/none/stats" "$scratch"; do
    run_to 2 "$run" --stats="$file" true
    expect_error "cecl-run: --stats=$file: cannot be written"
done
run "$run" --stats="$scratch/two words" env
expect_output "CECL_NCCL_STATS_FILE=$scratch/two words"

case="pipes and devices are named, or served, and never waited for"
mkfifo "$scratch/pipe"
for file in "$scratch/pipe" /dev/zero "$scratch"; do
    run_to 2 timeout 20 "$run" --nccl "$file" true
    expect_error "cecl-run: --nccl $file: no such file, not readable, or no regular file"
done
run timeout 20 "$run" --stats="$scratch/pipe" env
expect_output "CECL_NCCL_STATS_FILE=$scratch/pipe"
run "$run" --stats=/dev/stdout env
expect_output "CECL_NCCL_STATS_FILE=/dev/stdout"

case="--stats=>(COMMAND) gets the tables, also of children that inherit no descriptors"
# shellcheck disable=SC2016
run_to 0 "$run" --nccl "$standin" --policy off --stats=>(cat >"$scratch/taken"; touch "$scratch/ended") \
    bash -c '"$1" processes 2 3>&- 63>&-; true' - "${7:?}"
for ((i = 0; i < 300 && $([ -e "$scratch/ended" ]; echo $?); i++)); do sleep 0.1; done
[ "$(grep -c '^{"process": .*}$' "$scratch/taken")" -eq 2 ] || wrong "two tables expected in $(cat "$scratch/taken")"

case="the library is missing, or cannot be preloaded"
mkdir -p "$scratch/alone/bin" "$scratch/a space/bin" "$scratch/a space/lib/cecl"
cp "$run" "$scratch/alone/bin"
run_to 1 "$scratch/alone/bin/cecl-run" true
expect_error "is missing"
cp "$run" "$scratch/a space/bin"
cp "$library" "$scratch/a space/lib/cecl"
run_to 1 "$scratch/a space/bin/cecl-run" true
expect_error "has a space or a colon"

case="help"
run_to 0 "$run" --help
expect_output "Usage: cecl-run"
exit $failed
