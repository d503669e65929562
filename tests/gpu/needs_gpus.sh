#!/bin/sh
# Runs a command if there are at least N GPUs, else says that it was skipped: needs_gpus.sh N command ...
wanted=$1
shift
have=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
if [ "${have:-0}" -lt "$wanted" ]; then
    echo "skipped: $wanted GPUs are needed, ${have:-0} are here"
    exit 77
fi
exec "$@"
