#!/usr/bin/env bash
# What --stats=FILE reports of trials: one line of JSON for each process, and lines for people.
# test_nccl_report.sh TRIALS SCRATCH
#   TRIALS  test_nccl_trials: its program is faster with cecl; a communicator's ranks are in one process
set -uo pipefail
trials=$1 scratch=$2
# shellcheck source=tests/nccl/expect.sh
. "$(dirname -- "$0")/expect.sh"
rm -rf "$scratch"
mkdir -p "$scratch"
export CECL_NCCL_STATS=1 CECL_NCCL_STATS_FILE="$scratch/stats.json"

case="two processes append to one file"
run_to 0 "$trials" '*trial*'
expect_error "cecl: communicator, rank 0 of 3: decided: served"
expect_error "a rank came late to "
expect_error "cecl: step "
run_to 0 "$trials" 'communicators*'

case="each line is an object, with all calls and all communicators of its process"
if command -v python3 >/dev/null; then
    run_to 0 python3 - "$scratch/stats.json" <<'PY'
import json, sys

lines = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
assert len(lines) == 2 and lines[0]["process"] != lines[1]["process"], [line["process"] for line in lines]
line, second = lines
assert {row["function"] for row in second["calls"]} == {"ncclAllGather", "ncclAllReduce"}, second["calls"]
assert sum(row["calls"] for row in line["calls"] if row["by"] == "cecl") > 1000
assert {row["function"] for row in line["calls"]} == {
    "ncclAllGather", "ncclAllReduce", "ncclBcast", "ncclBroadcast"}
decided = [comm for comm in line["communicators"] if comm["state"] == "decided"]
# the test's program is faster with cecl
first = [comm for comm in decided if comm["period_calls"] == 7]
assert [comm["ranks"] for comm in first] == [3, 3, 3], first
for comm in first:
    assert comm["decision"] in ("with_sms", "no_sms"), comm
    ways = comm["ways"]
    assert set(ways) == {"nccl", "no_sms", "with_sms", "moves_alone"} and comm["trials"] == 1, comm
    assert all(0 < way["steps"] <= 20 and way["median_ms"] > 0 for way in ways.values()), comm
    assert ways[comm["decision"]]["median_ms"] < 0.9 * ways["nccl"]["median_ms"], comm
    assert 0 <= comm["late_calls"] <= comm["told_calls"], comm
PY
else # scripts/verdict.sh lists it
    printf 'skipped: no python3\n[  SKIPPED ] each_line_is_an_object_without_python3\n'
fi

case="a file that cannot be written causes one line"
run env CECL_NCCL_STATS_FILE="$scratch/none/stats.json" "$trials" 'communicators*'
expect_error "CECL_NCCL_STATS_FILE=$scratch/none/stats.json: not written: No such file or directory"
exit $failed
