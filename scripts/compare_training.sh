#!/usr/bin/env bash
# Runs one training with several communication libraries in turn: A B C A B C ..., so that a machine
# that slows down as it warms up slows all libraries alike.
#   compare_training.sh OUT ROUNDS COMMS COMMAND...
#     COMMS    some of cecl,nccl,nccl-ce,none
#     COMMAND  mpirun ... example_fsdp_train OPTION...; the script adds --comm and --json
# Writes to OUT each run's train-COMM-ROUND.json, the runs' output (train.log), and training.json, a
# summary that bench/plot.py draws. Prints a table at the end.
set -euo pipefail
if [ $# -lt 4 ]; then
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
out=$1 rounds=$2 comms=${3//,/ }
shift 3

mkdir -p "$out"
rm -f "$out"/train-*.json "$out/training.json"
: >"$out/train.log"
files=()
for round in $(seq "$rounds"); do
    for comm in $comms; do
        file=$out/train-$comm-$round.json
        echo "round $round of $rounds: $comm" | tee -a "$out/train.log"
        if ! "$@" --comm "$comm" --json "$file" </dev/null >>"$out/train.log" 2>&1; then
            tail -n 20 "$out/train.log" >&2
            echo "compare_training.sh: --comm $comm failed in round $round" >&2
            exit 1
        fi
        files+=("$file")
    done
done
exec python3 "$here/training_table.py" "$out/training.json" "${files[@]}"
