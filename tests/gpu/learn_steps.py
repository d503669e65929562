"""Programs on whose steps cecl makes trials, for scripts/measure_learn.py. torchrun starts them, with cecl in NCCL's place.

    torchrun --nproc-per-node 2 tests/gpu/learn_steps.py train --steps 160 --json FILE
    torchrun --nproc-per-node 2 tests/gpu/learn_steps.py loop --steps 2000 --json FILE

train: a small transformer that FSDP2 shards (examples/pytorch/fsdp2.py), with deterministic kernels. FILE gets each
rank's losses and a hash of all bits of its parameters.
loop: two streams with a process group each. Their gathers take less time than the host needs to enqueue them.

With CECL_SHARE_GPU=1 ranks may share a GPU.
"""

import argparse
import hashlib
import json
import os
import sys
import time

RANK = int(os.environ["LOCAL_RANK"])
if os.environ.get("CECL_SHARE_GPU") == "1":
    os.environ["NCCL_HOSTID"] = f"rank {RANK}"  # NCCL accepts ranks that share a GPU if they seem to be on different hosts
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic results
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/pytorch"))
import fsdp2  # noqa: E402

DEVICE = torch.device("cuda", RANK % torch.cuda.device_count())


def hash_of(model):
    """Returns a hash of the bits of this rank's part of the parameters."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.to_local().detach().contiguous().view(torch.uint8).cpu().numpy().tobytes())
    return digest.hexdigest()


def train(args):
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)
    shape = argparse.Namespace(blocks=4, width=512, heads=8, group_memory=False, alone=False)
    torch.manual_seed(1)  # the same parameters on all ranks
    model = fsdp2.make_model(shape, DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(2 + RANK)  # this rank's own data
    x = torch.randn((1, 128, 512), device=DEVICE, dtype=torch.bfloat16)
    target = torch.randn((1, 128, 512), device=DEVICE)
    losses, times = [], []
    for _ in range(args.steps):
        begun = time.perf_counter()
        losses.append(fsdp2.take_step(model, optimizer, x, target))
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    mean = torch.stack(losses)
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    torch.cuda.synchronize()
    last = sorted(times[-20:])[10]
    return {"losses": mean.tolist(), "hash": hash_of(model), "step_ms": 1e3 * last}


def loop(args):
    """The host makes each gather right after a small kernel on the same stream, so it is never far ahead of the GPU."""
    groups = [dist.new_group(), dist.new_group()]
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    mine = [torch.full((16384,), float(RANK), device=DEVICE) for _ in groups]
    out = [torch.empty(16384 * dist.get_world_size(), device=DEVICE) for _ in groups]
    wrong = 0
    for group, one, whole in zip(groups, mine, out):
        dist.all_gather_into_tensor(whole, one, group=group)
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for step in range(args.steps):
        for group, stream, one, whole in zip(groups, streams, mine, out):
            with torch.cuda.stream(stream):
                one.add_(1)
                dist.all_gather_into_tensor(whole, one, group=group)
        if step % 50 == 49:  # lets the streams become idle
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begun
    for whole in out:
        wanted = [float(rank + args.steps) for rank in range(dist.get_world_size())]
        wrong += sum(int((part != value).sum()) for part, value in zip(whole.chunk(len(wanted)), wanted))
    return {"us": 1e6 * seconds / args.steps, "wrong": wrong}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["train", "loop"])
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--json", metavar="FILE", required=True)
    args = parser.parse_args()
    torch.cuda.set_device(DEVICE)
    dist.init_process_group("nccl", device_id=DEVICE)
    got = train(args) if args.what == "train" else loop(args)
    of_ranks = [None] * dist.get_world_size()
    gloo = dist.new_group(backend="gloo")  # gloo, so that this exchange is not measured
    dist.all_gather_object(of_ranks, got, group=gloo)
    if RANK == 0:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(of_ranks, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
