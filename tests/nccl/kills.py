"""Kills one of two ranks during a training step, many times, and measures how soon the other rank ends.

    cecl-run --policy all python3 tests/nccl/kills.py [--times 50]
    python3 tests/nccl/kills.py        the same with only NCCL

Prints a line for each kill, then the counts. The status is 0 if each remaining rank ended within
--limit seconds by itself, through an exception or through PyTorch's watchdog.
"""

import argparse
import os
import random
import signal
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as functional
from torch import nn
from torch.distributed.fsdp import fully_shard

WARM_STEPS = 3


def train(rank, ready):
    """Trains forever, and reports once that the first steps are done."""
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", rank=rank, world_size=2, device_id=device)
    blocks = [nn.Linear(4096, 4096, bias=False, device=device, dtype=torch.bfloat16) for _ in range(8)]
    for block in blocks:
        fully_shard(block)
    model = fully_shard(nn.Sequential(*blocks))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn((2048, 4096), device=device, dtype=torch.bfloat16)
    step = 0
    while True:
        loss = functional.mse_loss(model(x).float(), x.float())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        step += 1
        if step == WARM_STEPS:
            os.write(ready, b"r")


def run_rank(rank, port, ready, words):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    try:
        train(rank, ready)
    except BaseException as error:  # any exception: its text is the result
        os.write(words, str(error).encode()[:4000])
        os._exit(3)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start_rank(rank, port):
    """Forks a rank. Only the child initializes CUDA and NCCL. Returns its process and the ends of two pipes."""
    ready, tell_ready = os.pipe()
    words, tell_words = os.pipe()
    child = os.fork()
    if child == 0:
        run_rank(rank, port, tell_ready, tell_words)
    os.close(tell_ready)
    os.close(tell_words)
    return child, ready, words


def wait_for(child, limit):
    """Returns the status of a process that ends within `limit` seconds, or None."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done == child:
            return status
        time.sleep(0.0005)
    return None


def kill_one(limit):
    """Kills a rank once. Returns whether the other rank ended, after how many seconds, and its error text."""
    port = free_port()
    ranks = [start_rank(rank, port) for rank in range(2)]
    for rank, (_, ready, words) in enumerate(ranks):
        if os.read(ready, 1) != b"r":
            for child, _, _ in ranks:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            text = os.read(words, 4000).decode(errors="replace")
            sys.exit(f"rank {rank} ended before its first steps were done: {text}")
    time.sleep(random.uniform(0, 0.05))
    os.kill(ranks[1][0], signal.SIGKILL)
    start = time.monotonic()
    os.waitpid(ranks[1][0], 0)
    status = wait_for(ranks[0][0], limit)
    took = time.monotonic() - start
    if status is None:
        os.kill(ranks[0][0], signal.SIGKILL)
        os.waitpid(ranks[0][0], 0)
    text = os.read(ranks[0][2], 4000).decode(errors="replace")
    for _, ready, words in ranks:
        os.close(ready)
        os.close(words)
    return status is not None, took, text or f"status {status}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--limit", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    random.seed(args.seed)
    all_took = []
    for time_number in range(args.times):
        ended, took, words = kill_one(args.limit)
        line = " ".join(words.split())[:150]
        print(f"{time_number}: {'ended' if ended else 'HUNG'} after {took:.3f} s: {line}", flush=True)
        if ended:
            all_took.append(took)
    median = statistics.median(all_took) if all_took else float("nan")
    longest = max(all_took, default=float("nan"))
    print(f"{len(all_took)} of {args.times} ended by themselves; median {median:.3f} s, longest {longest:.3f} s")
    sys.exit(0 if len(all_took) == args.times else 1)


if __name__ == "__main__":
    main()
