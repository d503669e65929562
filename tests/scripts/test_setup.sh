#!/usr/bin/env bash
# test_setup.sh SCRATCH_DIR: checks what scripts/setup.sh does and says, whatever it finds on PATH and whatever apt-get
# answers. Commands of the system are replaced, so nothing is installed.
set -uo pipefail
setup=$(cd -- "$(dirname -- "$0")/../../scripts" && pwd)/setup.sh
scratch=$1
bin=$scratch/bin
failed=0
rm -rf "$scratch"
mkdir -p "$bin"

# command_is NAME SCRIPT: replaces a command of the system.
command_is() {
    printf '#!/bin/sh\n%s\n' "$2" >"$bin/$1"
    chmod +x "$bin/$1"
}

# run [PACKAGE]: runs setup.sh for the package, or for `gizmo`; keeps its output and its exit status.
run() {
    said=$(PATH=$bin:$PATH "$setup" "${1:-gizmo}" 2>&1)
    status=$?
}

# expect STATUS WORDS: setup.sh must have ended with STATUS, and printed WORDS.
expect() {
    [ "$status" -eq "$1" ] && [[ $said == *"$2"* ]] && return
    printf 'expected, with status %s: %s\nsaid, with status %s: %s\n' "$1" "$2" "$status" "$said"
    failed=1
}

# expect_nothing PACKAGE: setup.sh must find the package, and ask apt-get nothing.
expect_nothing() {
    run "$1"
    [ "$status" -eq 0 ] && [ -z "$said" ] && return
    printf '%s is there, but said, with status %s: %s\n' "$1" "$status" "$said"
    failed=1
}

# expect_missing PACKAGE: setup.sh must try to install the package.
expect_missing() {
    run "$1"
    expect 1 "Installing $1"
}

command_is id 'echo 0'
command_is dpkg-query 'printf installed'
command_is apt-get 'exit 9'
expect_nothing gizmo

# The program is on PATH, but not as a Debian package. A command that cannot start counts as missing.
command_is dpkg-query 'exit 1'
command_is ctest 'exit 0'
cmake_least=$(sed -n 's/^cmake_minimum_required(VERSION \([0-9.]*\).*/\1/p' "${setup%/*}/../CMakeLists.txt")
for version in "$cmake_least" "$cmake_least.2" 3.100.0-rc1 30.1.0; do
    command_is cmake "echo cmake version $version"
    expect_nothing cmake
done
for answer in "echo cmake version 3.9.6" "echo cmake version" "exit 127" \
    "echo cmake version $cmake_least; exit 1"; do
    command_is cmake "$answer"
    expect_missing cmake
done
command_is clang-format 'echo Debian clang-format version 14.0.6'
expect_nothing clang-format
command_is clang-format 'echo clang-format version 19.1.4'
expect_missing clang-format
command_is mpirun 'echo "mpirun (Open MPI) 4.1.4"'
expect_nothing openmpi-bin
command_is mpirun 'echo "HYDRA build details:"'
expect_missing openmpi-bin

# A library counts as found if a program that includes its header can be linked.
command_is pkg-config 'exit 1'
command_is gcc '
grep -q "^#include <cmocka.h>" "$1" || exit 1
case $* in *" -lcmocka") ;; *) exit 1 ;; esac'
expect_nothing libcmocka-dev
command_is gcc 'exit 1'
expect_missing libcmocka-dev
expect_missing libc6-dev
rm "$bin/gcc" "$bin/cmake" "$bin/ctest"
expect_nothing cmake # the cmake of this build
! gcc --version >/dev/null 2>&1 || expect_nothing libc6-dev

command_is apt-get 'exit 0'
run
expect 0 "Installing gizmo"

# Offline and without package lists: `update` fails, or succeeds with warnings, and no package is known.
command_is apt-get 'case $1 in
update) echo "W: Failed to fetch http://deb.example/InRelease  Temporary failure resolving"; exit 0 ;;
install) echo "E: Unable to locate package gizmo"; exit 100 ;;
esac'
run
expect 1 "apt-get could not install gizmo."
expect 1 "It could not fetch its package lists"
command_is apt-get 'case $1 in update) exit 100 ;; *) echo "E: Unable to locate package gizmo"; exit 100 ;; esac'
run
expect 1 "It could not fetch its package lists"

# The lists are old: they name a file that the server no longer has.
command_is apt-get 'case $1 in
install) echo "E: Failed to fetch http://deb.example/gizmo_1.deb  404  Not Found"; exit 100 ;;
esac'
run
expect 1 'ends without a warning'

# There are lists, but the package is not in them.
command_is apt-get 'case $1 in install) echo "E: Unable to locate package gizmo"; exit 100 ;; esac'
run
expect 1 "do not name them"

# Without root and sudo; then without Debian, where PATH has only the commands that are linked here.
command_is id 'echo 1000'
mkdir -p "$scratch/only"
for tool in bash sh env dirname; do
    ln -s "$(command -v "$tool")" "$scratch/only/$tool"
done
for tool in dpkg-query id apt-get; do
    ln -s "$bin/$tool" "$scratch/only/$tool"
done
run_alone() {
    said=$(PATH=$scratch/only "$setup" gizmo 2>&1)
    status=$?
}
run_alone
expect 1 "as root: apt-get update && apt-get install gizmo"
rm "$scratch/only/apt-get"
run_alone
expect 0 "Needed, by Debian's names (this is no Debian; nothing was installed): gizmo"
exit $failed
