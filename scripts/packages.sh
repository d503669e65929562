# What Debian has to have installed; sourced by the scripts beside it.
build_packages="gcc g++ libc6-dev make cmake pkg-config binutils libopenmpi-dev openmpi-bin libopenblas-dev"
test_packages="$build_packages libcmocka-dev"
ci_packages="$test_packages clang clang-format libclang-rt-dev spin"
