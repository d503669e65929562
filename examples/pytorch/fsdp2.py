"""Times the training step of a transformer that PyTorch's FSDP2 shards. The program does not depend on cecl.

    torchrun --nproc-per-node 2 examples/pytorch/fsdp2.py
    cecl-run --policy all --stats torchrun --nproc-per-node 2 examples/pytorch/fsdp2.py

The first command runs it with NCCL, the second one with cecl instead of NCCL. The model has 12 blocks of
width 4096, 2.4 billion parameters, in bfloat16. Each block is sharded on its own, so a step gathers 12
blocks in the forward pass and again in the backward pass, and reduces and scatters 12 gradients. With
--no-bytes these collectives do nothing: the step's time is then the least that any library can reach.
"""

import argparse
import json
import os
import statistics

import torch
import torch.distributed as dist
import torch.nn.functional as functional
from torch import nn
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    """A block of a transformer: 12 * width^2 parameters in matrices."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before = nn.LayerNorm(width)
        self.attend = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.after = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        batch, sequence, width = x.shape
        three = self.attend(self.before(x)).view(batch, sequence, 3, self.heads, -1)
        query, key, value = three.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, sequence, width))
        return x + self.down(functional.gelu(self.up(self.after(x))))


class NoBytes:
    """Collectives that do nothing. Their buffers hold random numbers, because GEMMs may be faster with zeros."""

    def __init__(self):
        self.buffers = {}

    def allocate(self, size, *, dtype, device):
        key = (*size, dtype)
        if key not in self.buffers:
            self.buffers[key] = torch.randn(size, dtype=dtype, device=device) / 100
        return self.buffers[key]

    def __call__(self, **_):
        return None


def make_model(args, device):
    with torch.device(device):
        blocks = [Block(args.width, args.heads).to(torch.bfloat16) for _ in range(args.blocks)]
    model = nn.Sequential(*blocks)
    for module in [*model, model]:
        fully_shard(module)
    if args.group_memory:
        for module in [model, *model]:
            module.set_allocate_memory_from_process_group_for_comm(True)
    if args.no_bytes:
        gather, scatter = NoBytes(), NoBytes()
        for block in model:
            block.set_custom_all_gather(gather)
            block.set_custom_reduce_scatter(scatter)
    return model


def take_step(model, optimizer, x, target):
    loss = functional.mse_loss(model(x).float(), target)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def run(args, rank, device):
    torch.manual_seed(args.seed)  # the same parameters on all ranks
    model = make_model(args, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.rate)
    torch.manual_seed(args.seed + 1 + rank)  # data of this rank's own
    shape = (args.batch, args.sequence, args.width)
    x = torch.randn(shape, device=device, dtype=torch.bfloat16)
    target = torch.randn(shape, device=device)

    losses, marks = [], []
    for _ in range(args.warm + args.steps):
        mark = torch.cuda.Event(enable_timing=True)
        mark.record()
        marks.append(mark)
        losses.append(take_step(model, optimizer, x, target))
    end = torch.cuda.Event(enable_timing=True)
    end.record()
    torch.cuda.synchronize()
    marks.append(end)
    times = [a.elapsed_time(b) for a, b in zip(marks, marks[1:])][args.warm :]
    return times, torch.stack(losses)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--sequence", type=int, default=2048, help="tokens in a sequence")
    parser.add_argument("--batch", type=int, default=2, help="sequences on each rank")
    parser.add_argument("--steps", type=int, default=20, help="steps that are timed")
    parser.add_argument("--warm", type=int, default=5, help="steps before the timed ones")
    parser.add_argument("--rate", type=float, default=0.1, help="learning rate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--group-memory",
        action="store_true",
        help="communicate from memory of ncclMemAlloc (set_allocate_memory_from_process_group_for_comm)",
    )
    parser.add_argument("--no-bytes", action="store_true", help="FSDP2's collectives do nothing")
    parser.add_argument("--json", metavar="FILE", help="write the slowest rank's times, and the losses")
    args = parser.parse_args()

    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank = dist.get_rank()
    times, losses = run(args, rank, device)
    dist.all_reduce(losses, op=dist.ReduceOp.AVG)
    slowest = torch.tensor(times, device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    times = slowest.tolist()
    if rank == 0 and args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            measured = {"step_ms": times, "losses": losses.tolist(), "ranks": dist.get_world_size()}
            json.dump({**measured, **vars(args)}, file)
    if rank == 0:
        shown = ", ".join(f"{loss:.5f}" for loss in losses[:: max(1, len(losses) // 5)].tolist())
        print(f"a step: {statistics.median(times):.1f} ms (median of {len(times)}); losses: {shown}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
