#!/usr/bin/env bash
# Compiles the library with CUDA, and the tests and tools that use CUDA themselves, and fails if it does not compile or if its files call each other in circles.
# A GPU is not needed. If no CUDA toolkit is installed, NVIDIA's packages on PyPI serve as one. If these
# cannot be installed, the script says so, compiles nothing, and exits with 77.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/cuda
# shellcheck source=scripts/common.sh
. "$root/scripts/common.sh"
toolkit=$root/build/cuda_toolkit
packages=("nvidia-cuda-nvcc==13.0.*" "nvidia-cuda-runtime==13.0.*" "nvidia-cuda-crt==13.0.*"
    "nvidia-nvvm==13.0.*" "nvidia-cuda-cccl==13.0.*" "nvidia-nvtx==13.0.*" "nvidia-cublas==13.0.*")

# Makes a toolkit of PyPI's packages and prints its folder. CMake looks for libraries in lib64, under names without a
# version. The packages have neither, so links stand in for them.
from_pypi() {
    local folder library
    [ -x "$toolkit/bin/pip" ] || python3 -m venv "$toolkit" || return 1
    "$toolkit/bin/pip" install -q "${packages[@]}" >&2 || return 1
    folder=$("$toolkit/bin/python3" -c 'import nvidia, os; print(os.path.join(list(nvidia.__path__)[0], "cu13"))') || return 1
    ln -sfn lib "$folder/lib64"
    for library in "$folder"/lib/lib*.so.*; do
        ln -sf "${library##*/}" "${library%%.so.*}.so"
    done
    echo "$folder"
}

options=(-DCECL_CUDA=ON -DCECL_KERNELS=nvcc -DCECL_BASELINE_NCCL=OFF -DCECL_WERROR=ON)
targets=(cecl cecl_nccl cuda_programs)
if ! command -v nvcc >/dev/null && [ ! -x /usr/local/cuda/bin/nvcc ]; then
    if ! folder=$(from_pypi); then
        echo "skipped: no CUDA toolkit is installed, and PyPI's could not be installed"
        exit 77
    fi
    options+=("-DCMAKE_CUDA_COMPILER=$folder/bin/nvcc" "-DCUDAToolkit_ROOT=$folder")
fi
build "$build" "${options[@]}"
python3 "$root/scripts/check_circles.py" "$build"
