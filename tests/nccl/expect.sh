# shellcheck shell=bash
# Shared by the tests here. A test sets `scratch`, sources this file, sets `case` before each case, and ends with `exit $failed`.
# shellcheck disable=SC2154,SC2034

failed=0

# run COMMAND...: runs it, and keeps its output, its stderr, and its exit status.
run() {
    output=$("$@" 2>"$scratch/stderr")
    status=$?
    errors=$(cat "$scratch/stderr")
}

# run_to N COMMAND...: runs it, and checks that its exit status is N
run_to() {
    run "${@:2}"
    expect_status "$1"
}

wrong() {
    printf '%s: %s\nstatus %s, output:\n%s\nstderr:\n%s\n\n' "$case" "$1" "$status" "$output" "$errors"
    failed=1
}

# expect_status N, expect_output WORDS, expect_error WORDS: check the last run's exit status, stdout, stderr
expect_status() {
    [ "$status" -eq "$1" ] || wrong "status $1 expected"
}
expect_output() {
    [[ $output == *"$1"* ]] || wrong "output expected: $1"
}
expect_error() {
    [[ $errors == *"$1"* ]] || wrong "stderr expected: $1"
}

# expect_lines N: checks that the last run wrote N lines to stderr
expect_lines() {
    [ "$(grep -c . <<<"$errors")" -eq "$1" ] || wrong "$1 lines on stderr expected"
}
