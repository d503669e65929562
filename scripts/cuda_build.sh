#!/usr/bin/env bash
# Compiles the library with CUDA, and the tests and tools that use CUDA themselves, and fails if it does not compile or if its files call each other in circles.
# A GPU is not needed. Where no CUDA toolkit is installed, NVIDIA's packages on PyPI serve as one; where
# they cannot be had, nothing is compiled, which is said, and the exit status is 77.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/cuda
# shellcheck source=scripts/common.sh
. "$root/scripts/common.sh"
toolkit=$root/build/cuda_toolkit
packages=("nvidia-cuda-nvcc==13.0.*" "nvidia-cuda-runtime==13.0.*" "nvidia-cuda-crt==13.0.*"
    "nvidia-nvvm==13.0.*" "nvidia-cuda-cccl==13.0.*" "nvidia-nvtx==13.0.*" "nvidia-cublas==13.0.*")

# The folder of the toolkit that PyPI's packages make up. CMake looks for libraries in lib64, without a number behind
# their names; packages for Python leave both out.
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
        echo "skipped: no CUDA toolkit is installed, and PyPI's could not be had"
        exit 77
    fi
    options+=("-DCMAKE_CUDA_COMPILER=$folder/bin/nvcc" "-DCUDAToolkit_ROOT=$folder")
fi
build "$build" "${options[@]}"
python3 "$root/scripts/check_circles.py" "$build"
