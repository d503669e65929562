#!/usr/bin/env bash
# refuses.sh RANKS CECL_PERF MPIRUN...: cecl_perf must refuse each bad option: every rank exits with 2, and one line
# names the option.
ranks=$1 perf=$2
shift 2
failed=0

# refuses NAMED OPTIONS...: the message must contain NAMED. Each rank prints its exit code, because mpirun reports
# only one.
refuses() {
    local named=$1 output
    shift
    output=$("${mpi[@]}" sh -c '"$@"; echo "ended with $?"' rank "$perf" "$@" 2>&1)
    if [ "$(grep -c '^ended with 2$' <<<"$output")" -ne "$ranks" ] ||
        [ "$(grep -cF -- "cecl_perf: $named" <<<"$output")" -ne 1 ]; then
        printf 'not refused as expected: %s\n%s\n' "$*" "$output"
        failed=1
    fi
}

mpi=("$@")
refuses "-b 12Q: 1 to 1024G bytes" -b 12Q
refuses "-e 17592186044417M: " -e 17592186044417M # 2^64 + 1M bytes
refuses "-b  -5: " -b " -5"
refuses "-b 8192: at most -e, 4096" -b 8K -e 4K
refuses "-b 8: less than one element" -b 8 -e 1K --op alltoall
refuses "-f 2x: " -f 2x
refuses "-f 1.001: at most 64 sizes" -f 1.001
refuses "-c 2: 0 or 1" -c 2
refuses "--op gather: " --op gather
refuses "--in-place: send is measured out of place" --op send --in-place
refuses "--in-place: dispatch is measured out of place" --op dispatch --in-place
refuses "--in-place: sendrecv is measured out of place" --op sendrecv --in-place
refuses "--type int7: " --type int7
refuses "--baseline rccl: " --baseline rccl
refuses "--memory pool: malloc, pieces, private, with commas" --memory pool
refuses "--rounds 0: " --rounds 0
refuses "--alloc-bytes 4K: " --alloc-bytes 4K
refuses "--json /: a file" --json /
refuses "--no-such-option: " --no-such-option
refuses "surplus: " surplus
exit $failed
