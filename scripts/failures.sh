#!/usr/bin/env bash
# failures.sh [LOG] (default: standard input): shows again what failed, because CI may show only the end of a long
# log. LOG is what `ctest --output-on-failure` printed, or several such logs and outputs of other commands, each
# after a line "=== PART". For each failed test, prints its part, its name and the last lines of its output; for a
# part without a failed test, its own last lines: at most 30 lines for each, and about 100 in all.
set -euo pipefail
awk '
    function begin(title) { titles[++count] = title; length_of[count] = 0 }
    function add(line) { lines[count, ++length_of[count]] = line }
    # A part counts as a failure until one of its tests is found to have failed, which then counts instead.
    /^=== / { part = substr($0, 5); begin(part); keeps = 1; is_whole = 1; next }
    /^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / {
        if (/ Passed / || /\*\*\*Skipped/) { keeps = is_whole; next }
        name = $0
        sub(/^[^:]*: /, "", name)
        sub(/ .*/, "", name)
        if (is_whole) { count--; is_whole = 0 }
        begin(part == "" ? name : part ": " name)
        sub(/^.*\*\*\*/, "")
        add($0)
        keeps = 1
        next
    }
    /^ *Start +[0-9]+: / || /^[0-9]+% tests passed, / { keeps = is_whole; next }
    # Of what cmocka prints, only failures are kept.
    /^$/ || /^\[ RUN |^\[ +OK \]|^\[==|^\[ +PASSED/ { next }
    keeps && count { add($0) }
    END {
        share = count ? int(100 / count) - 1 : 0
        share = share > 30 ? 30 : share < 2 ? 2 : share
        for (i = 1; i <= count && i <= 33; i++) {
            printf "--- failed: %s\n", titles[i]
            first = length_of[i] > share ? length_of[i] - share + 1 : 1
            for (l = first; l <= length_of[i]; l++)
                print substr(lines[i, l], 1, 400)
        }
        if (count > 33)
            printf "--- and %d more\n", count - 33
    }' "${1:--}"
