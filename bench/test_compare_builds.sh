#!/usr/bin/env bash
# test_compare_builds.sh COMPARE_BUILDS.PY: the script must run both builds in turn, once in each round, compare
# runs of the same round in each size and placement, and report a run that fails.
set -u
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
compare=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "$*"; exit 1; }

# build NAME US...: makes a build whose cecl_perf notes that it ran. Out of place it reports the given us, one for
# each round; in place always the number of letters in NAME.
build() {
    local name=$1
    shift
    mkdir -p "$dir/$name/bench"
    printf '%s\n' "$@" >"$dir/$name/times"
    cat >"$dir/$name/bench/cecl_perf" <<END
#!/bin/sh
for file; do :; done
case " \$* " in *" --op broken "*) echo "cecl_perf: broken" >&2; exit 3 ;; esac
echo $name >>$dir/order
us=\$(head -n 1 $dir/$name/times)
sed -i 1d $dir/$name/times
row() { echo "{\"bytes\": 4096, \"in_place\": \$1, \"us\": {\"cecl\": \$2, \"nccl\": 5}}"; }
in_place=", \$(row true ${#name})"
case "\$*" in *--out-of-place*) in_place= ;; esac
echo "{\"rows\": [\$(row false \$us)\$in_place]}" >"\$file"
END
    chmod +x "$dir/$name/bench/cecl_perf"
}
# A launcher that drops "-n RANKS" and runs the rest of its arguments.
printf '#!/bin/sh\nshift 2\nexec "$@"\n' >"$dir/launch"
chmod +x "$dir/launch"

# Both builds take twice as long in the second round. Within rounds the ratios are 0.8, 0.8 and 1.25.
build one 10 20 8
build two 8 16 10
output=$(python3 "$compare" "$dir/one" "$dir/two" --rounds 3 --case "--op x" -- "$dir/launch" 2>&1) || fail "$output"
grep -qF "| --op x | 4096 | out | cecl | 10.00 | 10.00 | 0.928 [" <<<"$output" || fail "not the ratio within rounds: $output"
grep -qF "| --op x | 4096 | out | nccl | 5.00 | 5.00 | 1.000 [1.000, 1.000] |" <<<"$output" || fail "no other side: $output"
grep -qF "| --op x | 4096 | in | cecl | 3.00 | 3.00 | 1.000 [1.000, 1.000] |" <<<"$output" || fail "no other placement: $output"
[ "$(tr '\n' ' ' <"$dir/order")" = "one two two one one two " ] || fail "not in turn: $(cat "$dir/order")"

build one 10 10
build two 10 10
output=$(python3 "$compare" "$dir/one" "$dir/two" --rounds 2 --case "--op x" --case "--op broken" -- "$dir/launch" 2>&1) &&
    fail "a broken run is no failure: $output"
grep -qF "ended with 3: cecl_perf: broken" <<<"$output" || fail "not told: $output"
grep -qF "| --op x | 4096 | out | cecl | 10.00 |" <<<"$output" || fail "the other case is lost: $output"

build one 10
build two 10
# Each case of build two lacks the placement "in".
sed -i 's/--out-of-place/x/' "$dir/two/bench/cecl_perf"
output=$(python3 "$compare" "$dir/one" "$dir/two" --rounds 1 --case "--op x" -- "$dir/launch" 2>&1) &&
    fail "what one build alone measures is no failure: $output"
grep -qF -- "--op x: 4096 in cecl: measured by one build alone" <<<"$output" || fail "not told: $output"
