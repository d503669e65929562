#!/bin/sh
# Installs a build to a place of its own, moves that elsewhere, and uses it from outside: by
# find_package(cecl), with MPI and where MPI is not found, and by pkg-config.
# test_install.sh BUILD_DIR SCRATCH_DIR
set -eu
build=$1 scratch=$2
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
rm -rf "$scratch"
mkdir -p "$scratch"
cmake --install "$build" --prefix "$scratch/first" >/dev/null
mv "$scratch/first" "$scratch/prefix"
libdir=$(dirname "$(find "$scratch/prefix" -name libcecl.so)")
export CECL_DEVICE=host OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# outside FOLDER CMAKE_OPTION...: builds the project here against the installed cecl.
outside() {
    folder=$scratch/$1
    shift
    cmake -S "$here" -B "$folder" -DCMAKE_PREFIX_PATH="$scratch/prefix" "$@" >/dev/null
    cmake --build "$folder" >/dev/null
}
outside without_mpi -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON
"$scratch/without_mpi/outside"
if [ -e "$libdir/libcecl_mpi.so" ]; then
    outside with_mpi -DOUTSIDE_MPI=ON
    "$scratch/with_mpi/outside_mpi"
fi

export PKG_CONFIG_PATH="$libdir/pkgconfig"
flags=$(pkg-config --cflags --libs cecl)
# shellcheck disable=SC2086
${CC:-cc} "$here/outside.c" $flags -o "$scratch/by_pkg_config"
LD_LIBRARY_PATH="$libdir" "$scratch/by_pkg_config"
