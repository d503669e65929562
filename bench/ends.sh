#!/usr/bin/env bash
# ends.sh CODE PATTERN COMMAND...: fails unless the command exits with CODE and a line of its output matches
# PATTERN.
code=$1 pattern=$2
shift 2
output=$("$@" 2>&1)
got=$?
printf '%s\n' "$output"
[ "$got" -eq "$code" ] || { echo "ended with $got, $code expected"; exit 1; }
printf '%s\n' "$output" | grep -Eq -- "$pattern" || { echo "no line matches: $pattern"; exit 1; }
