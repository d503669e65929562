#!/usr/bin/env bash
# Says how a run of ctest ended: why tests were skipped, which parts of passed tests were skipped, and then one line
# as the verdict.
# verdict.sh OUTPUT LAST_TEST_LOG
#   OUTPUT         what `ctest --output-on-failure` printed
#   LAST_TEST_LOG  Testing/Temporary/LastTest.log of the same run: it has the skipped tests' reasons
# Fails when a test failed, or when none was run.
set -euo pipefail
awk -v kept="$1" '
    function add(list, word) { return list == "" ? word : list ", " word }
    # The reason of each skipped test.
    FILENAME != kept && /^[0-9]+\/[0-9]+ Testing: / {
        name = $3
        last = "no reason given"
        open = ""
    }
    FILENAME != kept && /^skipped: / {
        last = substr($0, length("skipped: ") + 1)
        if (!(name in why))
            why[name] = last
        if (open != "") # ranks print at the same time: the lines of one may come in between
            because[open] = last
        open = ""
    }
    # Parts of a test that cmocka skipped; for ctest the test has passed. Each rank prints the reason, and cmocka
    # prints it again at the end.
    FILENAME != kept && /\[  SKIPPED \] [a-z_0-9]+$/ && !((name, $NF) in part) {
        part[name, $NF]
        if (!($NF in within)) {
            parts[++nparts] = $NF
            because[$NF] = last
            open = last == "no reason given" ? $NF : ""
        }
        within[$NF] = add(within[$NF], name)
    }
    # How each test ended.
    FILENAME == kept && /^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / {
        name = $0
        sub(/^[^:]*: /, "", name)
        sub(/ .*/, "", name)
        if (/ Passed /) {
            passed++
        } else if (/\*\*\*Skipped/) {
            skipped++
            reason = name in why ? why[name] : "no reason given"
            if (!(reason in count))
                reasons[++kinds] = reason
            count[reason]++
            names[reason] = add(names[reason], name)
        } else {
            failed++
            bad = add(bad, name)
        }
    }
    END {
        for (k = 1; k <= kinds; k++) {
            printf "%sskipped, %s: %s\n", k == 1 ? "\n" : "", reasons[k], names[reasons[k]]
            told = add(told, reasons[k] (kinds > 1 ? " (" count[reasons[k]] ")" : ""))
        }
        for (p = 1; p <= nparts; p++)
            printf "%sskipped within %s: %s (%s)\n", p == 1 ? "\n" : "", within[parts[p]], parts[p], because[parts[p]]
        print ""
        if (passed + skipped + failed == 0)
            print "no test was run; what ctest said is in " kept
        else if (failed)
            printf "%d of %d tests failed: %s; their output is in %s\n", failed,
                passed + skipped + failed, bad, kept
        else if (skipped)
            printf "all %d tests that ran passed, %d skipped: %s\n", passed, skipped, told
        else
            printf "all %d tests passed\n", passed
        exit failed > 0 || passed + skipped == 0
    }' "$2" "$1"
