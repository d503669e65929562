#!/usr/bin/env bash
# Programs under cecl-run, with the library in NCCL's place preloaded.
# test_nccl_preload.sh CECL_RUN PROBE STANDIN SCRATCH TORCH TOOL PROGRAM
#   TORCH    linked to NCCL as PyTorch is (torch.c)
#   TOOL     replaces a function of NCCL, as profiling tools do (tool.c)
#   PROGRAM  nccl_program
set -uo pipefail
run=$1 probe=$2 standin=$3 scratch=$4 torch=$5 tool=$6 program=$7
here=$(cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=tests/nccl/expect.sh
. "$here/expect.sh"
rm -rf "$scratch"
mkdir -p "$scratch"
unset LD_PRELOAD LD_LIBRARY_PATH CECL_NCCL CECL_NCCL_PATH CECL_NCCL_STATS CECL_RUN_NOTE
unset OMPI_COMM_WORLD_RANK PMIX_RANK PMI_RANK SLURM_PROCID

case="a program that opens libnccl.so.2 by name gets the library in its place"
run_to 0 "$run" --nccl "$standin" "$probe" libnccl.so.2 ncclParamBind
expect_output "result 0 version 22809"
expect_error "ncclParamBind: $standin lacks it"

none="cecl: no call of NCCL was counted: the command made none, or NCCL is linked into its program "
none+="statically, or LD_PRELOAD did not reach it (sudo, ssh, a container)"
export TMPDIR="$scratch/tmp"
mkdir -p "$TMPDIR"

# expect_no_file: checks that the files in which a command's processes share their tables are gone
expect_no_file() {
    [ -z "$(ls -A "$TMPDIR")" ] || wrong "files are left: $(ls -A "$TMPDIR")"
}

case="a program that does not call NCCL opens nothing, and one line says that nothing was counted"
run_to 0 "$run" --stats env CECL_NCCL=bad CECL_NCCL_PATH=/none CECL_DEBUG=info bash -c 'ls / >/dev/null; true'
expect_lines 2 # the parent's, cecl-run
expect_error "$none"

case="that line comes once, from the command's own process, which keeps its exit status"
run_to 41 "$run" --stats bash -c 'for i in 1 2 3; do (ls / >/dev/null; true); done; exit 41'
expect_lines 2
expect_error "$none"
run "$run" --stats bash -c "'$run' --stats true; true"
expect_lines 3 # each cecl-run has a line of its own
expect_error "$none"

case="that line does not come without --stats"
run "$run" true
expect_lines 1

case="if each rank has its own cecl-run, only rank 0's prints that line"
for rank in 0 1; do
    run env OMPI_COMM_WORLD_RANK=$rank "$run" --stats true
    expect_lines $((2 - rank))
    run env SLURM_PROCID=$rank "$run" --stats true
    expect_lines $((2 - rank))
done

case="that line does not come if a process of the command has counted calls"
run_to 0 "$run" --stats --nccl "$standin" "$program" threads 1
[[ $errors == *"calls of NCCL"* && $errors != *"$none"* ]] || wrong "a table without that line expected"
run "$run" --stats --nccl "$standin" bash -c "'$program' threads 1; true"
[[ $errors == *"calls of NCCL"* && $errors != *"$none"* ]] || wrong "a table alone expected"
expect_no_file

case="cecl-run becomes the command's process, so signals reach the command"
"$run" --stats bash -c 'trap "exit 7" TERM; echo $$; while :; do sleep 0.05; done' \
    >"$scratch/stdout" 2>"$scratch/stderr" &
started=$!
until [ -s "$scratch/stdout" ]; do sleep 0.05; done
kill -TERM "$started"
wait "$started"
status=$? output=$(cat "$scratch/stdout") errors=$(cat "$scratch/stderr")
expect_status 7
[ "$output" = "$started" ] || wrong "process $started expected"
expect_error "$none"

# As pip installs it: a DT_RPATH in PyTorch's library names the folder of the wheel's NCCL.
site=$scratch/site
mkdir -p "$site/torch/lib" "$site/nvidia/nccl/lib"
cp "$torch" "$site/torch/lib/libtorch_cuda.so"
cp "$standin" "$site/nvidia/nccl/lib/libnccl.so.2"
case="PyTorch gets the library in NCCL's place, which finds the wheel's NCCL"
run_to 0 env CECL_DEBUG=info "$run" "$probe" "$site/torch/lib/libtorch_cuda.so" torch_nccl_version \
    torch_group
expect_error "calls of NCCL are passed to $site/nvidia/nccl/lib/libnccl.so.2"
expect_output "torch_nccl_version 22809"
expect_output "torch_group 0"
expect_lines 2

case="a profiling tool that is preloaded sees PyTorch's calls, and passes them on"
run_to 0 env LD_PRELOAD="$tool" "$run" "$probe" "$site/torch/lib/libtorch_cuda.so" torch_nccl_version
expect_output "the tool saw ncclGetVersion"
expect_output "torch_nccl_version 22809"

case="without cecl-run PyTorch gets the wheel's NCCL"
run env CECL_DEBUG=info "$probe" "$site/torch/lib/libtorch_cuda.so" torch_nccl_version
expect_output "torch_nccl_version 22809"
[ -z "$errors" ] || wrong "nothing on stderr expected"

case="as in vLLM: one communicator, and handles of the real NCCL and of the library in its place"
if command -v python3 >/dev/null; then
    run_to 0 "$run" --stats --nccl "$standin" python3 "$here/vllm_way.py" "$standin"
    expect_output "both handles took the communicator"
    expect_error "cecl: rank 0 of 1, process "
    expect_error "ncclAllReduce      to 4 KiB          1                8  NCCL"
else
    echo "no python3: not tried: $case"
fi
exit $failed
