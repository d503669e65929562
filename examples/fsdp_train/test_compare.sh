#!/usr/bin/env bash
# scripts/compare_training.sh runs each kind once a round, in turn. scripts/training_table.py reads the runs'
# JSON, compares runs of the same round, and refuses runs that cannot be compared. EXAMPLE MPIRUN...
# shellcheck source=examples/fsdp_train/test_common.sh
. "$(dirname "$0")/test_common.sh"
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
scripts=$(cd "$(dirname "$0")/../../scripts" && pwd)

# ---- real runs
out=$work/out
output=$("$scripts/compare_training.sh" "$out" 2 cecl "${mpirun[@]}" -n 2 "$example" "${tiny[@]}" \
    --steps 9 2>&1) || fail "not compared" "$output"
grep -q "2 ranks on the host device, 2 rounds of 6 steps after 3$" <<<"$output" || fail "$output"
grep -q "^cecl  *[0-9.]* ([0-9.]* \.\. [0-9.]*)" <<<"$output" || fail "no row" "$output"
python3 - "$out" <<'END' || fail "$out: not as expected"
import json, sys
both = json.load(open(sys.argv[1] + "/training.json"))
runs = [json.load(open(f"{sys.argv[1]}/train-cecl-{i}.json")) for i in (1, 2)]
for run in runs:
    assert (run["comm"], run["device"], run["ranks"]) == ("cecl", "host", 2)
    assert (run["steps"], run["warm_up_steps"], len(run["losses"])) == (9, 3, 9)
    step, exposed = run["step_ms"], run["exposed_ms"]
    assert 0 < exposed["median"] < step["median"]
    assert abs(run["tokens_per_second"] * step["median"] / (2 * 4 * 16 * 1e3) - 1) < 1e-2
assert runs[0]["losses"] == runs[1]["losses"]
assert both["sides"][0]["step_ms"]["rounds"] == [run["step_ms"]["median"] for run in runs]
END
# A run that fails ends the comparison with the run's message. The files of an earlier comparison are gone
# then.
output=$("$scripts/compare_training.sh" "$out" 1 cecl "${mpirun[@]}" -n 1 "$example" --width 12 2>&1) &&
    fail "a failed run is compared" "$output"
grep -q -- "--width 12: a multiple of 8" <<<"$output" || fail "no words" "$output"
grep -q -- "--comm cecl failed in round 1" <<<"$output" || fail "not said which" "$output"
[ ! -e "$out/training.json" ] || fail "the comparison before is left"

# ---- made-up runs: made COMM MS [LAYERS]
made() {
    printf '{"comm": "%s", "device": "cuda", "ranks": 4, "prefetch": 1, "layers": %d, "width": 8,
        "heads": 1, "sequence": 4, "batch": 1, "parameters": 1000000, "received_bytes": 1,
        "steps": 9, "warm_up_steps": 3, "step_ms": {"median": %s},
        "exposed_ms": {"median": 1}, "tokens_per_second": 5, "losses": [2, 1.5]}' "$1" "${3:-2}" "$2"
}
i=0
# Both kinds take twice as long in the second round. Within rounds the ratios are 0.8, 0.8 and 0.5.
for run in "cecl 8" "nccl 10" "cecl 16" "nccl 20" "cecl 10" "nccl 20"; do
    i=$((i + 1))
    # shellcheck disable=SC2086
    made $run >"$work/$i.json"
done
table=("$scripts/training_table.py" "$work/all.json")
made none 5 | sed 's/"received_bytes": 1/"received_bytes": 0/' >"$work/7.json"
output=$("${table[@]}" "$work"/[1-6].json) || fail "no table" "$output"
grep -Eq "^cecl  10\.00 \(8\.00 \.\. 16\.00\) +10\.0 \(6\.2 .* 0\.800 \(0\.500 \.\. 0\.800\)  1\.5000$" <<<"$output" ||
    fail "not the ratio within rounds:" "$output"
# A run with --comm none is compared by its time alone: it receives nothing, and its loss means nothing.
output=$("${table[@]}" "$work"/[127].json) || fail "no table with none" "$output"
grep -Eq "^none  5\.00 .* -$" <<<"$output" || fail "not told without communication:" "$output"
made nccl 20 3 >"$work/8.json"
echo '{"comm": "cecl"}' >"$work/9.json"
# refused WORDS RUN...
refused() {
    output=$("${table[@]}" "${@:2}" 2>&1) && fail "not refused with \"$1\":" "$output"
    grep -q "$1" <<<"$output" || fail "not refused with \"$1\":" "$output"
}
cd "$work" || exit 1
refused "each --comm once a round" [1-5].json
refused "a run is given twice" 1.json 1.json
refused "the runs differ in layers: 2, 3" [1-5].json 8.json
refused "9.json: not what example_fsdp_train --json writes" [1-5].json 9.json
