#!/usr/bin/env bash
# tuning_file.sh CECL_INFO: cecl_info --tuning-file must print files that CECL_TUNING takes: the built-in table's
# file changes nothing, and a replaced row appears once.
info=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failed=0

"$info" --tuning-file >"$dir/built_in" || failed=1
CECL_TUNING=$dir/built_in "$info" --tuning-file | diff "$dir/built_in" - || failed=1

printf 'cecl-tuning 1\nreduction.reading_sms * any 5\n' >"$dir/one"
CECL_TUNING=$dir/one "$info" --tuning-file >"$dir/replaced" || failed=1
[ "$(grep -c '^reduction.reading_sms' "$dir/replaced")" -eq 1 ] || failed=1
grep -Eq '^reduction.reading_sms +[*] +any +5$' "$dir/replaced" || failed=1
CECL_TUNING=$dir/one "$info" --tuning | grep -q 'reduction.reading_sms .* 5 .*CECL_TUNING, line 2' || failed=1

# The values for 2 ranks on the host, as rows for just this setup.
"$info" --tuning-file --ranks 2 --device host >"$dir/of_two" || failed=1
grep -Eq '^small.all_reduce.max_bytes +2 +host +4KiB$' "$dir/of_two" || failed=1
CECL_TUNING=$dir/of_two "$info" --tuning-file --ranks 2 --device host | diff "$dir/of_two" - || failed=1
exit $failed
