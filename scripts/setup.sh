#!/usr/bin/env bash
# setup.sh PACKAGE ...: installs the named Debian packages, if they are missing. A package counts as installed if
# its commands are on PATH in a sufficient version, or if its library can be linked, wherever they come from: pip's
# cmake is as good as Debian's, and needs no network. Prints nothing if nothing is missing. On other systems it only
# names the packages; CMake then finds what they contain, or says what is missing.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
clang_format=14 # the major version that formats the sources: other versions format differently
scratch=
trap '[ -z "$scratch" ] || rm -rf "$scratch"' EXIT

# runs PROGRAM...: whether each of them starts; $said is the version that the last one prints.
runs() {
    local program
    for program in "$@"; do
        said=$("$program" --version 2>&1) || return 1
    done
}

# least VERSION: whether the first version in $said is VERSION or later.
least() {
    [[ $said =~ [0-9]+(\.[0-9]+)+ ]] && printf '%s\n' "$1" "${BASH_REMATCH[0]}" | sort -VC
}

# builds COMPILER HEADERS FLAGS...: whether a C program that includes HEADERS in this order can be compiled and
# linked.
builds() {
    local compiler=$1 header
    [ -n "$scratch" ] || scratch=$(mktemp -d) || return 1
    for header in $2; do
        echo "#include <$header>"
    done >"$scratch/probe.c"
    echo 'int main(void) { return 0; }' >>"$scratch/probe.c"
    shift 2
    "$compiler" "$scratch/probe.c" -o "$scratch/probe" "$@" >/dev/null 2>&1
}

# links LIBRARY HEADERS: as `builds`, with pkg-config's flags if it knows LIBRARY.
links() {
    local flags
    flags=$(pkg-config --cflags --libs "$1" 2>/dev/null) || flags=-l$1
    # shellcheck disable=SC2086 # flags are words
    builds gcc "$2" $flags
}

# serves PACKAGE: whether a program or library from elsewhere can take the place of PACKAGE.
serves() {
    case $1 in
    mold | gcc | g++ | make | pkg-config | clang | python3) runs "$1" ;;
    cmake) runs ctest cmake &&
        least "$(sed -n 's/^cmake_minimum_required(VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")" ;;
    ninja-build) runs ninja ;;
    binutils) runs ld ar nm readelf ;;
    openmpi-bin) runs mpirun && [[ $said == *"Open MPI"* ]] ;;
    libopenmpi-dev) mpicc --showme:version >/dev/null 2>&1 && builds mpicc mpi.h ;;
    libc6-dev) builds gcc stdio.h ;;
    libcmocka-dev) links cmocka "stdarg.h stddef.h stdint.h setjmp.h cmocka.h" ;;
    python3-venv) python3 -c 'import ensurepip, venv' 2>/dev/null ;;
    clang-format) runs clang-format && [[ $said == *"version $clang_format."* ]] ;;
    libclang-rt-dev) builds clang stdio.h -fsanitize=address,undefined ;;
    spin) spin -V >/dev/null 2>&1 ;;
    *) false ;;
    esac
}

missing=()
for package in "$@"; do
    # `dpkg -s` would not do: it also succeeds for a package that was removed but left its configuration.
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || serves "$package" || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "Needed, by Debian's names (this is no Debian; nothing was installed): ${missing[*]}" >&2
    exit 0
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "Needed, and only root may install it; as root: apt-get update &&" \
            "apt-get install ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi

echo "Installing ${missing[*]} ..."
[ -n "$scratch" ] || scratch=$(mktemp -d)
log=$scratch/log

# Says what to do after apt-get failed. `apt-get update` may end with 0 although it fetched nothing.
explain() {
    tail -n 20 "$log" >&2
    echo >&2
    echo "apt-get could not install ${missing[*]}." >&2
    if [ "$updated" -ne 0 ] ||
        grep -Eq '^Err:|^[EW]: (Failed to fetch|Some index files|The repository)' "$log"; then
        echo "It could not fetch its package lists, or a package: is this machine offline, or does" \
            "a server in /etc/apt not answer? Run this again once \`apt-get update\` ends without" \
            "a warning, or install the packages in another way." >&2
    elif grep -q '^E: Unable to locate package' "$log"; then
        echo "Its package lists are fetched and do not name them: they are Debian 12's names." \
            "Add Debian's section \`main\` to /etc/apt/sources.list, or install what your system" \
            "has instead." >&2
    fi
}

# If one of several lists cannot be fetched, packages must still be installed from the others.
updated=0
# Servers are sometimes slow, and another process may be installing.
patience=(-o Acquire::Retries=5 -o DPkg::Lock::Timeout=300)
"${as_root[@]}" apt-get update "${patience[@]}" >"$log" 2>&1 || updated=$?
if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y "${patience[@]}" --no-install-recommends "${missing[@]}" >>"$log" 2>&1; then
    explain
    exit 1
fi
