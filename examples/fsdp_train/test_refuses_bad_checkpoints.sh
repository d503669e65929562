#!/usr/bin/env bash
# A checkpoint of another training, or a damaged one, ends every rank with 1 and a message that says
# what is wrong; the checkpoint does not change. EXAMPLE MPIRUN...
# shellcheck source=examples/fsdp_train/test_common.sh
. "$(dirname "$0")/test_common.sh"

kept=$work/kept
here=(--checkpoint "$kept" --resume --steps 4)
refuses 2 1 "checkpoint $kept/latest: No such file" "${here[@]}"
run 2 --checkpoint "$kept" --steps 2
shard=$kept/step-00000002-rank-1-of-2
cp -r "$kept" "$work/good"
head -c 3000 /dev/urandom >"$work/text"

refuses 2 1 "checkpoint $kept/step-00000002-rank-0-of-2: made with --layers 2; this training has 3" \
    "${here[@]}" --layers 3
refuses 2 1 "checkpoint $shard: made with --width 32; this training has 40" "${here[@]}" --width 40
refuses 2 1 "checkpoint $shard: made with --heads 2; this training has 4" "${here[@]}" --heads 4
refuses 2 1 "checkpoint $shard: made with --sequence 16; " "${here[@]}" --sequence 24
refuses 2 1 "checkpoint $shard: made with --batch 4; " "${here[@]}" --batch 2
refuses 2 1 "checkpoint $shard: made with --seed 1; " "${here[@]}" --seed 2
refuses 2 1 "checkpoint $shard: made with a --data of bytes " "${here[@]}" --data "$work/text"
refuses 3 1 "checkpoint $kept: made by 2 ranks; as many expected, here are 3" "${here[@]}"
refuses 2 1 "--steps 1: the checkpoint has done 2 steps" "${here[@]}" --steps 1

truncate -s -1 "$shard"
refuses 2 1 "checkpoint $shard: cut short" "${here[@]}"
truncate -s 10 "$shard"
refuses 2 1 "checkpoint $shard: cut short" "${here[@]}"
: >"$shard"
refuses 2 1 "checkpoint $shard: cut short" "${here[@]}"
cp "$work/good/${shard##*/}" "$shard"
printf x >>"$shard"
refuses 2 1 "checkpoint $shard: damaged: more follows" "${here[@]}"
# One bit, in the middle of the parameters.
cp "$work/good/${shard##*/}" "$shard"
byte=$(od -An -tu1 -j 5000 -N 1 "$shard")
printf %b "\\x$(printf %x $((byte ^ 1)))" | dd of="$shard" bs=1 seek=5000 conv=notrunc status=none
refuses 2 1 "checkpoint $shard: damaged: its checksum is wrong" "${here[@]}"
rm "$shard"
refuses 2 1 "checkpoint $shard: No such file" "${here[@]}"
# One rank's file in the place of another rank's; and a file that is no checkpoint.
cp "$kept/step-00000002-rank-0-of-2" "$shard"
refuses 2 1 "checkpoint $shard: made with rank 0; this training has 1" "${here[@]}"
cp "$work/text" "$shard"
refuses 2 1 "checkpoint $shard: no checkpoint of this program" "${here[@]}"
cp "$work/good/${shard##*/}" "$shard"
truncate -s 8 "$kept/latest"
refuses 2 1 "checkpoint $kept/latest: cut short" "${here[@]}"
cp "$work/good/latest" "$kept/latest"
run 2 "${here[@]}" # whole again: it goes on
