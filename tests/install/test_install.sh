#!/bin/sh
# test_install.sh BUILD_DIR SCRATCH_DIR: installs a build, moves it elsewhere, and uses it from there, in C and in C++:
# by find_package(cecl), with MPI and where MPI is not found, and by pkg-config. README's program is built as well.
# cecl-run and the tools must find their libraries after the move.
set -eu
build=$1 scratch=$2
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
rm -rf "$scratch"
mkdir -p "$scratch"
cmake --install "$build" --prefix "$scratch/first" >/dev/null
mv "$scratch/first" "$scratch/prefix"
libdir=$(dirname "$(find "$scratch/prefix" -name libcecl.so)")
export CECL_DEVICE=host OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

fail() {
    echo "$*"
    exit 1
}

# configure FOLDER CMAKE_OPTION...: configures this script's project in FOLDER, with the installed cecl.
configure() {
    folder=$scratch/$1
    shift
    cmake -S "$here" -B "$folder" -DCMAKE_PREFIX_PATH="$scratch/prefix" "$@" \
        >"$folder.log" 2>&1
}

# outside FOLDER CMAKE_OPTION...: configures the project in FOLDER, and builds it.
outside() {
    if ! configure "$@" || ! cmake --build "$folder" >>"$folder.log" 2>&1; then
        cat "$folder.log"
        fail "$folder was not built"
    fi
}

# refused FOLDER WORDS CMAKE_OPTION...: find_package must fail, and print WORDS.
refused() {
    name=$1 words=$2
    shift 2
    ! configure "$name" "$@" || fail "$name: cecl was found"
    tr -s ' \n' '  ' <"$folder.log" | grep -qF "$words" || {
        cat "$folder.log"
        fail "$name: not said: $words"
    }
}

cxx=$(command -v c++ || true)
[ -f "$scratch/prefix/share/doc/cecl/LICENSE" ] || fail "LICENSE is not installed"

# If the build has manual pages, each program must have one.
for page in "$build"/man/*.1.gz; do
    [ -e "$page" ] || continue
    gzip -dc "$scratch/prefix/share/man/man1/${page##*/}" | grep -q '^\.SH SYNOPSIS' || fail "no good page: ${page##*/}"
done

# Tools run from the new place, and find the library there.
if [ -e "$build/bench/cecl_info" ]; then
    "$scratch/prefix/bin/cecl_info" --markdown | grep -q CECL_DEVICE || fail "cecl_info does not run"
fi
for tool in cecl_perf cecl_tune cecl_overlap cecl_zerosm; do
    [ -e "$build/bench/$tool" ] || continue
    LD_TRACE_LOADED_OBJECTS=1 "$scratch/prefix/bin/$tool" >"$scratch/$tool.log" || fail "$tool does not load"
    ! grep "not found" "$scratch/$tool.log" || fail "$tool does not find a library"
    ! grep libcecl "$scratch/$tool.log" | grep -vF "=> $scratch/prefix/" || fail "$tool finds another libcecl"
done
if [ -e "$build/bench/cecl_perf" ]; then
    "$scratch/prefix/bin/cecl_perf" -b 1K -e 1K -n 1 -w 0 --rounds 1 >"$scratch/perf.log" ||
        fail "cecl_perf does not run: $(cat "$scratch/perf.log")"
fi

if [ -e "$build/bin/cecl-run" ]; then # not on every processor
    preloaded=$("$scratch/prefix/bin/cecl-run" env 2>"$scratch/cecl-run.log" | grep '^LD_PRELOAD=')
    [ "$preloaded" = "LD_PRELOAD=$libdir/cecl/libnccl.so.2" ] || fail "cecl-run: $preloaded"
    ! grep -q "ERROR: ld.so" "$scratch/cecl-run.log" || fail "cecl-run: the loader did not load the library"
fi

no_mpi=-DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON
ask_mpi=-DOUTSIDE_COMPONENTS=mpi
outside without_mpi $no_mpi
"$scratch/without_mpi/outside_c"
[ ! -e "$scratch/without_mpi/outside_mpi_c" ] || fail "cecl::cecl_mpi exists without MPI"
refused no_such "there is no component nccl" -DOUTSIDE_COMPONENTS=nccl
if [ -e "$libdir/libcecl_mpi.so" ]; then
    refused mpi_missing "component mpi: MPI for C was not found" $ask_mpi $no_mpi
    refused no_language "component mpi: MPI is looked for in C or C++: enable language C" \
        $ask_mpi -DOUTSIDE_LANGUAGES=NONE
    outside with_mpi
    "$scratch/with_mpi/outside_mpi_c"
    if [ -n "$cxx" ]; then
        outside in_both $ask_mpi "-DOUTSIDE_LANGUAGES=C;CXX" # project()'s default
        "$scratch/in_both/outside_mpi_c"
        "$scratch/in_both/outside_mpi_cxx"
        outside in_cxx $ask_mpi -DOUTSIDE_LANGUAGES=CXX
        "$scratch/in_cxx/outside_cxx"
        "$scratch/in_cxx/outside_mpi_cxx"
        refused cxx_mpi_missing "MPI for CXX was not found: enable language C" \
            $ask_mpi $no_mpi -DOUTSIDE_LANGUAGES=CXX
    fi
else
    refused built_without "component mpi: this cecl was built without MPI" $ask_mpi
fi

# docs/build.md says this: with the rpath, programs find the library by themselves.
export PKG_CONFIG_PATH="$libdir/pkgconfig"
unset LD_LIBRARY_PATH
rpath=-Wl,-rpath,$(pkg-config --variable=libdir cecl)
grep -qF 'rpath=-Wl,-rpath,$(pkg-config --variable=libdir cecl)' "$here/../../docs/build.md" || fail "build.md has no rpath"
flags="$(pkg-config --cflags --libs cecl) $rpath"
# shellcheck disable=SC2086
${CC:-cc} "$here/outside.c" $flags -o "$scratch/by_pkg_config"
"$scratch/by_pkg_config"
if [ -n "$cxx" ]; then
    # shellcheck disable=SC2086
    "$cxx" -x c++ "$here/outside.c" -x none $flags -o "$scratch/by_pkg_config_cxx"
    "$scratch/by_pkg_config_cxx"
fi
if [ -e "$libdir/libcecl_mpi.so" ]; then
    mpicc=$(sed -n 's/^MPI_C_COMPILER:[^=]*=//p' "$build/CMakeCache.txt")
    flags="$(pkg-config --cflags --libs cecl_mpi) $rpath"
    sed -n '/^```c$/,/^```$/{/^```/!p;}' "$here/../../README.md" >"$scratch/readme.c"
    for source in "$here/outside_mpi.c" "$scratch/readme.c"; do
        # shellcheck disable=SC2086
        "$mpicc" -std=c11 -Wall -Wextra -Werror "$source" $flags -o "$scratch/by_pkg_config_mpi"
        "$scratch/by_pkg_config_mpi"
    done
    if [ -n "$cxx" ]; then # MPI's flags for C do not link its C++ bindings
        # shellcheck disable=SC2086
        OMPI_CC=$cxx MPICH_CC=$cxx "$mpicc" -x c++ -Wall -Wextra -Werror "$here/outside_mpi.c" \
            -x none $flags -o "$scratch/by_pkg_config_mpi_cxx"
        "$scratch/by_pkg_config_mpi_cxx"
    fi
fi
