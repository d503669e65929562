#!/usr/bin/env bash
# in_closed_folder.sh TEST ARGUMENT...: runs a test of this folder from a copy in a folder that only its owner may
# enter, as root's home is.
set -euo pipefail
root=$(cd -- "$(dirname -- "$0")/../.." && pwd)
test=$1
shift
closed=$(mktemp -d) # the folder has mode 700
trap 'rm -rf "$closed"' EXIT
mkdir -p "$closed/tests"
cp -r "$root/scripts" "$closed/scripts"
cp -r "$root/tests/scripts" "$closed/tests/scripts"
cd "$closed"
"tests/scripts/$test" "$@"
