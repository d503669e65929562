#!/usr/bin/env bash
# wheel_test.sh WHEEL: installs a wheel into a new Python environment, and uses it as people do. It needs python3
# with venv, but no network, toolkit or GPU. If cmake and a C compiler are installed, a program is built with the
# wheel's CMake and pkg-config files.
set -euo pipefail
wheel=${1:?a wheel}
wheel=$(cd -- "$(dirname -- "$wheel")" && pwd)/$(basename -- "$wheel")
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" # outside of the sources, which Python would take for the package
export CECL_DEVICE=host
passed=0

fail() {
    echo "wheel_test.sh: $*" >&2
    exit 1
}

# has WORDS COMMAND...: COMMAND must succeed, and its output must have a line that matches WORDS.
has() {
    local words=$1
    shift
    "$@" >"$scratch/log" 2>&1 || { cat "$scratch/log"; fail "$* failed"; }
    [ -z "$words" ] || grep -Eq -- "$words" "$scratch/log" || { cat "$scratch/log"; fail "$*: no line matches $words"; }
    passed=$((passed + 1))
}

python3 -m venv venv
PATH=$scratch/venv/bin:$PATH
pip install -q --no-index "$wheel"
has "^cecl-run: preloads .*/lib/cecl/libnccl.so.2; CECL_NCCL=auto" cecl-run true
version=$(sed -n 's/^#define CECL_\(MAJOR\|MINOR\|PATCH\) //p' "$root/include/cecl/cecl.h" | paste -sd .)
has "^cecl $version\$" cecl_info
has "^$version\$" python -m cecl --version
[ -e /dev/nvidiactl ] || has "running on the host device: rank 0 has no usable GPU: [^;]+;" env -u CECL_DEVICE cecl_perf -e 1M -n 1 --rounds 1
has "^# every byte right" cecl_perf --ranks 3 -b 64K -e 1M -n 3 -w 1 --rounds 2
has "^# every byte right" cecl_perf --ranks 2 --op all_reduce --type bfloat16 -b 4K -e 64K -n 3 -w 1 --rounds 2
has "^ 1  all-gather in place" cecl_zerosm --list
has "^cecl.torch_backend:register" python -c 'from importlib.metadata import distribution
print(*(point.value for point in distribution("cecl").entry_points if point.group == "torch.distributed.backends"))'
has "^OK" python -m unittest discover "$root/python/tests"

# No library links CUDA or NCCL, and the library in NCCL's place is in no folder that loaders search.
libraries=$(python -m cecl --library)
if command -v readelf >/dev/null; then
    for file in "$libraries"/libcecl.so.* "$libraries/cecl/libnccl.so.2"; do
        ! readelf -d "$file" | grep NEEDED | grep -E "cuda|nvidia|nccl" || fail "$file links it"
        passed=$((passed + 1))
    done
    # If a tool exported a symbol of the library, it would replace the library's own.
    for file in "$libraries"/../bin/cecl_*; do
        ! readelf --dyn-syms -W "$file" | awk '$7 != "UND" && $8 ~ /^cecl/' | grep . || fail "$file exports it"
        passed=$((passed + 1))
    done
fi
if [ -e "$libraries/libnccl.so.2" ] || [ -e venv/lib/libnccl.so.2 ]; then fail "libnccl.so.2 lies on a usual path"; fi

if ! command -v cmake >/dev/null || ! command -v cc >/dev/null; then
    echo "no cmake or C compiler: no program was built with the wheel"
    echo "$passed passed, 0 failed, 1 skipped"
    exit
fi
mkdir program
cat >program/CMakeLists.txt <<'EOF'
cmake_minimum_required(VERSION 3.25)
project(program LANGUAGES C)
find_package(cecl REQUIRED)
add_executable(program program.c)
target_link_libraries(program PRIVATE cecl::cecl)
EOF
cat >program/program.c <<'EOF'
#include <cecl/cecl.h>
#include <stdio.h>
#include <string.h>

/* Two ranks of one process gather each other's number. */
int main(void)
{
    ceclComm_t comms[2];
    ceclStream_t streams[2];
    int *recv[2];
    int wrong = ceclCommInitAll(comms, 2, NULL) != ceclSuccess || ceclGroupStart() != ceclSuccess;
    for (int r = 0; r < 2 && !wrong; r++)
        wrong = ceclMemAlloc(comms[r], (void **)&recv[r], 2 * sizeof(int)) != ceclSuccess;
    wrong = wrong || ceclGroupEnd() != ceclSuccess || ceclGroupStart() != ceclSuccess;
    for (int r = 0; r < 2 && !wrong; r++) {
        recv[r][r] = 7 + r; /* memory of the host device */
        wrong = ceclStreamCreate(comms[r], &streams[r]) != ceclSuccess ||
                ceclAllGather(recv[r] + r, recv[r], 1, ceclInt, comms[r], streams[r]) != ceclSuccess;
    }
    wrong = wrong || ceclGroupEnd() != ceclSuccess;
    for (int r = 0; r < 2 && !wrong; r++)
        wrong = ceclStreamSynchronize(comms[r], streams[r]) != ceclSuccess || recv[r][0] != 7 ||
                recv[r][1] != 8 || ceclStreamDestroy(comms[r], streams[r]) != ceclSuccess;
    for (int r = 0; r < 2 && !wrong; r++)
        wrong = ceclCommDestroy(comms[r]) != ceclSuccess;
    puts(wrong ? ceclGetLastError(NULL) : "gathered");
    return wrong;
}
EOF
has "" cmake -S program -B program/build "-DCMAKE_PREFIX_PATH=$(python -m cecl --cmake-prefix)"
has "" cmake --build program/build
has "^gathered" program/build/program
if command -v pkg-config >/dev/null; then
    PKG_CONFIG_PATH=$(python -m cecl --pkg-config)
    export PKG_CONFIG_PATH
    read -ra flags < <(pkg-config --cflags --libs cecl)
    has "" cc program/program.c "${flags[@]}" -o program/by_pkg_config
    has "^gathered" env LD_LIBRARY_PATH="$libraries" program/by_pkg_config
fi
echo "$passed passed, 0 failed"
