#!/usr/bin/env bash
# wheel.sh FOLDER [x86_64|aarch64 ...]: builds the Python wheels for x86-64 and aarch64, or for the architectures
# named. It needs python3 with venv, and PyPI. PyPI's ziglang compiles C for both, and links against glibc 2.28, so
# a wheel can be installed on every Linux with this glibc or a later one. No CUDA toolkit is needed, and both wheels
# have the same kernels. What a wheel's tag says is checked against what its libraries need.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
glibc=2.28 most_bytes=20000000
mkdir -p "${1:?a folder for the wheels}"
out=$(cd -- "$1" && pwd)
shift
archs=("$@")
[ $# -gt 0 ] || archs=(x86_64 aarch64)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

python3 -m venv "$scratch/venv"
if ! "$scratch/venv/bin/pip" install -q "ziglang==0.15.*" wheel auditwheel; then
    echo "skipped: PyPI's ziglang could not be installed"
    exit 77
fi
zig=$("$scratch/venv/bin/python" -c 'import os, ziglang; print(os.path.dirname(ziglang.__file__) + "/zig")')

# kernels_of IMAGE: the names of the kernels in an image.
kernels_of() {
    case $1 in
    *.ptx) sed -n 's/.*\.entry \(cecl_[a-z0-9_]*\)(.*/\1/p' "$1" ;;
    *) nm "$1" | sed -n 's/.* T \(cecl_.*\)/\1/p' ;;
    esac | sort
}

# Checks that all images of a file have the same kernels; test_images checks that the cubin for 9.0 lacks no kernel.
check_kernels() {
    local image kernels
    for image in "$1"/*.cubin "$1"/*.ptx; do
        kernels=${image%.*.*}.90.ptx
        if [ -z "$(kernels_of "$image")" ] || ! diff <(kernels_of "$kernels") <(kernels_of "$image") >&2; then
            echo "${image##*/} has other kernels than ${kernels##*/}" >&2
            exit 1
        fi
    done
}

for arch in "${archs[@]}"; do
    # CMake needs the compiler as one word: a script. The script names zig by its path, because a build that pip starts
    # does not see the packages of pip's environment.
    cat >"$scratch/cc" <<EOF
#!/bin/sh
exec "$zig" cc -target $arch-linux-gnu.$glibc "\$@"
EOF
    chmod +x "$scratch/cc"
    options=(-C "build-dir=$scratch/$arch" -C cmake.define.CMAKE_SYSTEM_NAME=Linux -C "cmake.define.CMAKE_SYSTEM_PROCESSOR=$arch")
    [ "$arch" = "${archs[0]}" ] || options+=(-C "cmake.define.CECL_KERNEL_FOLDER=$scratch/${archs[0]}/kernels")
    CC=$scratch/cc LDFLAGS=-Wl,-s "$scratch/venv/bin/pip" wheel -q --no-deps -w "$scratch/built" "${options[@]}" "$root"
    check_kernels "$scratch/${archs[0]}/kernels"
    tag=manylinux_${glibc/./_}_$arch
    wheel=$(cd "$scratch/built" && "$scratch/venv/bin/wheel" tags --remove --platform-tag "$tag" ./*-linux_*.whl)
    # auditwheel looks at every library's symbols, and names the oldest system that has them all.
    "$scratch/venv/bin/auditwheel" show "$scratch/built/$wheel" >"$scratch/audit"
    if ! grep -Eq "manylinux_2_(5|12|17|24|26|27|28)_$arch" "$scratch/audit"; then
        cat "$scratch/audit" >&2
        echo "$wheel needs a newer system than its tag says" >&2
        exit 1
    fi
    bytes=$(stat -c %s "$scratch/built/$wheel")
    [ "$bytes" -le "$most_bytes" ] || { echo "$wheel has $bytes bytes; $most_bytes at most" >&2; exit 1; }
    mv "$scratch/built/$wheel" "$out/"
    echo "$out/$wheel ($bytes bytes)"
done
