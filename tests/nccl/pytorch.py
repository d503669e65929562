"""PyTorch's communication, with cecl in NCCL's place. Results of calls are compared with plain
arithmetic, and training losses with the losses of a single rank that has all data.

    cecl-run --policy all torchrun --nproc-per-node 2 tests/nccl/pytorch.py [NAME ...]

Without names all parts run but `hybrid`, which needs four ranks, and `lose`. A process ends with status 1 if anything is wrong.

With CECL_SHARE_GPU=1 ranks may share a GPU. NCCL allows that only if the ranks seem to be on different hosts.
"""

import copy
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

import nccl_calls

RANK = int(os.environ["LOCAL_RANK"])
DEVICE = torch.device("cuda", RANK % torch.cuda.device_count())
if os.environ.get("CECL_SHARE_GPU") == "1":
    os.environ["NCCL_HOSTID"] = f"rank {RANK}"


def ranks():
    return dist.get_world_size()


def draw(count, seed, dtype=torch.bfloat16):
    """Returns small whole numbers, whose sums are exact in every type."""
    generator = torch.Generator(device=DEVICE).manual_seed(seed)
    return torch.randint(-8, 8, (count,), generator=generator, device=DEVICE).to(dtype)


def expect(got, wanted, what):
    torch.cuda.synchronize()
    if not torch.equal(got, wanted.to(got.dtype)):
        wrong = int((got != wanted).sum())
        raise AssertionError(f"rank {RANK}: {what}: {wrong} of {got.numel()} elements are wrong")


def poisoned(count, dtype=torch.bfloat16):
    return torch.full((count,), 77, device=DEVICE, dtype=dtype)


# ---- calls of torch.distributed


def check_calls_of(count, seed, dtype):
    n = ranks()
    inputs = [draw(count, seed + rank, dtype) for rank in range(n)]
    mine, together = inputs[RANK], torch.cat(inputs)
    total = sum(x.double() for x in inputs).to(dtype)
    size = f"{count} x {dtype}"

    out = poisoned(n * count, dtype)
    dist.all_gather_into_tensor(out, mine)
    expect(out, together, f"all-gather of {size}")
    out = poisoned(n * count, dtype)
    out[RANK * count : (RANK + 1) * count] = mine
    dist.all_gather_into_tensor(out, out[RANK * count : (RANK + 1) * count])
    expect(out, together, f"all-gather in place of {size}")
    outs = [poisoned(count, dtype) for _ in range(n)]
    dist.all_gather(outs, mine)
    expect(torch.cat(outs), together, f"all-gather into a list of {size}")

    out = mine.clone()
    dist.all_reduce(out)
    expect(out, total, f"all-reduce of {size}")
    out = mine.clone()
    dist.all_reduce(out, op=dist.ReduceOp.MAX)
    expect(out, torch.stack(inputs).amax(0), f"maximum of {size}")
    out = mine.clone()
    dist.reduce(out, 1)
    if RANK == 1:
        expect(out, total, f"reduce of {size}")
    out = mine.clone()
    dist.broadcast(out, 1)
    expect(out, inputs[1], f"broadcast of {size}")
    if count % n == 0:
        part = slice(RANK * count // n, (RANK + 1) * count // n)
        out = poisoned(count // n, dtype)
        dist.reduce_scatter_tensor(out, mine.clone())
        expect(out, total[part], f"reduce-scatter of {size}")
        out = poisoned(count, dtype)
        dist.all_to_all_single(out, mine.clone())
        expect(out, torch.cat([x[part] for x in inputs]), f"all-to-all of {size}")


def check_uneven_all_to_all():
    n = ranks()
    counts = [[1000 * (1 + a) + 10 * b for b in range(n)] for a in range(n)]  # from rank a to rank b
    sent = [draw(sum(counts[rank]), 900 + rank) for rank in range(n)]
    received = [counts[rank][RANK] for rank in range(n)]
    out = poisoned(sum(received))
    dist.all_to_all_single(out, sent[RANK], received, counts[RANK])
    wanted = [sent[rank].split(counts[rank])[RANK] for rank in range(n)]
    expect(out, torch.cat(wanted), "uneven all-to-all")


def check_group():
    """Calls that PyTorch passes to NCCL in one group."""
    n = ranks()
    inputs = [[draw(5000 + i, 50 * i + rank) for rank in range(n)] for i in range(6)]
    outs = [poisoned(n * (5000 + i)) for i in range(6)]
    with dist._coalescing_manager(device=DEVICE):
        for out, of_ranks in zip(outs, inputs):
            dist.all_gather_into_tensor(out, of_ranks[RANK])
    for i, (out, of_ranks) in enumerate(zip(outs, inputs)):
        expect(out, torch.cat(of_ranks), f"all-gather {i} of a group")


def check_send_and_receive():
    n = ranks()
    mine, theirs = draw(70000, RANK), poisoned(70000)
    work = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, mine, (RANK + 1) % n),
            dist.P2POp(dist.irecv, theirs, (RANK - 1) % n),
        ]
    )
    for one in work:
        one.wait()
    expect(theirs, draw(70000, (RANK - 1) % n), "send and receive")


def check_streams():
    """Makes gathers on one stream and reductions on another, as FSDP does."""
    n, count = ranks(), 1 << 20
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    for step in range(20):
        gathered, reduced = poisoned(n * count), draw(count, 7000 + 10 * step + RANK)
        mine = draw(count, 6000 + 10 * step + RANK)
        torch.cuda.synchronize()
        with torch.cuda.stream(streams[0]):
            dist.all_gather_into_tensor(gathered, mine)
        with torch.cuda.stream(streams[1]):
            dist.all_reduce(reduced)
        wanted = [draw(count, 6000 + 10 * step + rank) for rank in range(n)]
        expect(gathered, torch.cat(wanted), f"gather of step {step}")
        total = sum(draw(count, 7000 + 10 * step + rank).double() for rank in range(n))
        expect(reduced, total, f"reduction of step {step}")


def check_subgroup():
    group = dist.new_group([1, 0])
    if dist.get_rank(group) >= 0:
        out = poisoned(2 * 4096)
        dist.all_gather_into_tensor(out, draw(4096, 20 + RANK), group=group)
        order = dist.get_process_group_ranks(group)
        expect(out, torch.cat([draw(4096, 20 + rank) for rank in order]), "all-gather of a group")


def calls():
    for i, count in enumerate([1, 8, 1022, 1 << 16, 1 << 20, (1 << 24) + 6]):
        check_calls_of(count, 100 * i, torch.bfloat16)
    check_calls_of(40000, 1000, torch.float32)
    check_calls_of(40000, 1100, torch.int64)
    check_uneven_all_to_all()
    check_group()
    check_send_and_receive()
    check_streams()
    check_subgroup()


# ---- groups whose calls go to several streams


def lay_late(tensor, value, stream):
    """Fills `tensor` on `stream`, after a kernel that takes some milliseconds."""
    with torch.cuda.stream(stream):
        torch.cuda._sleep(4_000_000)
        tensor.copy_(value)


def group_on_streams(comm, count, step):
    """A group's calls on a communicator wait for all streams of the group, and all these streams wait for the calls.
    So a stream may write the input of a call on another stream, and read that call's output.
    """
    n, after, before = ranks(), (RANK + 1) % ranks(), (RANK - 1) % ranks()
    streams = [torch.cuda.Stream() for _ in range(4)]
    values = [[draw(count, 40 * step + 10 * i + rank) for rank in range(n)] for i in range(4)]
    inputs = [poisoned(count) for _ in range(4)]
    outs = [poisoned(n * count), poisoned(count), poisoned(n * count), poisoned(count)]
    wanted = [torch.cat(values[0]), values[1][before], torch.cat(values[2]), sum(values[3])]
    torch.cuda.synchronize()
    for i in range(4):
        lay_late(inputs[i], values[i][RANK], streams[(i + 1 + step) % 4])
    with comm:
        comm.all_gather(outs[0], inputs[0], streams[0])
        comm.send(inputs[1], after, streams[1])
        comm.recv(outs[1], before, streams[1])
        comm.all_gather(outs[2], inputs[2], streams[2])
        comm.all_reduce(outs[3], inputs[3], streams[3])
    taken = []
    for i, out in enumerate(outs):
        with torch.cuda.stream(streams[(i + 3 + step) % 4]):
            taken.append(out.clone())
    names = ["gather", "message", "second gather", "sum"]
    for name, copied, right in zip(names, taken, wanted):
        expect(copied, right, f"{name} of {count} elements on several streams, step {step}")


def group_streams():
    comm = nccl_calls.Comm()
    for step in range(40):
        for count in (1 << 14, 1 << 17, 1 << 20):
            group_on_streams(comm, count, step)
    comm.destroy()


# ---- training: the losses of all ranks together equal those of one rank that has all data

WIDTH = 256


def make_model():
    torch.manual_seed(5)
    with DEVICE:
        layers = [
            nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH))
            for _ in range(3)
        ]
    return nn.Sequential(*layers)


def data():
    torch.manual_seed(6)
    return torch.randn(32 * ranks(), WIDTH, device=DEVICE)


def learn(model, x, steps=4):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses)


def compare_with_one_rank(model, reference, shared_data=False):
    x = data()
    wanted = learn(reference, x)
    mine = x if shared_data else x.chunk(ranks())[RANK]
    losses = learn(model, mine).clone()
    dist.all_reduce(losses, op=dist.ReduceOp.AVG)
    if not torch.allclose(losses, wanted, rtol=1e-4):
        raise AssertionError(f"rank {RANK}: losses {losses.tolist()}, alone {wanted.tolist()}")


def ddp():
    reference = make_model()
    model = nn.parallel.DistributedDataParallel(copy.deepcopy(reference), device_ids=[DEVICE])
    compare_with_one_rank(model, reference)


def fsdp1():
    reference = make_model()
    model = FullyShardedDataParallel(copy.deepcopy(reference), use_orig_params=True)
    compare_with_one_rank(model, reference)


def shard(model, group_memory):
    for module in [*model, model]:
        fully_shard(module)
        if group_memory:
            module.set_allocate_memory_from_process_group_for_comm(True)
    return model


def fsdp2():
    reference = make_model()
    compare_with_one_rank(shard(copy.deepcopy(reference), False), reference)


def fsdp2_group_memory():
    reference = make_model()
    compare_with_one_rank(shard(copy.deepcopy(reference), True), reference)


def hybrid():
    """Shards within a host, copies between hosts: two pretended hosts with half of the ranks each (CECL_NODE_SIZE)."""
    reference = make_model()
    mesh = init_device_mesh("cuda", (2, ranks() // 2), mesh_dim_names=("copies", "shards"))
    model = copy.deepcopy(reference)
    for module in [*model, model]:
        fully_shard(module, mesh=mesh)
    compare_with_one_rank(model, reference)


def tensor_parallel():
    reference = make_model()
    mesh = init_device_mesh("cuda", (ranks(),))
    model = copy.deepcopy(reference)
    for layer in model:
        parallelize_module(layer, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    compare_with_one_rank(model, reference, shared_data=True)


# ---- CUDA graphs


def graph():
    n, count = ranks(), 30000
    mine, gathered, reduced = draw(count, RANK), poisoned(n * count), poisoned(count)
    received, left, right = poisoned(count), (RANK - 1) % n, (RANK + 1) % n

    def work():
        messages = [dist.P2POp(dist.isend, mine, right), dist.P2POp(dist.irecv, received, left)]
        for message in dist.batch_isend_irecv(messages):
            message.wait()
        reduced.copy_(mine)
        dist.all_reduce(reduced)
        dist.all_gather_into_tensor(gathered, mine)

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        work()
    torch.cuda.synchronize()
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        work()
    for step in range(5):
        mine.copy_(draw(count, 10 * step + RANK))
        recorded.replay()
        inputs = [draw(count, 10 * step + rank) for rank in range(n)]
        expect(received, inputs[left], f"message of replay {step}")
        expect(gathered, torch.cat(inputs), f"all-gather of replay {step}")
        expect(reduced, sum(x.double() for x in inputs), f"all-reduce of replay {step}")
        out = mine.clone()
        dist.all_reduce(out)  # beside the graph
        expect(out, sum(x.double() for x in inputs), f"all-reduce after replay {step}")


# ---- a rank that dies


def lose():
    """Rank 1 dies. The other ranks get an error, or PyTorch's watchdog ends them."""
    t = draw(1 << 20, 1)
    dist.all_reduce(t)
    torch.cuda.synchronize()
    if RANK == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    try:
        while time.monotonic() < start + 60:
            dist.all_reduce(t)
            torch.cuda.synchronize()
    except dist.DistBackendError as error:
        print(f"ok  lose: after {time.monotonic() - start:.1f} s: {error}", flush=True)
        os._exit(0)
    os._exit(1)


PARTS = [calls, group_streams, ddp, fsdp1, fsdp2, fsdp2_group_memory, tensor_parallel, graph]


def main():
    names = sys.argv[1:] or [part.__name__ for part in PARTS]
    torch.cuda.set_device(DEVICE)
    dist.init_process_group(os.environ.get("CECL_TEST_BACKEND", "nccl"), device_id=DEVICE)
    if "lose" in names:
        lose()
    for part in [*PARTS, hybrid]:
        if part.__name__ in names:
            part()
            torch.cuda.synchronize()
            if RANK == 0:
                print(f"ok  {part.__name__}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
