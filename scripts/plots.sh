#!/usr/bin/env bash
# Draws docs/images from docs/data.
# plots.sh [MEASURED]   MEASURED: a folder from which the files that docs/data/README.md names are copied first
# PYTHON in the environment names a Python that has matplotlib.
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
