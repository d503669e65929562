# shellcheck shell=bash
# What the scripts of this folder share: lists of Debian packages, the number of parallel jobs, and a build that
# prints only if it fails. Scripts set `root`, and then source this file.

build_packages=(gcc g++ libc6-dev make cmake pkg-config binutils
    libopenmpi-dev openmpi-bin)
test_packages=("${build_packages[@]}" libcmocka-dev python3)
# shellcheck disable=SC2034 # .ci/run's
ci_packages=("${test_packages[@]}" clang clang-format libclang-rt-dev ninja-build spin python3-venv
    abigail-tools lintian dpkg-dev help2man valgrind mold)

# "${mpi_run[@]}" -n RANKS COMMAND starts ranks on this machine, also more ranks than it has cores. Open MPI refuses
# root unless both OMPI_ALLOW variables are set; for other users they have no effect. It also needs a remote shell to
# start, although all ranks run here.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
command -v ssh >/dev/null || command -v rsh >/dev/null || export OMPI_MCA_plm_rsh_agent=${OMPI_MCA_plm_rsh_agent:-sh}
# shellcheck disable=SC2034 # demo.sh's
mpi_run=(mpirun --oversubscribe --bind-to none --mca btl "self,vader")

# One job for each processor, but at most 8, because more compilers only need more memory.
jobs=$(nproc)
[ "$jobs" -le 8 ] || jobs=8
# Tests get more jobs than builds, because tests mostly wait: for peers, processes and time limits. A test's
# PROCESSORS says how many jobs it counts as (cecl_ranks_take in tests/CMakeLists.txt).
# shellcheck disable=SC2034 # test.sh's and sanitize.sh's
test_jobs=$((6 * jobs))

# Ninja is faster: Make starts CMake for each object and each target.
if command -v ninja >/dev/null; then
    export CMAKE_GENERATOR=${CMAKE_GENERATOR:-Ninja} # for new build folders; older ones keep theirs
fi

# build DIR CMAKE_OPTION...: configures and builds in DIR, only the targets in the array `targets` if that is set.
# Prints the log's end if that fails.
build() {
    local dir=$1
    shift
    mkdir -p "$dir"
    if ! { cmake -S "${root:?}" -B "$dir" "$@" && cmake --build "$dir" -j"$jobs" ${targets:+--target "${targets[@]}"}; } \
        >"$dir/build.log" 2>&1; then
        tail -n 40 "$dir/build.log" >&2
        echo "The build failed; all of it is in $dir/build.log" >&2
        return 1
    fi
}

# built_with PART DIR: whether the build in DIR has PART: CUDA, toolkit, MPI or NCCL.
built_with() {
    grep -q "^-- cecl .*$1 ON" "$2/build.log"
}
