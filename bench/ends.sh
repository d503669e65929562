#!/usr/bin/env bash
# Runs a command. Fails unless it exits with CODE and a line of its output matches PATTERN.
# ends.sh CODE PATTERN COMMAND...
code=$1 pattern=$2
shift 2
output=$("$@" 2>&1)
got=$?
printf '%s\n' "$output"
[ "$got" -eq "$code" ] || { echo "ended with $got, $code expected"; exit 1; }
printf '%s\n' "$output" | grep -Eq -- "$pattern" || { echo "no line matches: $pattern"; exit 1; }
