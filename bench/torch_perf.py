#!/usr/bin/env python3
"""Times what cecl's Python package offers against PyTorch's own way by NCCL, both in one process, in turn.

    torchrun --nproc-per-node 2 bench/torch_perf.py fsdp --batch 1
    torchrun --nproc-per-node 2 bench/torch_perf.py ulysses
    CECL_SM_POLICY=allow torchrun --nproc-per-node 2 bench/torch_perf.py ulysses
    cecl-run --policy all torchrun --nproc-per-node 2 bench/torch_perf.py fsdp --sides nccl,nccl-free

fsdp     a step of examples/pytorch/fsdp2.py's model: fp32 parameters, computed in bfloat16. Sides: nccl (gradients are
         sent and added as fp32), cecl (cecl.fsdp.use) and nccl16 (gradients are sent and added as bfloat16). A side
         like nccl-free also returns the memory that it does not use to the driver after each step
ulysses  brings tensors of 32 heads of 128, bfloat16, to the layout of attention and back, forward and backward. The
         forward exchange is also timed in a CUDA graph and beside a matrix product. Sides: cecl (cecl.ulysses) and nccl
         (permute, all_to_all_single, permute)

A time is the slowest rank's, and the median over rounds. Exits with 1 if a result is wrong.
"""

import argparse
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as functional
from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../examples/pytorch"))
from fsdp2 import Block  # noqa: E402


def slowest(times):
    """The slowest rank's value of each time."""
    return tensor_of(times, dist.ReduceOp.MAX)


def tensor_of(numbers, op):
    tensor = torch.tensor(numbers, device="cuda", dtype=torch.float64)
    dist.all_reduce(tensor, op=op)
    return tensor.tolist()


def say(*words):
    if dist.get_rank() == 0:
        print(*words, flush=True)


# ---- fsdp


class Side:
    """A model with a training of its own; all sides have the same parameters and data."""

    def __init__(self, name, args):
        self.frees = name.endswith("-free")
        name = name.removesuffix("-free")
        torch.manual_seed(1)
        with torch.device("cuda"):
            blocks = [Block(args.width, args.width // 128) for _ in range(args.blocks)]
        self.model = torch.nn.Sequential(*blocks)
        reduced = torch.bfloat16 if name == "nccl16" else torch.float32
        for module in [*self.model, self.model]:
            fully_shard(module, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduced))
        if name == "cecl":
            from cecl import fsdp
            fsdp.use(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.losses, self.times = [], []

    def steps(self, count, x, target):
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        marks[0].record()
        for mark in marks[1:]:
            loss = functional.mse_loss(self.model(x).float(), target)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.losses.append(loss.detach())
            if self.frees:
                torch.cuda.empty_cache()
            mark.record()
        torch.cuda.synchronize()
        self.times.append(slowest([a.elapsed_time(b) for a, b in zip(marks, marks[1:])]))


def time_fsdp(args):
    sides = {name: Side(name, args) for name in args.sides.split(",")}
    torch.manual_seed(100 + dist.get_rank())
    shape = (args.batch, args.sequence, args.width)
    x, target = torch.randn(shape, device="cuda", dtype=torch.bfloat16), torch.randn(shape, device="cuda")
    for _ in range(args.rounds):
        for side in sides.values():
            side.steps(args.steps, x, target)
    losses = {name: tensor_of(torch.stack(side.losses).tolist(), dist.ReduceOp.AVG) for name, side in sides.items()}
    first = next(iter(sides))
    # The first round is left out, and the first two steps of each round, in which memory and clocks settle after
    # another side's steps.
    rounds = {name: [statistics.median(times[2:]) for times in side.times[1:]] for name, side in sides.items()}
    say(f"batch {args.batch}, {args.rounds} rounds of {args.steps} steps, {dist.get_world_size()} GPUs")
    for name, times in rounds.items():
        apart = max(abs(a - b) for a, b in zip(losses[name], losses[first]))
        say(f"{name:8} {statistics.median(times):7.2f} ms ({min(times):.2f} to {max(times):.2f}), "
            f"{statistics.median(rounds[first]) / statistics.median(times):.3f} x {first}; last loss {losses[name][-1]:.6f}, "
            f"at most {apart:.2g} from {first}'s")
    return all(torch.tensor(each).isfinite().all() and each[-1] < each[0] for each in losses.values())


# ---- ulysses


def permuted(x, ranks, split, join):
    """What programs do without cecl: dimension `split` is spread over the ranks, and `join` is gathered."""
    parts = x.unflatten(split, (ranks, -1)).movedim(split, 0).contiguous()
    got = torch.empty_like(parts)
    dist.all_to_all_single(got, parts)
    return got.movedim(0, join).flatten(join, join + 1)


class Permuted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, split, join):
        ctx.dims = split, join
        return permuted(x, dist.get_world_size(), split, join)

    @staticmethod
    def backward(ctx, gradient):
        split, join = ctx.dims
        return permuted(gradient, dist.get_world_size(), join, split), None, None


def elapsed(work, count):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    dist.barrier()
    torch.cuda.synchronize()
    begin.record()
    for _ in range(count):
        work()
    end.record()
    torch.cuda.synchronize()
    return slowest([begin.elapsed_time(end) / count * 1000])[0]


def captured(work, count):
    """Captures `count` calls, so that the host spends no time on each. Returns the graph and the last call's result."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            result = work()
    return graph, result


def beside(product, exchange, stream):
    """Starts a matrix product and an exchange at one event. Returns the us until the product is done, and until both are."""
    begin, end, both = (torch.cuda.Event(enable_timing=True) for _ in range(3))
    dist.barrier()
    torch.cuda.synchronize()
    product()
    begin.record()
    stream.wait_event(begin)
    with torch.cuda.stream(stream):
        exchange()
    product()
    end.record()
    torch.cuda.current_stream().wait_stream(stream)
    both.record()
    torch.cuda.synchronize()
    return slowest([begin.elapsed_time(end) * 1000, begin.elapsed_time(both) * 1000])


def time_ulysses(args):
    from cecl import torch_backend, ulysses  # noqa: F401
    group = dist.new_group(backend="cecl")
    ranks, heads, dim = dist.get_world_size(), 32, 128
    away = {"cecl": lambda x: ulysses.scatter_heads(x, group=group), "nccl": lambda x: Permuted.apply(x, 2, 1)}
    back = {"cecl": lambda x: ulysses.gather_heads(x, group=group), "nccl": lambda x: Permuted.apply(x, 1, 2)}
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.float16) for _ in range(2))
    c, stream, good = torch.empty_like(a), torch.cuda.Stream(), True

    def product():
        torch.matmul(a, b, out=c)

    say(f"batch {args.batch}, {ranks} GPUs, CECL_SM_POLICY={os.environ.get('CECL_SM_POLICY', 'reduce_only')}; us")
    for sequence in (8192, 16384, 32768, 65536):
        x = torch.randn(args.batch, sequence // ranks, heads, dim, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        gradient = torch.randn_like(x)
        rows = {side: {"away": [], "graph": [], "round": [], "round_graph": [], "product": [], "both": []} for side in away}
        alone = []
        for side in away:
            y = back[side](away[side](x))
            y.backward(gradient)
            good &= torch.equal(away["cecl"](x), away["nccl"](x)) and torch.equal(y, x) and torch.equal(x.grad, gradient)
            x.grad = None
        still = x.detach()
        graphs = {side: captured(lambda: away[side](still), 20) for side in away}  # noqa: B023
        for graph, result in graphs.values():
            result.zero_()
            graph.replay()
            good &= torch.equal(result, away["nccl"](still))
        leaf = still.clone().requires_grad_()  # used in the graphs alone, so no other stream accumulates its gradient

        def there_and_back(side, x):
            return torch.autograd.grad(back[side](away[side](x)), x, gradient)[0]  # noqa: B023

        rounds = {side: captured(lambda: there_and_back(side, leaf), 10) for side in away}  # noqa: B023
        for graph, result in rounds.values():
            result.zero_()
            graph.replay()
            good &= torch.equal(result, gradient)
        for number in range(args.rounds + 2):
            alone.append(beside(product, lambda: None, stream)[0])
            for side, row in rows.items():
                row["away"].append(elapsed(lambda: away[side](still), 20))  # noqa: B023
                row["graph"].append(elapsed(graphs[side][0].replay, 1) / 20)
                row["round"].append(elapsed(lambda: there_and_back(side, x), 20))  # noqa: B023
                row["round_graph"].append(elapsed(rounds[side][0].replay, 1) / 10)
                times = beside(product, lambda: away[side](still), stream)  # noqa: B023
                row["product"].append(times[0])
                row["both"].append(times[1])
        middle = {side: {what: statistics.median(times[2:]) for what, times in row.items()} for side, row in rows.items()}
        lone = statistics.median(alone[2:])
        for side, row in middle.items():
            say(f"sequence {sequence:6}  {side}  away {row['away']:8.1f}, in a graph {row['graph']:8.1f}  away, back and backward {row['round']:8.1f}, "
                f"in a graph {row['round_graph']:8.1f}  product beside it {row['product'] / lone:.3f} x alone  both {row['both'] / lone:.3f} x")
        say(f"sequence {sequence:6}  nccl / cecl: away {middle['nccl']['away'] / middle['cecl']['away']:.3f}, in a graph "
                f"{middle['nccl']['graph'] / middle['cecl']['graph']:.3f}, away, back and "
            f"backward {middle['nccl']['round'] / middle['cecl']['round']:.3f}, in a graph "
            f"{middle['nccl']['round_graph'] / middle['cecl']['round_graph']:.3f}")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("fsdp", "ulysses"))
    parser.add_argument("--sides", default="nccl,cecl,nccl16", help="of fsdp, with commas; the first is what others are compared with")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=25, help="of fsdp, in a round")
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--sequence", type=int, default=2048, help="of fsdp")
    args = parser.parse_args()
    for name in args.sides.split(","):
        if name.removesuffix("-free") not in ("nccl", "cecl", "nccl16"):
            parser.error(f"--sides: {name}: nccl, cecl or nccl16 expected, or one of them with -free")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    good = {"fsdp": time_fsdp, "ulysses": time_ulysses}[args.what](args)
    dist.barrier()
    dist.destroy_process_group()
    return 0 if good else "a result is wrong"


if __name__ == "__main__":
    sys.exit(main())
