"""An all-reduce by the program's own Triton kernel, which reads the memory of all ranks.

    torchrun --nproc-per-node 2 examples/pytorch/one_shot_triton.py
    CECL_SHARE_GPU=1 torchrun --nproc-per-node 2 examples/pytorch/one_shot_triton.py          # on one GPU
    torchrun --nproc-per-node 2 examples/pytorch/one_shot_triton.py --symm-mem torch          # by torch's module

With torch's module only the import differs. The exit code is 1 if an element was wrong, or if a peer did not come.
"""

import argparse
import os
import sys

import torch
import torch.distributed as dist
import triton
import triton.language as tl

BLOCK, PATIENCE = 1024, 100_000_000  # elements of a Triton program; tries after which a peer counts as late


@triton.jit
def swap(word, old, new, patience):
    """Writes `new` to a word of a signal pad once the word is `old`. Gives up after `patience` tries, and returns false:
    nothing else would end a kernel that waits for a dead peer."""
    tries = 0
    while (tl.atomic_cas(word, old, new, sem="acq_rel", scope="sys") != old) & (tries < patience):
        tries += 1
    return tries < patience


@triton.jit
def meet(pads, rank, ranks: tl.constexpr, patience):
    """Waits until the Triton program with this number has come here on all ranks. Returns how many waits gave up. For each
    pair of ranks both pads have a word, which is 0 before and after the call."""
    tl.debug_barrier()  # all threads of the program have loaded and stored
    late = 0
    words = tl.program_id(0) * ranks
    for peer in range(ranks):
        theirs = tl.load(pads + peer).to(tl.pointer_type(tl.int32))
        late += tl.where(swap(theirs + words + rank, 0, 1, patience), 0, 1)
    mine = tl.load(pads + rank).to(tl.pointer_type(tl.int32))
    for peer in range(ranks):
        late += tl.where(swap(mine + words + peer, 1, 0, patience), 0, 1)
    tl.debug_barrier()
    return late


@triton.jit
def one_shot(buffers, pads, out, late, count, rank, ranks: tl.constexpr, block: tl.constexpr, patience):
    buffers = buffers.to(tl.pointer_type(tl.int64))
    pads = pads.to(tl.pointer_type(tl.int64))
    missed = meet(pads, rank, ranks, patience)
    at = tl.program_id(0) * block + tl.arange(0, block)
    total = tl.zeros([block], tl.float32)
    for peer in range(ranks):
        theirs = tl.load(buffers + peer).to(tl.pointer_type(tl.bfloat16))
        total += tl.load(theirs + at, at < count).to(tl.float32)
    tl.store(out + at, total, at < count)
    missed += meet(pads, rank, ranks, patience)  # no rank overwrites its buffer while others still read it
    tl.store(late + tl.program_id(0), missed)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--symm-mem", choices=("cecl", "torch"), default="cecl")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    if args.symm_mem == "cecl":
        from cecl import symm_mem
    else:
        from torch.distributed import _symmetric_memory as symm_mem

    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()

    tensor = symm_mem.empty(args.count, dtype=torch.bfloat16, device=device)
    handle = symm_mem.rendezvous(tensor, dist.group.WORLD.group_name)
    programs = triton.cdiv(args.count, BLOCK)
    out, late = torch.empty(args.count, device=device), torch.full((programs,), 1, dtype=torch.int32, device=device)
    assert programs * ranks * 4 <= handle.signal_pad_size, "fewer elements expected: a signal pad has too few words"

    wrong = 0
    for step in range(args.steps):
        # integers that bf16 holds exactly; fp32 holds their sums exactly
        parts = [torch.randint(-200, 200, (args.count,), generator=torch.Generator().manual_seed(100 * step + r))
                 for r in range(ranks)]
        tensor.copy_(parts[rank])
        out.fill_(float("nan"))
        one_shot[(programs,)](handle.buffer_ptrs_dev, handle.signal_pad_ptrs_dev, out, late, args.count, rank, ranks, BLOCK,
                              PATIENCE)
        wrong += int((out.cpu() != sum(parts)).sum()) + int(late.sum())
    wrong += int(handle.get_signal_pad(rank).cpu().view(torch.int32).count_nonzero())
    print(f"rank {rank} of {ranks}: {args.steps} sums of {args.count} elements by {args.symm_mem}'s handles, {wrong} wrong",
          flush=True)
    dist.barrier()
    dist.destroy_process_group()
    sys.exit(wrong > 0)


main()
