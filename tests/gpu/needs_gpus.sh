#!/bin/sh
# Runs a command if there are at least N GPUs, otherwise reports that it was skipped:
# needs_gpus.sh N command ... With CECL_SHARE_GPU=1 one GPU is enough for tests whose ranks are
# processes that only use cecl. The command learns how many there are (CECL_TEST_GPUS). NCCL needs one GPU for each rank, and so do ranks that are threads
# of one process (test_lifecycle).
wanted=$1
shift
case ${CECL_SHARE_GPU:-0}/$1/$* in
*/test_lifecycle) ;;
1/*mpirun/* | 1/*mpiexec/* | 1/*hosts.py/* | 1/*test_failure/* | 1/*test_survivors/* | 1/*fault_cases/* | 1/*pytorch.sh/* | 1/*nccl_program.sh/* | 1/*test_cuda_graphs/*) wanted=1 ;;
esac
have=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
if [ "${have:-0}" -lt "$wanted" ]; then
    echo "skipped: $wanted GPUs are needed, ${have:-0} are here"
    exit 77
fi
CECL_TEST_GPUS=$have exec "$@"
