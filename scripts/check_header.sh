#!/usr/bin/env bash
# check_header.sh [HEADER ...] (default: all public headers): fails if the comment of a public function lacks one
# of: collective or local, threads, ownership, errors. A comment may refer to that of another function ("see ceclX",
# "as ceclX").
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
[ $# -gt 0 ] || set -- "$root"/include/cecl/*.h
awk '
    BEGIN { nwords = split("Collective|Local Threads|threads Ownership|ownership Errors|errors", words, " ") }
    function complain(what) { print FILENAME ": " name ": " what; bad = 1 }
    /^\/\*/ { comment = ""; inside = 1 }
    inside { line = $0; sub(/^ \*/, "", line); comment = comment " " line }
    /\*\// { inside = 0 }
    /^CECL_API/ || /^CECL_DEVICE_API.*[ *]cecl[A-Z]/ {
        name = match($0, /cecl[A-Za-z]+\(/) ? substr($0, RSTART, RLENGTH - 1) : "line " FNR
        count++
        if (comment == "")
            complain("no comment")
        else if (comment !~ /(see|as) +cecl/)
            for (i = 1; i <= nwords; i++)
                if (comment !~ words[i])
                    complain("says nothing of " words[i])
        comment = ""
    }
    END {
        if (count < 1) { print "no public function found"; bad = 1 }
        if (!bad) print count " public functions documented"
        exit bad
    }
' "$@"
