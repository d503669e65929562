#!/usr/bin/env bash
# Fails unless nccl_tests.py reads results right and says what is wrong. The programs are pretended.
# test_nccl_tests.sh NCCL_TESTS.PY
tool=$1
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
fail() {
    echo "FAILED: $1"
    cat out
    exit 1
}

cat >cecl-run <<'END'
#!/bin/sh
[ "$1 $2" = "--policy auto" ] || exit 9
shift 2
PRETEND=cecl exec "$@"
END
# pretend NAME NCCL_US CECL_US WRONG STATUS: its second size takes that long, in place twice as long
pretend() {
    cat >"$1_perf" <<END
#!/bin/sh
[ "\$1 \$2 \$3 \$4" = "-b 8 -g 2" ] || exit 9
us=$2
[ "\$PRETEND" = cecl ] && us=$3
echo "#  size count type redop root time algbw busbw #wrong time algbw busbw #wrong"
echo "      0  0 float none -1  0.10  0.00  0.00  0  0.10  0.00  0.00 N/A"
echo "   1024  256 float none -1  10.0  0.10  0.10  0  10.0  0.10  0.10 N/A"
echo "   2048  512 float none -1  \$us.0  0.10  0.10  $4  2\$us.0  0.10  0.10 N/A"
exit $5
END
    chmod +x "$1_perf"
}
chmod +x cecl-run
pretend fine 20 10 0 0
pretend slow 20 21 0 0
pretend wrong 20 20 3 1
pretend dead 20 20 0 5

# status WANTED OP [OPTION ...]
status() {
    local wanted=$1 op=$2
    shift 2
    python3 "$tool" --programs . --cecl-run ./cecl-run --one-process --rounds 2 "$@" "$op" -- -b 8 >out 2>&1
    local got=$?
    [ $got -eq "$wanted" ] || fail "$op $*: $got, not $wanted"
}
says() { grep -q "$1" out || fail "no line '$1'"; }

status 0 fine --most 1.03 --json fine.json
says 'fine  *2048 bytes out  nccl  *20.00 us  cecl  *10.00 us  nccl / cecl 2.000$'
says 'fine: 4 sizes, 2 at least 1.03 x faster, 0 over; wrong: nccl 0, cecl 0'
python3 -c 'import json; rows = json.load(open("fine.json"))["ops"]["fine"]["rows"]
assert [row["rounds"]["cecl"] for row in rows if row["bytes"] == 2048] == [[210.0, 210.0], [10.0, 10.0]], rows' ||
    fail "fine.json"
status 0 slow
status 1 slow --most 1.03
says 'slow  *2048 bytes out .*  over$'
status 1 wrong
says 'wrong: nccl 2, cecl 2'
status 1 dead
says 'dead_perf -b 8 -g 2: ended with 5'
status 2 absent
says 'no program absent_perf'
