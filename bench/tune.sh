#!/usr/bin/env bash
# tune.sh CECL_TUNE CECL_PERF CECL_INFO MPIRUN... (for two ranks): cecl_tune must measure on the host device, write
# a file that can be loaded and nothing else, and refuse wrong options.
tune=$1 perf=$2 info=$3
shift 3
mpi=("$@")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failed=0

# fails WORDS: prints what is wrong.
fails() {
    echo "$1"
    failed=1
}

# refuses NAMED OPTIONS...: cecl_tune must exit with 2 and print NAMED.
refuses() {
    local named=$1 output end
    shift
    output=$("${mpi[@]}" "$tune" "$@" 2>&1)
    end=$?
    { [ "$end" -eq 2 ] && grep -qF -- "cecl_tune: $named" <<<"$output"; } || fails "not refused: $* ($end): $output"
}

"${mpi[@]}" "$tune" --quick --seconds 40 --output "$dir/all" >"$dir/said" 2>&1 || fails "cecl_tune --quick: $(cat "$dir/said")"
grep -q '100 %' "$dir/said" || fails "no progress: $(cat "$dir/said")"
[ "$(grep -Ec '^[a-z_.]+ +2 +host +[0-9]' "$dir/all")" -ge 5 ] || fails "few rows: $(cat "$dir/all")"
[ "$(grep -c '^# kept: ' "$dir/all")" -ge 10 ] || fails "kept rows are not told: $(cat "$dir/all")"
CECL_TUNING=$dir/all "$info" --tuning --ranks 2 --device host | grep -q 'small.all_gather.max_bytes .*CECL_TUNING' ||
    fails "cecl_info does not load what cecl_tune wrote"
CECL_TUNING=$dir/all "${mpi[@]}" "$perf" -b 1K -e 64K -f 8 -n 2 -w 1 --rounds 1 >"$dir/said" 2>&1 ||
    fails "cecl_perf does not load what cecl_tune wrote: $(cat "$dir/said")"

# Without --output: a message has the file's full name, and no other file is written. If no GPU is found, only one
# message says so, although each way makes communicators.
mkdir "$dir/here"
(cd "$dir/here" && env -u CECL_DEVICE CUDA_VISIBLE_DEVICES=-1 "${mpi[@]}" "$tune" --quick --seconds 2 --op alltoall) \
    >"$dir/said" 2>&1 || fails "cecl_tune without --output: $(cat "$dir/said")"
grep -qF "wrote $dir/here/cecl.tuning: CECL_TUNING=$dir/here/cecl.tuning" "$dir/said" ||
    fails "the file is not named in full: $(cat "$dir/said")"
[ "$(ls -A "$dir/here")" = cecl.tuning ] || fails "more is written: $(ls -A "$dir/here")"
[ "$(grep -c 'running on the host device' "$dir/said")" -eq 1 ] || fails "not said once: $(cat "$dir/said")"

# A run that breaks leaves no file.
"${mpi[@]}" env CECL_DEVICE=cuda CUDA_VISIBLE_DEVICES=-1 "$tune" --output "$dir/broken" >"$dir/said" 2>&1 &&
    fails "GPUs were found: $(cat "$dir/said")"
[ ! -e "$dir/broken" ] || fails "a file of a run that broke is left"

# One operation, with rows from before: they stay unless they are measured again.
printf 'cecl-tuning 1\nreduction.reading_sms * any 5\nall_gather.returned_max_bytes 2 host 3KiB\n' >"$dir/before"
CECL_TUNING=$dir/before "${mpi[@]}" "$tune" --quick --seconds 20 --op all_gather --output "$dir/some" >"$dir/said" 2>&1 ||
    fails "cecl_tune --op all_gather: $(cat "$dir/said")"
grep -Eq '^reduction.reading_sms +[*] +any +5$' "$dir/some" || fails "a row of before is lost: $(cat "$dir/some")"
[ "$(grep -c '^all_gather.returned_max_bytes' "$dir/some")" -eq 1 ] || fails "rows twice: $(cat "$dir/some")"
grep -q '^small.all_reduce' "$dir/some" && fails "measured without being asked: $(cat "$dir/some")"
CECL_TUNING=$dir/some "$info" --tuning >/dev/null || fails "cecl_info does not load the file of one operation"

"${mpi[@]}" env CECL_TUNING="$dir/nowhere" "$tune" >"$dir/said" 2>&1
[ $? -eq 2 ] && grep -q 'CECL_TUNING=.*No such file' "$dir/said" || fails "a missing file: $(cat "$dir/said")"
refuses "gather: all_gather, alltoall" --op gather
refuses "0: 1 to 86400" --seconds 0
refuses "--output /: a file" --output /
refuses "--fast: an option that --help lists" --fast
refuses "more: no option" more
exit $failed
