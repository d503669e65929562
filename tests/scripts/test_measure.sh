#!/usr/bin/env bash
# test_measure.sh SCRATCH_DIR: runs scripts/measure.sh with programs that only end with a given status. If one fails,
# the script must still run the others, and end with 1.
set -uo pipefail
root=$(cd -- "$(dirname -- "$0")/../.." && pwd)
scratch=$1
failed=0
rm -rf "$scratch"
mkdir -p "$scratch/bin" "$scratch/build/measure" "$scratch/cmocka"
cp -r "$root/scripts" "$scratch/scripts"

# Programs that fail if their arguments contain $BROKEN.
for program in nvidia-smi cmake ctest mpirun python3; do
    cat >"$scratch/bin/$program" <<'END'
#!/bin/sh
[ "$1" != -L ] || [ "${0##*/}" != nvidia-smi ] || echo "GPU 0: a GPU"
case "${0##*/} $* " in *"$BROKEN"*) exit 1 ;; esac
END
    chmod +x "$scratch/bin/$program"
done

# ends STATUS MODE...: while $BROKEN fails, measure.sh must end with STATUS. Leaves its output in $said.
ends() {
    local wanted=$1 status
    shift
    said=$(env PATH="$scratch/bin:$PATH" BROKEN="$BROKEN" CECL_CMOCKA_ROOT="$scratch/cmocka" "$scratch/scripts/measure.sh" "$@" 2>&1)
    status=$?
    [ "$status" -eq "$wanted" ] && return
    printf '%s, while "%s" fails: ended with %s:\n%s\n' "$*" "$BROKEN" "$status" "$said"
    failed=1
}

BROKEN="no program"
ends 0 tests
ends 0 full
ends 0 data
ends 0 only puts splits
BROKEN="ctest "
ends 1 tests
ends 1 full
BROKEN="--op put "
ends 1 only puts splits
[ "$(grep -c '^\$ cecl_perf --op' <<<"$said")" -eq 5 ] || { echo "not all were run: $said"; failed=1; }
grep -q '^FAILED: cecl_perf --op put -b 256 ' <<<"$said" || { echo "not told: $said"; failed=1; }
BROKEN="--op alltoall "
ends 1 full
BROKEN="--preset published "
ends 1 data
BROKEN="example_prefetch "
ends 1 full
BROKEN="example_fsdp_train "
ends 1 data
ends 1 train
exit $failed
