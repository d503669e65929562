#!/usr/bin/env bash
# plots.sh [MEASURED]: draws docs/images from docs/data. First copies the files that docs/data/README.md names from
# the folder MEASURED, if it is given. PYTHON in the environment names a Python that has matplotlib.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
data=$root/docs/data images=$root/docs/images
names=$(sed -n 's/^| `\([a-z0-9_]*\)\.json` .*/\1/p' "$data/README.md")
drawn=0
mkdir -p "$images"
for name in $names; do
    [ -z "${1:-}" ] || [ ! -f "$1/$name.json" ] || cp "$1/$name.json" "$data/"
    if [ -f "$data/$name.json" ]; then
        "${PYTHON:-python3}" "$root/bench/plot.py" "$data/$name.json" -o "$images/$name.svg"
        drawn=$((drawn + 1))
    else
        echo "$name.json: not in docs/data: no chart" >&2
    fi
done
[ $drawn -gt 0 ]
