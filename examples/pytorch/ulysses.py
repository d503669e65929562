"""Trains a small transformer whose sequences are spread over the ranks, and compares its losses with those of one rank.

    torchrun --nproc-per-node 2 examples/pytorch/ulysses.py
    CECL_SHARE_GPU=1 torchrun --nproc-per-node 2 examples/pytorch/ulysses.py --device cuda    # on one GPU

Each rank has a part of each sequence. Attention needs whole sequences. So `attend` first gives each rank whole
sequences, with only a part of the heads; after attention it reverses this exchange. The two exchanges replace
DeepSpeed's DistributedAttention, or permutations around all_to_all_single. Heads and sequences need not be multiples
of the number of ranks.
"""

import argparse
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as functional
from torch import nn

import cecl.torch_backend  # noqa: F401
from cecl import ulysses


def attend(query, key, value, sequence, heads, spread):
    """Attention of tensors [batch, sequence, heads, dim]."""
    if spread:
        query, key, value = (ulysses.scatter_heads(tensor, sequence) for tensor in (query, key, value))
    query, key, value = (tensor.transpose(1, 2) for tensor in (query, key, value))
    seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2)
    return ulysses.gather_heads(seen, heads) if spread else seen


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.three, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, sequence, spread):
        three = self.three(self.before(x)).unflatten(-1, (3, self.heads, -1))
        x = x + self.out(attend(*three.unbind(2), sequence, self.heads, spread).flatten(-2))
        return x + self.down(functional.gelu(self.up(self.after(x))))


def train(args, device, spread):
    """Returns the losses. spread: whether this rank computes only its part of each sequence, or all of it, as one rank
    alone would."""
    torch.manual_seed(args.seed)  # equal parameters and data on all ranks
    blocks = nn.ModuleList(Block(args.width, args.heads) for _ in range(args.blocks)).to(device)
    whole = torch.randn(args.batch, args.sequence, args.width)
    x, target = (tensor.to(device) for tensor in (whole, whole.roll(1, 1)))
    if spread:
        x, target = (tensor.tensor_split(dist.get_world_size(), 1)[dist.get_rank()] for tensor in (x, target))
    optimizer = torch.optim.SGD(blocks.parameters(), lr=args.rate)
    losses = []
    for _ in range(args.steps):
        y = x
        for block in blocks:
            y = block(y, args.sequence, spread)
        loss = functional.mse_loss(y, target, reduction="sum") / whole.numel()
        loss.backward()
        if spread:
            for tensor in [loss.detach(), *(parameter.grad for parameter in blocks.parameters())]:
                dist.all_reduce(tensor)
        losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
    return torch.tensor(losses)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--width", type=int, default=60)
    parser.add_argument("--heads", type=int, default=5)
    parser.add_argument("--sequence", type=int, default=33, help="tokens in a sequence")
    parser.add_argument("--batch", type=int, default=2, help="sequences")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rate", type=float, default=0.5, help="learning rate")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    device = torch.device("cpu")
    if args.device == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    dist.init_process_group("cecl")
    spread, alone = train(args, device, True), train(args, device, False)
    if dist.get_rank() == 0:
        for step, (mine, one) in enumerate(zip(spread.tolist(), alone.tolist())):
            print(f"step {step}: loss {mine:.6f}, on one rank {one:.6f}")
    good = torch.allclose(spread, alone, rtol=1e-4) and bool(alone[-1] < alone[0])
    dist.barrier()
    dist.destroy_process_group()
    return 0 if good else "the losses are not those of one rank, or do not fall"


if __name__ == "__main__":
    sys.exit(main())
