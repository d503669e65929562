#!/usr/bin/env bash
# Fails unless chrome://tracing and Perfetto can read the traces of test_trace.
# view_trace.sh MPIRUN... TEST_TRACE
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
folder=$(mktemp -d /tmp/cecl_view_XXXXXX) # test_trace links its files into this folder, which is beside its own
trap 'rm -rf "$folder"' EXIT
CECL_TEST_KEEP_TRACES=$folder "$@" >"$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
here=$(dirname "$0")
python3 "$here/view_trace.py" "$folder"/*.json || exit 1

# Checks that view_trace.py can fail: each of these breaks one thing in the first file.
# bad SED_COMMAND
bad() {
    sed "$1" "$folder/0.json" >"$folder/broken"
    ! cmp -s "$folder/0.json" "$folder/broken" || { echo "nothing was broken: $1"; exit 1; }
    ! python3 "$here/view_trace.py" "$folder/broken" 2>/dev/null || { echo "not detected: $1"; exit 1; }
}
bad '/^]/d'                         # the array is not closed
bad '2s/process_name/process/'      # the rank has no name
bad '3s/"pid": 0/"pid": 7/'         # an event of a process that has no name
bad '3s/"dur": [0-9.]*/"dur": -1/'
bad '3s/"dur": [0-9.]*/"dur": NaN/'
bad '3s/"ts": [0-9.]*, //'
bad '3s/"ph": "X"/"ph": "B"/'       # an event that ends without a begin
# Two events of one thread overlap by half, before all others.
event='"ph": "X", "name": "x", "pid": 0, "tid": 1, "dur": 2, "args": {}'
bad "2a {$event, \"ts\": 1},\n{$event, \"ts\": 2},"
