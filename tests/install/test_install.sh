#!/bin/sh
# Installs a build to a place of its own and uses it from outside: by find_package(cecl) and by pkg-config.
# test_install.sh BUILD_DIR SCRATCH_DIR
set -eu
build=$1 scratch=$2
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
rm -rf "$scratch"
mkdir -p "$scratch"
cmake --install "$build" --prefix "$scratch/prefix" >/dev/null
libdir=$(dirname "$(find "$scratch/prefix" -name libcecl.so | head -n 1)")

cmake -S "$here" -B "$scratch/outside" -DCMAKE_PREFIX_PATH="$scratch/prefix" \
    ${CECL_INSTALL_CFLAGS:+-DCMAKE_C_FLAGS="$CECL_INSTALL_CFLAGS"} >/dev/null
cmake --build "$scratch/outside" >/dev/null
CECL_DEVICE=host "$scratch/outside/outside"

if command -v pkg-config >/dev/null; then
    export PKG_CONFIG_PATH="$libdir/pkgconfig"
    # The prefix is where it was installed to, not where it was configured for.
    flags=$(pkg-config --define-variable=prefix="$scratch/prefix" --cflags --libs cecl)
    # shellcheck disable=SC2086
    ${CC:-cc} "$here/outside.c" $flags ${CECL_INSTALL_CFLAGS:-} -o "$scratch/by_pkg_config"
    LD_LIBRARY_PATH="$libdir" CECL_DEVICE=host "$scratch/by_pkg_config"
else
    echo "pkg-config is not here: that half was not run" && exit 1
fi
