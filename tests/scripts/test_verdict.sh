#!/usr/bin/env bash
# test_verdict.sh SCRATCH_DIR: runs ctest on tests made for this, and compares what scripts/verdict.sh and
# scripts/failures.sh say with what they should say.
set -uo pipefail
root=$(cd -- "$(dirname -- "$0")/../.." && pwd)
verdict=$root/scripts/verdict.sh
scratch=$1
failed=0

# run NAME=EXIT_CODE[:WORDS] ...: runs ctest on tests that print WORDS and end with EXIT_CODE (77: skipped). Leaves the
# verdict's output in $said, and its exit status in $status.
run() {
    rm -rf "$scratch"
    mkdir -p "$scratch"
    cd "$scratch" || exit 1
    for test in "$@"; do
        local name=${test%%=*} rest=${test#*=}
        local code=${rest%%:*} words=${rest#"${rest%%:*}"}
        printf 'add_test(%s sh -c "echo \\"%s\\"; exit %s")\n' "$name" "${words#:}" "$code"
        printf 'set_tests_properties(%s PROPERTIES SKIP_RETURN_CODE 77)\n' "$name"
    done >CTestTestfile.cmake
    ctest --output-on-failure >output 2>&1
    said=$("$verdict" "$scratch/output" Testing/Temporary/LastTest.log)
    status=$?
}

# expect STATUS WORDS: the verdict must end with STATUS, and one of its lines must be WORDS.
expect() {
    [ "$status" -eq "$1" ] && grep -qxF -- "$2" <<<"$said" && return
    printf 'expected, with status %s: %s\nsaid, with status %s: %s\n' "$1" "$2" "$status" "$said"
    failed=1
}

# expect_last WORDS: the last line must be WORDS.
expect_last() {
    [ "$(tail -n 1 <<<"$said")" = "$1" ] && return
    printf 'expected as the last line: %s\nsaid: %s\n' "$1" "$said"
    failed=1
}

run one=0 two=0
expect 0 "all 2 tests passed"
run one=0 two=77:"skipped: 2 GPUs are needed, 0 are here" three=77:"skipped: 2 GPUs are needed, 0 are here"
expect 0 "skipped, 2 GPUs are needed, 0 are here: two, three"
expect_last "all 1 tests that ran passed, 2 skipped: 2 GPUs are needed, 0 are here"
run one=0 two=77:"skipped: no python3" three=77
expect 0 "skipped, no reason given: three"
expect_last "all 1 tests that ran passed, 2 skipped: no python3 (1), no reason given (1)"
run one=0:'skipped: no peer\n[  SKIPPED ] a_part' two=0:"[       OK ] a_part" three=0:"[  SKIPPED ] a_part"
expect 0 "skipped within one, three: a_part (no peer)"
run one=0:'[  SKIPPED ] a_part\nskipped: no peer\n[  SKIPPED ] a_part'
expect 0 "skipped within one: a_part (no peer)"
run one=0:"[  SKIPPED ] a_part"
expect 0 "skipped within one: a_part (no reason given)"
run one=0:'skipped: no peer\n[  SKIPPED ] a_part' two=0:"[       OK ] a_part" three=0
expect_last "all 3 tests passed"
run one=0 two=1:"the reason of the failure" three=77:"skipped: no python3" four=3
expect_last "2 of 4 tests failed: two, four; their output is in $scratch/output"
expect 1 "skipped, no python3: three"
grep -qF "the reason of the failure" "$scratch/output" || { echo "its output is not there"; failed=1; }
ends=$({ echo "=== a part" && cat output && printf '=== another\nwhy\n'; } | "$root/scripts/failures.sh")
if [[ $ends != "--- failed: a part: two"*"the reason of the failure"*"--- failed: a part: four"*"--- failed: another
why" || $ends == *one* || $ends == *three* ]]; then
    echo "failures.sh said: $ends"
    failed=1
fi
run
expect 1 "no test was run; what ctest said is in $scratch/output"

# A script that skips a test must print the reason, on the line of `exit 77` or on the one before.
silent=$(cd "$root" && find tests bench examples -name '*.sh' -o -name CMakeLists.txt | sort |
    xargs awk '/(^|[ ;{|])exit 77/ && !/skipped: / && before !~ /skipped: / { print FILENAME ":" FNR ": " $0 }
        { before = $0 }')
silent+=$(cd "$root" && grep -rn --include='*.[ch]' '[^_a-z]skip();' tests | grep -v '^tests/with_cmocka.h:')
[ -z "$silent" ] || { printf 'no reason is printed:\n%s\n' "$silent"; failed=1; }
exit $failed
