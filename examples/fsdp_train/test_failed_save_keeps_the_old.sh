#!/usr/bin/env bash
# When one rank cannot write its file, all ranks end with 1 and a message that says why. The
# previous checkpoint stays whole, and a training resumes from it exactly. EXAMPLE MPIRUN...
# shellcheck source=examples/fsdp_train/test_common.sh
. "$(dirname "$0")/test_common.sh"

kept=$work/kept
run 2 --steps 8 --json "$work/through"
run 2 --steps 4 --checkpoint "$kept"

# A full disk, for rank 1 alone.
full=$kept/step-00000008-rank-1-of-2.new
ln -s /dev/full "$full"
refuses 2 1 "checkpoint $full: No space left on device" --steps 8 --checkpoint "$kept" --resume
[ ! -e "$full" ] || fail "$full is left behind"
# And a full disk for the name of the step.
ln -s /dev/full "$kept/latest.new"
refuses 2 1 "checkpoint $kept/latest.new: No space left on device" --steps 8 --checkpoint "$kept" \
    --resume
run 2 --steps 8 --checkpoint "$kept" --resume --json "$work/resumed"
cmp <(losses "$work/through" | tail -n 4) <(losses "$work/resumed") || fail "the old one is damaged"
