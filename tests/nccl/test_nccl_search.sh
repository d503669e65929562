#!/usr/bin/env bash
# Where the library in NCCL's place finds the real NCCL; what it says and returns if it finds none.
# test_nccl_search.sh LIBRARY SYSTEM PROBE STANDIN SCRATCH
#   LIBRARY  a build of the library for which SYSTEM is the only system folder
set -uo pipefail
library=$1 system=$2 probe=$3 standin=$4 scratch=$5
# shellcheck source=tests/nccl/expect.sh
. "$(dirname -- "$0")/expect.sh"
rm -rf "$scratch" "$system"
mkdir -p "$scratch" "$system"
unset LD_LIBRARY_PATH
export CECL_DEBUG=warn

# standin_in FOLDER: copies the stand-in there; a link would not do, because the loader identifies files by inode
standin_in() {
    mkdir -p "$1"
    cp "$standin" "$1/libnccl.so.2"
}

# expect_passed_to FOLDER: checks that the last run passed its calls to the library there, and said so
expect_passed_to() {
    expect_status 0
    expect_output "result 0 version 22809"
    expect_error "calls of NCCL are passed to $1/libnccl.so.2"
}

case="no NCCL"
run_to 0 env LD_LIBRARY_PATH="$scratch/a:$scratch/b" "$probe" "$library" ncclCommInitRank ncclCommInitRank \
    ncclAllGather ncclTeamRankToWorld ncclParamDumpAll ncclTeamWorld
expect_lines 1
expect_error "no NCCL was found to pass calls to"
expect_error "$system"
expect_error "LD_LIBRARY_PATH ($scratch/a:$scratch/b)"
expect_output "result 2 version 0"
expect_output "error string: no NCCL was found"
expect_output "last error: no NCCL was found"
expect_output "ncclCommInitRank 2"
expect_output "ncclAllGather 2"
expect_output "ncclTeamRankToWorld -1"
expect_output "ncclTeamWorld 0"

case="CECL_NCCL_PATH names no file"
standin_in "$scratch/other"
run env CECL_NCCL_PATH="$scratch/none.so" LD_LIBRARY_PATH="$scratch/other" "$probe" "$library"
expect_lines 1
expect_error "CECL_NCCL_PATH=$scratch/none.so: No such file"
expect_output "result 2 version 0"

case="CECL_NCCL_PATH names no library"
echo "no library" >"$scratch/text.so"
run env CECL_NCCL_PATH="$scratch/text.so" "$probe" "$library"
expect_lines 1
expect_error "CECL_NCCL_PATH=$scratch/text.so: "
expect_output "result 2"

case="CECL_NCCL_PATH, or a folder that is searched, has a pipe or a device"
mkdir -p "$scratch/pipe"
mkfifo "$scratch/pipe/libnccl.so.2"
for named in "$scratch/pipe/libnccl.so.2: a pipe" "/dev/zero: a device" "$scratch: a directory"; do
    run env CECL_NCCL_PATH="${named%: *}" timeout 20 "$probe" "$library"
    expect_lines 1
    expect_error "CECL_NCCL_PATH=$named"
    expect_output "result 2"
done
run env LD_LIBRARY_PATH="$scratch/pipe:$scratch/other" CECL_DEBUG=info timeout 20 "$probe" "$library"
expect_error "$scratch/pipe/libnccl.so.2 is not used: a pipe"
expect_output "result 0 version 22809"

case="CECL_NCCL_PATH names this library"
run env CECL_NCCL_PATH="$library" "$probe" "$library"
expect_lines 1
expect_error "this is cecl's library, not NCCL"
expect_output "result 2"

case="CECL_NCCL_PATH names NCCL, also by a relative path"
run env CECL_DEBUG=info CECL_NCCL_PATH="$scratch/other/libnccl.so.2" "$probe" "$library"
expect_passed_to "$scratch/other"
cd "$scratch" || exit 1
run env CECL_DEBUG=info CECL_NCCL_PATH=other/libnccl.so.2 "$probe" "$library"
expect_passed_to "$scratch/other"

case="bad settings"
for setting in CECL_NCCL=none CECL_NCCL_STATS=2; do
    run env "$setting" LD_LIBRARY_PATH="$scratch/other" "$probe" "$library" ncclCommInitRank
    expect_lines 1
    expect_error "$setting: "
    expect_output "result 4"
    expect_output "ncclCommInitRank 4"
    expect_output "error string: $setting: "
done
expect_error "0..1 expected"
run env CECL_NCCL=none "$probe" "$library"
expect_error "one of off|auto|all|strict expected"

case="the search skips this library, a link to it and a copy of it"
mkdir -p "$scratch/link" "$scratch/copy"
ln -s "$library" "$scratch/link/libnccl.so.2"
cp "$library" "$scratch/copy/libnccl.so.2"
run env CECL_DEBUG=info \
    LD_LIBRARY_PATH="$(dirname "$library"):$scratch/link:$scratch/copy:$scratch/other" "$probe" "$library"
expect_passed_to "$scratch/other"
expect_lines 1

case="LD_LIBRARY_PATH instead of preloading"
run env CECL_DEBUG=info LD_LIBRARY_PATH="$(dirname "$library"):$scratch/other" "$probe" libnccl.so.2
expect_passed_to "$scratch/other"

case="a file that is not NCCL is not used"
mkdir -p "$scratch/text"
echo "no library" >"$scratch/text/libnccl.so.2"
run env CECL_DEBUG=info LD_LIBRARY_PATH="$scratch/text:$scratch/other" "$probe" "$library"
expect_passed_to "$scratch/other"
expect_error "$scratch/text/libnccl.so.2 is not used: "

case="the wheel's NCCL is preferred to that of LD_LIBRARY_PATH"
site=$scratch/site
mkdir -p "$site/torch/lib" "$scratch/site2/pack/lib"
cp "$standin" "$site/torch/lib/libtorch_cuda.so"
cp "$standin" "$scratch/site2/pack/lib/libpack.so"
standin_in "$site/nvidia/nccl/lib"
run env CECL_DEBUG=info LD_LIBRARY_PATH="$scratch/other" "$probe" \
    load="$site/torch/lib/libtorch_cuda.so" "$library"
expect_passed_to "$site/nvidia/nccl/lib"

case="PyTorch's wheel is preferred to another"
standin_in "$scratch/site2/nvidia/nccl/lib"
run env CECL_DEBUG=info "$probe" load="$scratch/site2/pack/lib/libpack.so" \
    load="$site/torch/lib/libtorch_cuda.so" "$library"
expect_passed_to "$site/nvidia/nccl/lib"
run env CECL_DEBUG=info "$probe" load="$scratch/site2/pack/lib/libpack.so" "$library"
expect_passed_to "$scratch/site2/nvidia/nccl/lib"

case="two NCCL in a process"
run env CECL_NCCL_PATH="$standin" "$probe" load="$scratch/other/libnccl.so.2" "$library"
expect_lines 1
expect_error "this process has two NCCL libraries: calls are passed to $standin, not to $scratch/other/"
expect_output "result 0"

case="an old NCCL"
run env CECL_TEST_NCCL_VERSION=21805 CECL_NCCL_PATH="$standin" "$probe" "$library" ncclGroupStart
expect_lines 1
expect_error "has version number 21805, and cecl needs 21900 (NCCL 2.19): all calls are passed to it"
expect_output "result 0 version 21805"
expect_output "ncclGroupStart 0"
run env CECL_TEST_NCCL_VERSION=21900 CECL_NCCL_PATH="$standin" "$probe" "$library"
[ -z "$errors" ] || wrong "nothing on stderr expected"

case="the real NCCL lacks a function"
run env CECL_NCCL_PATH="$standin" "$probe" "$library" ncclParamBind ncclParamBind ncclTeamRankToLsa \
    ncclGroupStart
expect_lines 2
expect_error "ncclParamBind: $standin lacks it"
expect_error "ncclTeamRankToLsa: $standin lacks it"
expect_output "ncclParamBind 5
ncclParamBind 5
ncclTeamRankToLsa -1
ncclGroupStart 0"

case="the library is closed and opened again"
run_to 0 env CECL_NCCL_PATH="$standin" "$probe" again "$library"
expect_output "result 0 version 22809
result 0 version 22809"

case="the system's folder"
standin_in "$system"
run env CECL_DEBUG=info "$probe" "$library"
expect_passed_to "$system"
exit $failed
