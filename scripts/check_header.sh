#!/usr/bin/env bash
# Fails when a public function's comment does not say: collective or local, threads, ownership, errors, since. A comment may refer to
# another function's ("see ceclX", "as ceclX") for what it leaves out.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
awk '
    /^\/\*/ { comment = ""; inside = 1 }
    inside { comment = comment " " $0 }
    /\*\// { inside = 0 }
    /^CECL_API/ {
        match($0, /cecl[A-Za-z]+\(/); name = substr($0, RSTART, RLENGTH - 1); count++
        split("Collective|Local Threads|threads Ownership|ownership Errors|errors Since", words, " ")
        for (i = 1; i <= 5; i++)
            if (comment !~ words[i] && comment !~ /see cecl|as cecl/) { print FILENAME ": " name ": says nothing of " words[i]; bad = 1 }
        if (comment == "") { print FILENAME ": " name ": no comment"; bad = 1 }
        comment = ""
    }
    END { if (count < 1) { print "no public function found"; bad = 1 } else print count " public functions documented"; exit bad }
' "$root"/include/cecl/*.h
