#!/usr/bin/env bash
# Compiles the library with CUDA, and the programs that use CUDA or NCCL themselves. Fails if something does not
# compile, if files of the library call each other in circles, or if a kernel is missing. Kernels are compiled for
# one architecture, or taken from test.sh's build if it has compiled the same sources with the same nvcc.
#
# The script also checks that the compiler finds headers by CMake's options alone: nccl.h lies in its own folder, no
# variable names a folder, PATH has no nvcc, and gcc does not search /usr/local/include, where some machines have
# links to CUDA's headers. No GPU is needed. Without a CUDA toolkit or nccl.h, NVIDIA's packages from PyPI are
# installed. If that fails, the script says so, compiles nothing, and exits with 77.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/cuda
# shellcheck source=scripts/common.sh
. "$root/scripts/common.sh"
python=$root/build/cuda_toolkit
packages=("nvidia-cuda-nvcc==13.0.*" "nvidia-cuda-runtime==13.0.*" "nvidia-cuda-crt==13.0.*"
    "nvidia-nvvm==13.0.*" "nvidia-cuda-cccl==13.0.*" "nvidia-nvtx==13.0.*" "nvidia-cublas==13.0.*")

# from_pypi PACKAGE...: installs the packages, and prints the folder that all of NVIDIA's packages share.
from_pypi() {
    [ -x "$python/bin/pip" ] || python3 -m venv "$python" || return 1
    "$python/bin/pip" install -q "$@" >&2 || return 1
    "$python/bin/python3" -c 'import nvidia; print(list(nvidia.__path__)[0])'
}

# Makes a toolkit of PyPI's packages, and prints its folder. CMake looks for libraries in lib64, by names without a
# version; the packages have neither, so links are made.
toolkit_from_pypi() {
    local folder library
    folder=$(from_pypi "${packages[@]}")/cu13 || return 1
    ln -sfn lib "$folder/lib64"
    for library in "$folder"/lib/lib*.so.*; do
        ln -sf "${library##*/}" "${library%%.so.*}.so"
    done
    echo "$folder"
}

# Prints CMake's options for a nccl.h without CUDA's other headers beside it.
nccl_alone() {
    local header folder
    for header in /usr/include/nccl.h /usr/local/cuda/include/nccl.h; do
        if [ -e "$header" ]; then
            mkdir -p "$build/nccl"
            cp "$header" "$build/nccl/"
            echo "-DNCCL_INCLUDE_DIR=$build/nccl"
            return
        fi
    done
    folder=$(from_pypi "nvidia-nccl-cu13==2.28.*")/nccl || return 1
    echo "-DNCCL_INCLUDE_DIR=$folder/include -DNCCL_LIBRARY=$folder/lib/libnccl.so.2"
}

# Prints flags with which gcc searches its usual folders for headers, but not /usr/local/include.
no_local_headers() {
    gcc -xc -E -v /dev/null 2>&1 | sed -n '/^#include </,/^End of/s/^ //p' | grep -v '^/usr/local/include$' |
        sed 's/^/-isystem /' | paste -sd ' ' | sed 's/^/-nostdinc /'
}

# kernels_of_tests NVCC: prints CMake's option that names the folder of test.sh's kernels, or no folder if these are
# incomplete or old. They are complete if that build's library is newer than they are.
kernels_of_tests() {
    local tests=$root/build/test wanted folder=
    wanted=$(printf 'nvcc\n%s\n90-real' "$("$1" --version | sed -n 's/.*, V\([0-9.]*\)$/\1/p')")
    if [ -e "$tests/libcecl_core.a" ] && [ "$(cat "$tests/kernels/compiler" 2>/dev/null)" = "$wanted" ] &&
        [ -z "$(find "$root"/{include,src,cmake} "$tests"/kernels/*.cubin -newer "$tests/libcecl_core.a")" ]; then
        folder=$tests/kernels
    fi
    echo "-DCECL_KERNEL_FOLDER=$folder"
}

# .ci/nightly builds the wheel, which has the kernels for all GPUs
options=(-DCECL_CUDA=ON -DCECL_KERNELS=nvcc -DCECL_ARCHITECTURES=90-real -DCECL_BASELINE_NCCL=ON -DCECL_WERROR=ON)
targets=(cecl cecl_nccl cecl_perf cecl_zerosm cecl_reduce_perf cecl_small_perf cecl_overlap example_one_shot_all_reduce
    example_fsdp_loop_cuda example_fsdp_train example_matmul multi_helpers nccl_abi_check test_nvtx test_images
    nvtx_tool)
for source in "$root"/tests/gpu/test_*.c; do
    targets+=("$(basename "$source" .c)")
done
unset CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH LIBRARY_PATH CUDA_HOME CUDA_PATH CUDACXX
nvcc=$(command -v nvcc) || nvcc=
if [ -x /usr/local/cuda/bin/nvcc ]; then
    nvcc=/usr/local/cuda/bin/nvcc
    IFS=: read -ra folders <<<"$PATH"
    without=
    for folder in "${folders[@]}"; do
        [ -x "$folder/nvcc" ] || without=$without:$folder
    done
    PATH=${without#:}
elif [ -z "$nvcc" ]; then
    if ! folder=$(toolkit_from_pypi); then
        echo "skipped: no CUDA toolkit is installed, and PyPI's could not be installed"
        exit 77
    fi
    nvcc=$folder/bin/nvcc
    options+=("-DCMAKE_CUDA_COMPILER=$nvcc" "-DCUDAToolkit_ROOT=$folder")
fi
if ! nccl=$(nccl_alone); then
    echo "skipped: no nccl.h is installed, and PyPI's NCCL could not be installed"
    exit 77
fi
read -ra nccl <<<"$nccl"
build "$build" "${options[@]}" "$(kernels_of_tests "$nvcc")" "${nccl[@]}" "-DCMAKE_C_FLAGS=$(no_local_headers)"
python3 "$root/scripts/check_circles.py" "$build"
"$build/tests/test_images"
