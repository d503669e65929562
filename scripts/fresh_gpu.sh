#!/usr/bin/env bash
# Does what README tells a new user with GPUs to do, word for word, in a clean copy of these sources and with
# nothing exported. Ends with a table, and with 1 if anything was wrong. A skipped step is no success: the table has
# the reason.
#
#     fresh_gpu.sh [--deb FOLDER] [--wheels FOLDER] [STEP ...]
#
# --deb       unpacks the Debian packages of FOLDER first (as root), for machines that cannot install any
# --wheels    Python packages that building the wheel needs, on machines that do not reach PyPI
# STEP        demo, program, wheel, tests; without one, all
#
# The environment keeps little more than HOME, the PATH of a login shell, and NCCL_*. The folder of `python3` comes
# before PATH, as for a user who works in a virtual environment.
set -uo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
steps=() deb='' wheels=''
while [ $# -gt 0 ]; do
    case $1 in
    --deb | --wheels)
        [ -d "${2:-}" ] || { echo "fresh_gpu.sh: $1 ${2:-}: a folder expected" >&2; exit 2; }
        if [ "$1" = --deb ]; then deb=$2; else wheels=$(cd -- "$2" && pwd); fi
        shift
        ;;
    demo | program | wheel | tests) steps+=("$1") ;;
    *) echo "fresh_gpu.sh: $1: --deb, --wheels, demo, program, wheel or tests expected" >&2; exit 2 ;;
    esac
    shift
done
[ ${#steps[@]} -gt 0 ] || steps=(demo program wheel tests)
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
if [ "$gpus" -lt 2 ]; then
    echo "fresh_gpu.sh: 2 GPUs are needed, $gpus are here" >&2
    exit 2
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
copy=$scratch/cecl
mkdir "$copy"

# Copies what a clone has, and changes that are not committed; without git, all files but those that builds leave.
if git -C "$root" ls-files --error-unmatch README.md >/dev/null 2>&1; then
    commit=$(git -C "$root" describe --always --dirty)
    (cd "$root" && git ls-files -z --cached --others --exclude-standard |
        while IFS= read -r -d '' file; do [ ! -e "$file" ] || printf '%s\0' "$file"; done |
        tar --null -T - -c) | tar -x -C "$copy"
else
    commit="a copy without git"
    tar -C "$root" --exclude=./build --exclude=./.git --exclude=./shared -c . | tar -x -C "$copy"
fi
for package in ${deb:+"$deb"/*.deb}; do
    dpkg -x "$package" / || exit 2
done
[ -z "$deb" ] || ldconfig

# shellcheck disable=SC2016 # the login shell's
search=$(env -i HOME="$HOME" bash -lc 'echo "$PATH"')
python=$(dirname "$(command -v python3)")
case :$search: in *:"$python":*) ;; *) search=$python:$search ;; esac
clean=(HOME="$HOME" PATH="$search")
while IFS= read -r -d '' variable; do
    [[ $variable != NCCL_* ]] || clean+=("$variable")
done < <(env -0)
# On some machines the loader finds the driver's libraries only by this variable.
if [ -n "${LD_LIBRARY_PATH:-}" ] && ! ldconfig -p | grep -q 'libcuda\.so\.1 '; then
    clean+=(LD_LIBRARY_PATH="$LD_LIBRARY_PATH")
fi

# Without ssh Open MPI starts only if it is told another shell. README's line with mpirun says so to users.
if ! command -v ssh >/dev/null && ! command -v rsh >/dev/null; then
    echo "fresh_gpu.sh: no ssh here, which Open MPI expects: OMPI_MCA_plm_rsh_agent=sh is set"
    clean+=(OMPI_MCA_plm_rsh_agent=sh)
fi

rows=() right=0 wrong=0 skipped=0
row() { # SECONDS OUTCOME WORDS
    rows+=("$(printf '%7d  %-7s  %s' "$1" "$2" "$3")")
    printf '=== %s: %s\n' "$2" "$3"
}

skip() { # STEP REASON
    skipped=$((skipped + 1))
    row 0 skipped "$1: $2"
}

# inside COMMAND: runs it in the copy, in the clean environment.
inside() {
    (cd "$copy" && env -i "${clean[@]}" bash -c "$1") 2>&1
}

# try NAME COMMAND WANTED [UNWANTED]: COMMAND must end with 0. Each line of WANTED is a pattern that some line of
# COMMAND's output must match; no line of the output may match the pattern UNWANTED.
try() {
    local begin=$SECONDS status=0 pattern
    printf '=== %s\n' "$2"
    inside "$2" | tee "$scratch/log" || status=$?
    [ "$status" -eq 0 ] || status="ended with $status"
    while [ "$status" = 0 ] && IFS= read -r pattern; do
        grep -Eq -- "$pattern" "$scratch/log" || status="no line matches '$pattern'"
    done <<<"$3"
    if [ "$status" = 0 ] && [ -n "${4:-}" ] && grep -Eq -- "$4" "$scratch/log"; then
        status="a line matches '$4'"
    fi
    if [ "$status" = 0 ]; then
        right=$((right + 1))
        row $((SECONDS - begin)) right "$1"
        return
    fi
    wrong=$((wrong + 1))
    row $((SECONDS - begin)) WRONG "$1: $status"
    return 1
}

# readme WORDS: the command in README that begins with these words, without its comment.
readme() {
    local line
    line=$(grep -m 1 -- "^    $1" "$copy/README.md" | sed 's/^ *//; s/ *#.*//')
    echo "${line:-echo README has no command $1; false}"
}

demo() {
    try "README's demo" "$(readme ./scripts/demo.sh)" "^Shown: $gpus ranks" "ranks run on the CPU"
}

program() {
    local build run
    build=$(readme "cmake -S") run=$(readme "mpirun ")
    try "README's build" "$build" "cecl .*: CUDA ON" || return
    try "README's first program" "$run" "^rank 0 of 4: .* 0 wrong" "[1-9][0-9]* wrong|Abort"
    [ "$gpus" -eq 4 ] || # with a GPU for each rank
        try "the first program, $gpus ranks" "CECL_DEVICE=cuda ${run/-n 4/-n $gpus}" "^rank 0 of $gpus: .* 0 wrong" "[1-9][0-9]* wrong"
}

# Writes a short training: a sharded layer is gathered, and its gradient scattered, with exact numbers.
write_train() {
    cat >"$copy/train.py" <<'EOF'
import os
import torch
import torch.distributed as dist

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
ranks, n = dist.get_world_size(), 1 << 20
shard = torch.full((n,), float(rank + 1), device="cuda")
whole = torch.empty(ranks * n, device="cuda")
gradient = torch.empty(n, device="cuda")
for step in range(300):
    dist.all_gather_into_tensor(whole, shard)
    dist.reduce_scatter_tensor(gradient, whole.sign(), op=dist.ReduceOp.SUM)  # each element: the number of ranks
    shard += gradient
wanted = torch.arange(1, ranks + 1, device="cuda").repeat_interleave(n) + 299 * ranks
assert torch.equal(whole, wanted.float()), "the last gather is wrong"
torch.cuda.synchronize()
print(f"rank {rank}: trained, every element right", flush=True)
dist.destroy_process_group()
EOF
}

train() { # NAME COMMAND
    try "$1" "$2" $'^rank 0: trained, every element right\n^rank 1: trained, every element right\nncclAllGather .* (cecl|NCCL) '
}

wheel() {
    local install how=''
    install=$(readme "python3 -m pip install .")
    write_train
    if ! inside "python3 -c 'import torch.distributed'" >"$scratch/torch"; then
        skip "README's wheel" "python3 has no PyTorch: $(tail -n 1 "$scratch/torch")"
        return
    fi
    if ! inside "python3 -m pip download -q --no-deps --retries 0 --timeout 10 -d $scratch/probe scikit-build-core" >"$scratch/probe.log"; then
        how="--no-build-isolation --no-deps"
        install=${install/install/install $how}
        [ -z "$wheels" ] || inside "python3 -m pip install -q --no-index --no-deps $wheels/*.whl"
        if ! inside "python3 -c 'import scikit_build_core' && python3 cmake/nvrtc.py --find" >"$scratch/needs"; then
            skip "README's wheel" "PyPI is not reached, and python3 has not all that the build needs: $(tail -n 1 "$scratch/needs")"
            if [ -x "$copy/build/bin/cecl-run" ]; then
                train "cecl-run of README's build, torchrun" "build/bin/$(readme cecl-run)"
            fi
            return
        fi
    fi
    try "README's wheel${how:+, $how}" "$install" "Successfully installed cecl" || return
    train "README's cecl-run torchrun" "$(readme cecl-run)"
    inside "python3 -m pip uninstall -q -y cecl"
}

tests() {
    try "README's tests, -L gpu" "$(readme ./scripts/test.sh) -L gpu" "passed" || true
    rows[-1]+=": $(tail -n 1 "$scratch/log")"
}

for step in "${steps[@]}"; do
    "$step"
done
printf '\n%s, %s, %d x %s\n\n' "$commit" "$(date +%F)" "$gpus" "$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)"
printf 'seconds  outcome  step\n'
printf '%s\n' "${rows[@]}"
printf '\n%d right, %d wrong, %d skipped\n' "$right" "$wrong" "$skipped"
[ "$wrong" -eq 0 ]
