#!/usr/bin/env bash
# Programs under cecl-run, with the library in NCCL's place preloaded.
# test_nccl_preload.sh CECL_RUN PROBE STANDIN SCRATCH TORCH TOOL
#   TORCH  linked to NCCL as PyTorch is (torch.c)
#   TOOL   replaces a function of NCCL's, as profiling tools do (tool.c)
set -uo pipefail
run=$1 probe=$2 standin=$3 scratch=$4 torch=$5 tool=$6
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

# As installed by pip: PyTorch's library names the folder of the wheel's NCCL by a DT_RPATH.
site=$scratch/site
mkdir -p "$site/torch/lib" "$site/nvidia/nccl/lib"
cp "$torch" "$site/torch/lib/libtorch_cuda.so"
cp "$standin" "$site/nvidia/nccl/lib/libnccl.so.2"
case="PyTorch gets the library in NCCL's place, which finds the wheel's NCCL"
run env CECL_DEBUG=info "$run" "$probe" "$site/torch/lib/libtorch_cuda.so" torch_nccl_version \
    torch_group
expect_status 0
expect_error "calls of NCCL are passed to $site/nvidia/nccl/lib/libnccl.so.2"
expect_output "torch_nccl_version 22809"
expect_output "torch_group 0"
expect_lines 2

case="a profiling tool that is preloaded sees PyTorch's calls, and passes them on"
run env LD_PRELOAD="$tool" "$run" "$probe" "$site/torch/lib/libtorch_cuda.so" torch_nccl_version
expect_status 0
expect_output "the tool saw ncclGetVersion"
expect_output "torch_nccl_version 22809"

case="without cecl-run PyTorch gets the wheel's NCCL"
run env CECL_DEBUG=info "$probe" "$site/torch/lib/libtorch_cuda.so" torch_nccl_version
expect_output "torch_nccl_version 22809"
[ -z "$errors" ] || wrong "nothing on stderr expected"

case="vLLM's way: handles of one communicator, in and beside the library in NCCL's place"
if command -v python3 >/dev/null; then
    run "$run" --stats --nccl "$standin" python3 "$here/vllm_way.py" "$standin"
    expect_status 0
    expect_output "both handles took the communicator"
    expect_error "cecl: rank 0 of 1, process "
    expect_error "ncclAllReduce      to 4 KiB          1                8  NCCL"
else
    echo "no python3: not tried: $case"
fi
exit $failed
