#!/bin/sh
# Runs python3 with these arguments, or reports that it was skipped because python3 or torch is missing.
if ! why=$(python3 -c 'import torch.distributed' 2>&1); then
    echo "skipped: python3 has no PyTorch: $(printf '%s' "$why" | tail -n 1)"
    exit 77
fi
export OMP_NUM_THREADS=1
exec python3 "$@"
