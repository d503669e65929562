#!/usr/bin/env bash
# Holds what scripts/setup.sh does and says against what apt-get may answer. Commands of the system are
# replaced: nothing is installed.
# test_setup.sh SCRATCH_DIR
set -uo pipefail
setup=$(cd -- "$(dirname -- "$0")/../../scripts" && pwd)/setup.sh
scratch=$1
bin=$scratch/bin
failed=0
rm -rf "$scratch"
mkdir -p "$bin"

# command_is NAME SCRIPT: replaces one of the system's.
command_is() {
    printf '#!/bin/sh\n%s\n' "$2" >"$bin/$1"
    chmod +x "$bin/$1"
}

# run: setup.sh for the package `gizmo`; leaves its words and its exit status.
run() {
    said=$(PATH=$bin:$PATH "$setup" gizmo 2>&1)
    status=$?
}

# expect STATUS WORDS
expect() {
    [ "$status" -eq "$1" ] && [[ $said == *"$2"* ]] && return
    printf 'expected, with status %s: %s\nsaid, with status %s: %s\n' "$1" "$2" "$status" "$said"
    failed=1
}

command_is id 'echo 0'
command_is dpkg-query 'printf installed'
command_is apt-get 'exit 9'
run
expect 0 ""
[ -z "$said" ] || { echo "nothing to do, but said: $said"; failed=1; }

command_is dpkg-query 'exit 1'
command_is apt-get 'exit 0'
run
expect 0 "Installing gizmo"

# Offline and without lists: update fails, or ends well with warnings, and nothing is known.
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

# Old lists name a file that the server no longer has.
command_is apt-get 'case $1 in
install) echo "E: Failed to fetch http://deb.example/gizmo_1.deb  404  Not Found"; exit 100 ;;
esac'
run
expect 1 'ends without a warning'

# Lists are there, and the package is not in them.
command_is apt-get 'case $1 in install) echo "E: Unable to locate package gizmo"; exit 100 ;; esac'
run
expect 1 "do not name them"

# No root and no sudo; then no Debian: nothing but what is linked here is found.
command_is id 'echo 1000'
mkdir -p "$scratch/only"
for tool in bash sh env; do
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
