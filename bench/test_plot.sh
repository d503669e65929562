#!/usr/bin/env bash
# Fails unless plot.py draws both kinds of charts, and refuses what is none: test_plot.sh draws|refuses PLOT.PY. The numbers are made up.
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
    {"side": "cecl in", "errors": 0, "with_gemm_ms": 2.0, "with_gemm_ms_quartiles": [1.9, 2.2], "sequential_ms": 3.0, "sequential_ms_quartiles": [2.9, 3.1], "alone_ms": 1.0},
    {"side": "nccl out", "errors": 0, "with_gemm_ms": 2.5, "with_gemm_ms_quartiles": [2.4, 2.6], "sequential_ms": null, "alone_ms": 1.0}
   ]}
]}
END

draws() {
    python3 -c 'import matplotlib' 2>/dev/null || { echo "skipped: no matplotlib"; exit 77; }
    python3 "$plot" perf.json -o perf.svg || fail "no chart of cecl_perf"
    for words in "bus bandwidth, GB/s" "cecl, in place" "cecl, out of place" "nccl, in place" "1 MiB"; do
        grep -q "$words" perf.svg || fail "not in perf.svg: $words"
    done
    python3 "$plot" overlap.json || fail "no chart of cecl_overlap" # overlap.svg
    for words in "GEMM alone" "cecl in, after the GEMM" "nccl out" "1 MiB a rank"; do
        grep -q "$words" overlap.svg || fail "not in overlap.svg: $words"
    done
    ! grep -q "nccl out, after" overlap.svg || fail "a bar that was not measured"
    python3 "$plot" overlap.json -o again.svg || fail "no second chart"
    cmp overlap.svg again.svg || fail "two charts of one file differ"
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

# refused CODE WORDS ARGUMENTS...
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
    refused 2 "what cecl_perf --json or cecl_overlap --json wrote" other.json
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
