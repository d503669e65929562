#!/usr/bin/env bash
# Programs under cecl-run, with the library in NCCL's place preloaded.
# test_nccl_preload.sh CECL_RUN PROBE STANDIN SCRATCH
set -uo pipefail
run=$1 probe=$2 standin=$3 scratch=$4
here=$(cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=tests/nccl/expect.sh
. "$here/expect.sh"
rm -rf "$scratch"
mkdir -p "$scratch"
unset LD_PRELOAD LD_LIBRARY_PATH CECL_NCCL CECL_NCCL_PATH CECL_NCCL_STATS

case="a program that opens libnccl.so.2 by name gets the library in its place"
run "$run" --nccl "$standin" "$probe" libnccl.so.2 ncclParamBind
expect_status 0
expect_output "result 0 version 22809"
expect_error "ncclParamBind: $standin lacks it"

case="a program that does not call NCCL opens nothing"
run "$run" --stats env CECL_NCCL=bad CECL_NCCL_PATH=/none CECL_DEBUG=info sh -c 'ls / >/dev/null; true'
expect_status 0
expect_lines 1 # cecl-run's own

case="vLLM's way: handles of one communicator, in and beside the library in NCCL's place"
if command -v python3 >/dev/null; then
    run "$run" --stats --nccl "$standin" python3 "$here/vllm_way.py" "$standin"
    expect_status 0
    expect_output "both handles took the communicator"
    expect_error "cecl: rank 0 of 1, process "
    expect_error "ncclAllReduce      to 4 KiB          1                8  NCCL"
fi
exit $failed
