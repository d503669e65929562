#!/usr/bin/env bash
# packages.sh [--build] [CMAKE_OPTION ...]: builds the Debian packages in build/packages, and checks them: lintian
# finds no error, and each file is in one package. As root also installs them, checks that an MPI program builds and
# runs with them, and removes them again. --build: only compiles.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/common.sh
. "$root/scripts/common.sh"
for command in cpack dpkg-shlibdeps lintian help2man; do
    command -v "$command" >/dev/null || { echo "skipped: no $command"; exit 77; }
done
build=$root/build/packages
only_build=0
if [ "${1:-}" = --build ]; then
    only_build=1
    shift
fi
build "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr -DCECL_TESTS=OFF -DCECL_EXAMPLES=OFF "$@"
[ $only_build = 0 ] || exit 0
cd "$build"
rm -f ./*.deb
cpack -G DEB >cpack.log 2>&1 || { cat cpack.log; exit 1; }
packages=(./*.deb)
lintian --allow-root --fail-on error --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog \
    "${packages[@]}"
[ "$(for p in "${packages[@]}"; do dpkg -c "$p" | awk '!/\/$/ { print $6 }'; done | sort | uniq -d | wc -l)" -eq 0 ] ||
    { echo "packages.sh: a file is in two packages"; exit 1; }
echo "packages.sh: ${packages[*]##*/}"
if [ "$(id -u)" -ne 0 ] || ! built_with MPI "$build"; then
    echo "not installed: that takes root, and a build with MPI"
    exit
fi
names=()
for p in "${packages[@]}"; do names+=("$(dpkg-deb -f "$p" Package)"); done
trap 'dpkg -P "${names[@]}" >/dev/null; rm -rf "$scratch"' EXIT
scratch=$(mktemp -d)
dpkg -i "${packages[@]}" >install.log 2>&1 || { cat install.log; exit 1; }
read -ra flags < <(pkg-config --cflags --libs cecl_mpi)
mpicc "$root/examples/allgather.c" "${flags[@]}" -o "$scratch/program"
# grep -q would end the pipe while ranks still write
CECL_DEVICE=host "${mpi_run[@]}" -n 3 "$scratch/program" | grep "rank 2 of 3: 12 numbers gathered, 0 wrong" >/dev/null
(cd / && cecl-run true 2>&1 | grep "preloads .*cecl/libnccl.so.2" >/dev/null)
echo "packages.sh: installed, a program built with them runs, and they are removed again"
