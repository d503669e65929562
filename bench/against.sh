#!/usr/bin/env bash
# Fails unless cecl_tune --against nccl writes the sizes at which cecl is faster than the stand-in for NCCL,
# keeps other rows of the file, and refuses what it must. CECL_NCCL_PATH names the stand-in. against.sh
# CECL_TUNE MPIRUN... (without -n)
tune=$1
shift
mpi=("$@")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failed=0
file=$dir/learned

# fails WORDS: says what is wrong.
fails() {
    echo "$1"
    failed=1
}

# tune RANKS OPTIONS...
tune() {
    local ranks=$1
    shift
    "${mpi[@]}" -n "$ranks" "$tune" --against nccl --quick --seconds 100 --output "$file" "$@" >"$dir/said" 2>&1
}

# has N PATTERN: N lines of the file must match.
has() {
    [ "$(grep -Ec -- "$2" "$file")" -eq "$1" ] || fails "$1 x $2 expected: $(cat "$file")"
}

# NCCL takes far longer than cecl in every size, also on a machine that has much else to do. Each type of a
# reduction has a row of its own.
export STANDIN_TAKES_US=20000
cat >"$file" <<'TEXT'
cecl-learned 1
verdict host 2 22809 0.1.0 05b1fce29c5c6a17 with_sms 78200 69700 109
gains NVIDIA_H200 2 22809 0.1.0 all_gather any plain 4096 8192
TEXT
tune 2 --op all_reduce --types int32,float32 || fails "2 ranks: $(cat "$dir/said")"
grep -q "wrote $file: with CECL_NCCL_LEARNED=$file" "$dir/said" || fails "the written file is not named: $(cat "$dir/said")"
[ "$(head -n 1 "$file")" = "cecl-learned 1" ] || fails "the first line: $(cat "$file")"
has 1 '^verdict host 2 22809 0.1.0 05b1fce29c5c6a17 with_sms 78200 69700 109$'
has 1 '^gains NVIDIA_H200 2 22809 0.1.0 all_gather any plain 4096 8192$'
for type in int32 float32; do
    has 1 "^gains host 2 [0-9]+ [0-9.]+ all_reduce $type plain 256 1048576\$"
done
has 2 '^gains host 2 '

# One operation with another number of ranks adds a row. Measured again while NCCL takes no time, only that
# row changes.
tune 3 --op all_gather || fails "3 ranks: $(cat "$dir/said")"
has 2 '^gains host 2 '
has 1 '^gains host 3 [0-9]+ [0-9.]+ all_gather any plain 256 1048576$'
STANDIN_TAKES_US=0 tune 3 --op all_gather || fails "again: $(cat "$dir/said")"
has 2 '^gains host 2 '
has 0 '^gains host 3 .* 256 1048576$'
has 1 '^verdict host 2 '

# Nodes have rows of their own.
CECL_NODE_SIZE=1 tune 2 --op all_gather || fails "2 nodes: $(cat "$dir/said")"
has 1 '^gains host 2:2x1 [0-9]+ [0-9.]+ all_gather any plain 256 1048576$'
has 2 '^gains host 2 '

# Every operation has rows.
STANDIN_TAKES_US=5000 tune 2 --types int32 || fails "all: $(cat "$dir/said")"
for row in all_gather.any all_reduce.int32 reduce_scatter.int32 alltoall.any; do
    grep -Eq "^gains host 2 [0-9]+ [0-9.]+ ${row/./ } plain [0-9]+ [0-9]+\$" "$file" || fails "no row of $row: $(cat "$file")"
done
has 1 '^gains host 2 [0-9]+ [0-9.]+ all_reduce float32 plain 256 1048576$'

# refuses END WORDS RANKS OPTIONS...: cecl_tune must exit with END, print WORDS, and leave the file as it is.
refuses() {
    local end=$1 words=$2
    shift 2
    cp "$file" "$dir/before"
    tune "$@"
    [ $? -eq "$end" ] && grep -qF -- "$words" "$dir/said" || fails "not refused: $*: $(cat "$dir/said")"
    cmp -s "$file" "$dir/before" || fails "the file has changed: $*"
}
refuses 2 "more: types such as" 2 --types more
refuses 2 "broadcast" 2 --op broadcast
refuses 2 "one rank has nothing to choose" 1
CECL_NCCL_PATH=/nowhere refuses 3 "CECL_NCCL_PATH=/nowhere: No such file" 2
"${mpi[@]}" -n 2 "$tune" --against other >"$dir/said" 2>&1
[ $? -eq 2 ] && grep -q 'other: nccl expected' "$dir/said" || fails "--against other: $(cat "$dir/said")"
"${mpi[@]}" -n 2 "$tune" --types int8 >"$dir/said" 2>&1
[ $? -eq 2 ] && grep -q -- '--types: --against nccl expected' "$dir/said" || fails "--types alone: $(cat "$dir/said")"
exit $failed
