#!/usr/bin/env bash
# test_plot.sh draws|refuses PLOT.PY: plot.py must draw every kind of chart, and refuse other files. The numbers are
# made up.
mode=$1 plot=$2
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
fail() { echo "$*"; exit 1; }

cat >perf.json <<'END'
{"op": "all_gather", "type": "int32", "ranks": 4, "device": "cuda", "rounds": 3, "iterations": 2, "rows": [
  {"bytes": 1024, "count": 256, "in_place": true, "errors": 0, "us": {"cecl": 10.000, "nccl": 20.000}},
  {"bytes": 1048576, "count": 262144, "in_place": true, "errors": null, "us": {"cecl": 100.000, "nccl": 200.000}},
  {"bytes": 1048576, "count": 262144, "in_place": false, "errors": 0, "us": {"cecl": 150.000}}
]}
END
cat >overlap.json <<'END'
{"op": "all_gather", "type": "float16", "ranks": 4, "gemm": 1024, "preset": "", "host_copies": false, "rounds": 3, "warmup": 1, "sizes": [
  {"bytes": 1048576, "yardstick": null, "gemm_alone_ms": 1.0, "gemm_alone_ms_quartiles": [0.9, 1.1], "rounds_gemm_alone_ms": [0.9, 1.0, 1.1],
   "sides": [
    {"side": "cecl in", "errors": 0, "with_gemm_ms": 2.0, "to_gemm_alone": 2.1, "to_gemm_alone_quartiles": [1.9, 2.2], "rounds_sequential_ms": [1.8, 2.4, 3.3]},
    {"side": "nccl-ce out", "errors": 0, "with_gemm_ms": 2.5, "to_gemm_alone": 2.5, "to_gemm_alone_quartiles": [2.4, 2.6]}
   ]}
]}
END
cat >training.json <<'END'
{"training": {"device": "cuda", "ranks": 4, "parameters": 1500000000}, "rounds": 3, "sides": [
  {"comm": "cecl", "step_ms": {"median": 50.25, "least": 49, "most": 51}, "exposed_ms": {"median": 1}, "exposed_share": {"median": 0.02}},
  {"comm": "nccl-ce", "step_ms": {"median": 60, "least": 59, "most": 61}, "exposed_ms": {"median": 2}, "exposed_share": {"median": 0.03}}
]}
END

cat >beside.json <<'END'
{"beside": {"device": "cuda", "ranks": 2, "op": "all_gather", "bulk": "all_gather", "bulk_bytes": 1048576}, "calls": [
  {"bytes": 4096, "sides": [{"side": "cecl, urgent", "median_us": 55.5, "p99_us": 74, "alone_us": 20, "calls": 9},
   {"side": "nccl", "median_us": 20.9, "p99_us": 31, "alone_us": 12, "calls": 9}]}
]}
END

cat >fsdp2.json <<'END'
{"fsdp2": {"ranks": 2, "blocks": 12, "width": 4096, "sequence": 2048, "batch": 1}, "step_ms": {
  "nccl": {"median": 78.16, "least": 77.9, "most": 78.4, "rounds": [78.16], "last_loss": 2.4},
  "cecl": {"median": 69.68, "least": 69.5, "most": 69.9, "rounds": [69.68], "last_loss": 2.4}}}
END

# drawn NAME WORDS...: NAME.svg must contain all WORDS and no date, and must be drawn with the same bytes again. Its
# background must be white: its text is black, and the page may be dark.
drawn() {
    local name=$1 words
    shift
    python3 "$plot" "$name.json" || fail "no chart: $name"
    for words in "$@" "fill: #ffffff"; do
        grep -qF -- "$words" "$name.svg" || fail "not in $name.svg: $words"
    done
    ! grep -q "dc:date" "$name.svg" || fail "$name.svg has a date"
    python3 "$plot" "$name.json" -o again.svg || fail "no second chart: $name"
    cmp "$name.svg" again.svg || fail "two charts of one file differ: $name"
    [ "$(wc -c <"$name.svg")" -lt 60000 ] || fail "$name.svg is large"
}

draws() {
    python3 -c 'import matplotlib' 2>/dev/null || { echo "skipped: no matplotlib"; exit 77; }
    drawn perf "bus bandwidth, GB/s" ">cecl, in place<" ">cecl, out of place<" ">NCCL, in place<" "1 MiB" ">all-gather, 4 ranks on GPUs<"
    # the ratios of the sequence are 1.8 / 0.9, 2.4 / 1.0 and 3.3 / 1.1
    drawn overlap "cecl, in place" "NCCL on copy engines, out of place" ">2.100<" ">2.500<" "1 MiB a rank"
    [ "$(grep -c ">one after the other<" overlap.svg)" -eq 1 ] || fail "a bar that was not measured, or none"
    grep -q ">2.400<" overlap.svg || fail "not the median of the sequence's ratios"
    drawn beside ">56<" ">21<" ">cecl, urgent communicator<" ">NCCL<" "4 KiB a rank"
    drawn fsdp2 "78.2 ms" "69.7 ms" "cecl in NCCL" "batch 1, 2 GPUs"
    ! grep -q "not sharded" fsdp2.svg || fail "a line that was not measured"
    sed 's/^{"fsdp2"/{"line": {"label": "not sharded", "ms": 67.18}, "fsdp2"/' fsdp2.json >fsdp2_line.json
    drawn fsdp2_line "78.2 ms" "69.7 ms" ">not sharded: 67.2 ms<"
    drawn training "1.50 billion parameters" ">50.2 ms,<" ">2.0 % waiting<" ">60.0 ms,<" ">3.0 % waiting<" ">on copy engines<"
    python3 "$plot" overlap.json -o overlap.png || fail "no chart as PNG"
    [ "$(head -c 4 overlap.png | tail -c 3)" = PNG ] || fail "overlap.png is no PNG"
    [ "$(python3 - "$plot" <<'END'
import importlib.util, json, sys
sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location("plot", sys.argv[1])
plot = importlib.util.module_from_spec(spec)
spec.loader.exec_module(plot)
print(plot.lines_of(json.load(open("perf.json")))["cecl", True][1][1])
END
    )" = 31.45728 ] || fail "3 x 1 MiB in 100 us are not 31.45728 GB/s"
}

# refused CODE WORDS ARGUMENTS...: plot.py must exit with CODE and print WORDS.
refused() {
    local code=$1 words=$2 output got
    shift 2
    output=$(python3 "$plot" "$@" 2>&1)
    got=$?
    { [ "$got" -eq "$code" ] && grep -q -- "$words" <<<"$output"; } || fail "not refused with $code ($got) and '$words': $* : $output"
}

refuses() {
    echo '{"traceEvents": []}' >other.json
    echo '{' >broken.json
    sed 's/"errors": 0/"errors": 8/' perf.json >wrong.json
    sed 's/"us": {/"times": {/' perf.json >foreign.json
    mkdir -p none/matplotlib
    echo 'raise ImportError' >none/matplotlib/__init__.py
    refused 2 "No such file" absent.json
    refused 2 "not JSON" broken.json
    refused 2 "what cecl_perf --json, cecl_overlap --json or compare_training.sh wrote" other.json
    refused 2 "16 bytes were wrong" wrong.json
    refused 2 "ends in .svg or .png" perf.json -o perf.pdf
    PYTHONPATH=none refused 3 "matplotlib is missing" perf.json
    if python3 -c 'import matplotlib' 2>/dev/null; then
        refused 2 "not as cecl writes it" foreign.json
        sed 's/"ranks": 4/"ranks": 1/' perf.json >alone.json
        refused 2 "one rank" alone.json
        refused 2 "No such file" perf.json -o none/none/perf.svg
    fi
}

case $mode in
draws) draws ;;
refuses) refuses ;;
*) fail "draws or refuses expected" ;;
esac
