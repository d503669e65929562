#!/usr/bin/env bash
# Fails unless a second run starts with the verdicts that the first run learned, without a trial, unless
# a file that does not fit is ignored with one line, unless a bad line of a file is skipped, and unless ranks
# whose files differ decide alike.
# test_nccl_learned.sh TEST_NCCL_TRIALS
trials=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export CECL_NCCL=auto CECL_NCCL_LEARNED=$dir/learned
failed=0
fails() {
    echo "$1"
    failed=1
}

# The two tests that are served steps, and classes of calls.
CECL_NCCL_TRIALS=1 "$trials" '*trial*' >"$dir/first" 2>&1 || fails "the first run: $(cat "$dir/first")"
grep -q 'is ignored' "$dir/first" && fails "rows of this run are reported as rows of the file: $(cat "$dir/first")"
grep -q ' steps): served' "$dir/first" || fails "nothing was learned: $(cat "$dir/first")"
[ "$(head -n 1 "$dir/learned")" = "cecl-learned 1" ] || fails "the first line: $(cat "$dir/learned")"
grep -Eq '^verdict host 2 [0-9]+ [0-9.]+ [0-9a-f]{16} [a-z_]+ [0-9]+ [0-9]+ [0-9]+$' "$dir/learned" ||
    fails "no verdict is kept: $(cat "$dir/learned")"

grep -Eq '^verdict host 3 [^#]* # all-gather of 256 to 512 bytes, int32$' "$dir/learned" ||
    fails "no verdict on a class is kept: $(cat "$dir/learned")"

# The program fails unless its calls are served at the end.
CECL_NCCL_TRIALS=0 "$trials" '*trial*' >"$dir/second" 2>&1 || fails "the second run: $(cat "$dir/second")"
grep -q "step: served.*, as $dir/learned says (" "$dir/second" || fails "not recalled: $(cat "$dir/second")"
grep -q "all-gather of 256 to 512 bytes, int32: served, as $dir/learned says (" "$dir/second" ||
    fails "no class is recalled: $(cat "$dir/second")"
grep -Eq ' (steps|calls)\): ' "$dir/second" && fails "tried again: $(cat "$dir/second")"

# A part of a row, as a crash leaves it, is named, and the other rows serve.
{ cat "$dir/learned"; echo "verdict host 2 2"; } >"$dir/crashed"
CECL_NCCL_LEARNED=$dir/crashed CECL_NCCL_TRIALS=0 "$trials" 'a_program*' >"$dir/said" 2>&1 || fails "a part of a row: $(cat "$dir/said")"
grep -q "step: served.*, as $dir/crashed says (" "$dir/said" || fails "not recalled beside a part of a row: $(cat "$dir/said")"
[ "$(grep -c "$dir/crashed, line $(wc -l <"$dir/crashed"): verdict host 2 2: verdict GPU ranks .* expected. Lines skipped: 1\$" "$dir/said")" -eq 1 ] ||
    fails "one line expected: $(cat "$dir/said")"

# Ranks whose files differ: one of the files decides for both ranks, and one line says so.
sed 's/^\(verdict host 2 [^ ]* [^ ]* [0-9a-f]* \)[a-z_]*/\1nccl/' "$dir/learned" >"$dir/contrary"
cmp -s "$dir/learned" "$dir/contrary" && fails "no verdict for two ranks: $(cat "$dir/learned")"
for files in "learned contrary" "contrary learned"; do
    # shellcheck disable=SC2086
    set -- $files
    CECL_NCCL_TRIALS=0 "$trials" differ "$dir/$1" "$dir/$2" >"$dir/said" 2>&1 || fails "files $files: $(cat "$dir/said")"
    [ "$(grep '^gathers: ' "$dir/said" | sort | uniq -c | awk '{ print $1 }')" = 2 ] ||
        fails "files $files: ranks differ: $(cat "$dir/said")"
    [ "$(grep -c '^cecl: step: ' "$dir/said")" = 1 ] || fails "files $files: one line expected: $(cat "$dir/said")"
done

# A file that has only other periods: nothing is tried, and --stats reports why.
sed 's/^\(verdict .* \)[0-9a-f]\{16\} /\10123456789abcdef /' "$dir/learned" >"$dir/others"
CECL_TEST_TAKES_US=500 CECL_NCCL_LEARNED=$dir/others CECL_NCCL_TRIALS=0 CECL_NCCL_STATS=1 "$trials" 'a_program*' >"$dir/said" 2>&1 &&
    fails "served without a verdict"
grep -q 'not tried, because of CECL_NCCL_TRIALS=0, and CECL_NCCL_LEARNED does not know its period' "$dir/said" ||
    fails "no reason is given why nothing is tried: $(cat "$dir/said")"

# misfit OF SED-EXPRESSION WORDS
misfit() {
    sed "$1" "$dir/learned" >"$dir/other"
    CECL_TEST_TAKES_US=500 CECL_NCCL_LEARNED=$dir/other CECL_NCCL_TRIALS=0 "$trials" 'a_program*' >"$dir/said" 2>&1 && fails "served by a file that does not fit: $1"
    [ "$(grep -c "$dir/other.*$2" "$dir/said")" -eq 1 ] || fails "$1 is not reported once: $(cat "$dir/said")"
}
misfit 's/ host / NVIDIA_H200 /' 'is ignored: its rows are for GPU NVIDIA_H200, and this GPU is host'
misfit 's/^verdict host \([0-9]*\) [0-9]*/verdict host \1 21900/' 'is ignored: its rows are for NCCL 21900, and this NCCL is '
misfit 's/^cecl-learned 1/cecl-learned 9/' 'line 1: cecl-learned 9: cecl-learned 1 expected'

# A name that is too long.
CECL_TEST_TAKES_US=500 CECL_NCCL_LEARNED=/$(printf '%5000s' | tr ' ' x) CECL_NCCL_TRIALS=0 "$trials" 'a_program*' >"$dir/said" 2>&1
grep -q '^cecl: CECL_NCCL_LEARNED is ignored: its name is too long, or ' "$dir/said" ||
    fails "a name that is too long is not reported: $(cat "$dir/said")"
exit $failed
