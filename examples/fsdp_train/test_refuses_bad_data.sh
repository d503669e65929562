#!/usr/bin/env bash
# A text that is missing, empty, too short, or no plain file ends every rank with 1 and a message
# that says so. So does a report that cannot be written. EXAMPLE MPIRUN...
# shellcheck source=examples/fsdp_train/test_common.sh
. "$(dirname "$0")/test_common.sh"

: >"$work/empty"
head -c 19 /dev/zero >"$work/19"
head -c 20 /dev/zero >"$work/20"
refuses 2 1 "--data $work/missing: No such file" --data "$work/missing"
refuses 2 1 "--data $work/empty: 0 bytes; 20 at least expected" --data "$work/empty" --batch 2
refuses 2 1 "--data $work/19: 19 bytes; 20 at least expected" --data "$work/19" --batch 2
refuses 2 1 "--data $work: a plain file expected" --data "$work"
run 2 --data "$work/20" --batch 2 --steps 1 # just long enough
refuses 2 1 "--json $work/no/such: No such file" --json "$work/no/such" --steps 1

# One rank alone cannot read its text: the other does not wait for it.
cp "$work/20" "$work/rank-0"
# shellcheck disable=SC2016 # the rank's own shell fills it in
each='"$@" --data "$0-$OMPI_COMM_WORLD_RANK"; echo "ended with $?"'
output=$(timeout 200 "${mpirun[@]}" -n 2 sh -c "$each" "$work/rank" "$example" "${tiny[@]}" \
    --batch 2 2>&1)
[ "$(grep -c '^ended with 1$' <<<"$output")" -eq 2 ] || fail "one rank without a text:" "$output"
grep -qF "rank-1: No such file" <<<"$output" || fail "not said:" "$output"
