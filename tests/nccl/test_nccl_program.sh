#!/bin/sh
# JAX or CuPy, if installed, with cecl in NCCL's place, on two GPUs. With CECL_SHARE_GPU=1 one is enough; copies then use SMs.
# test_nccl_program.sh CECL_RUN jax|cupy
set -u
run=$1
name=$2
program=$(dirname -- "$0")/${name}_calls.py
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT

case $name in
jax) needs='import jax; assert jax.default_backend() == "gpu", "its backend is " + jax.default_backend()' ;;
cupy) needs='from cupy.cuda import nccl; assert nccl.available, "it has no NCCL"' ;;
*)
    echo "test_nccl_program.sh: $name: jax or cupy expected" >&2
    exit 2
    ;;
esac
if ! python3 -c "$needs" 2>"$log/import"; then
    echo "skipped: python3 has no $name for GPUs: $(tail -n 1 "$log/import")"
    exit 77
fi

case $name in
jax) meeting=127.0.0.1:29578 ;;
cupy) meeting=$log/id ;;
esac
for rank in 1 0; do # both may need long to compile
    timeout 200 "$run" --policy all --stats python3 "$program" $rank 2 "$meeting" >"$log/$rank" 2>&1 &
    pids="${pids:-} $!"
done
status=0
for pid in $pids; do
    wait "$pid" || status=1
done
grep '^ok' "$log/0" && grep -q 'ncclAllReduce .* cecl ' "$log/0" && [ $status -eq 0 ] && exit 0
echo "FAILED: $program"
cat "$log"/*
exit 1
