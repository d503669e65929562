#!/bin/sh
# needs_gpus.sh N COMMAND...: runs the command, which finds the number of GPUs in CECL_TEST_GPUS, or reports that it was
# skipped because there are fewer than N GPUs. CUDA_VISIBLE_DEVICES counts as a list with commas. With CECL_SHARE_GPU=1
# one GPU is enough for tests whose ranks are processes, if they do not use NCCL or give each rank a NCCL_HOSTID.
wanted=$1
shift
case ${CECL_SHARE_GPU:-0}/$1/$* in
1/*mpirun/* | 1/*mpiexec/* | 1/*test_failure/* | 1/*fault_cases/* | 1/*pytorch.sh/* | 1/*with_torch.sh/* | 1/*nccl_program.sh/* | 1/*test_cuda_graphs/*) wanted=1 ;;
esac
have=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
if [ -n "${CUDA_VISIBLE_DEVICES+set}" ]; then
    visible=$(printf '%s\n' "$CUDA_VISIBLE_DEVICES" | tr ',' '\n' | sed '/^-/,$d' | grep -c .)
    [ "${have:-0}" -le "$visible" ] || have=$visible
fi
if [ "${have:-0}" -lt "$wanted" ]; then
    echo "skipped: $wanted GPUs are needed, ${have:-0} are here"
    exit 77
fi
CECL_TEST_GPUS=$have exec "$@"
