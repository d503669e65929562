#!/usr/bin/env bash
# check_exports.sh LIBRARY HEADER [NAME ...]: fails unless a shared library exports exactly the functions of HEADER
# and each NAME, which another library of cecl needs. HEADER is the library's public header, or src/nccl/names.h,
# whose functions must be exported both with and without a p in front.
set -euo pipefail
library=$1 header=$2
shift 2
exported=$(nm -D --defined-only "$library" | awk '{ print $3 }' | sort)
public=$({
    # the function's name may be on the next line
    sed -n -e '/^CECL_API.*ceclResult_t$/{N;s/\n/ /}' -e 's/^CECL_API.*\b\(cecl[A-Za-z]*\)(.*/\1/p' "$header"
    sed -n 's/^ *\(COUNTED\|FOLLOWED\|JUMP\)(\(nccl[A-Za-z0-9]*\).*/\2\np\2/p' "$header"
    [ $# -eq 0 ] || printf '%s\n' "$@"
} | sort)
[ -n "$public" ] || { echo "$header: no public function found"; exit 1; }
if ! diff <(echo "$public") <(echo "$exported"); then
    echo "$library: < public but not exported, > exported but not public"
    exit 1
fi
echo "$library: $(echo "$exported" | wc -l) names, all public"
