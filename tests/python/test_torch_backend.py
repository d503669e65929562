"""The backend of torch.distributed: each call does what torch's manual says, on 2 to 4 ranks.
    test_torch_backend.py [cpu|cuda] [RANKS]
Skipped (77) if torch is missing. Ranks are processes; with cuda they use the GPUs in turn, so fewer GPUs than ranks
need CECL_SHARE_GPU=1."""
import os
import sys
import tempfile
import time

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as multiprocessing
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
from cecl import _binding as binding  # noqa: E402  pylint: disable=wrong-import-position
import cecl.torch_backend  # noqa: E402, F401  pylint: disable=wrong-import-position, unused-import
from cecl import experts as moe, tiles  # noqa: E402  pylint: disable=wrong-import-position

TYPES = (torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Rank:
    """The world of a test: this rank, the number of ranks, and tensors with each rank's own numbers."""

    def __init__(self, rank, size, device):
        self.rank, self.size, self.device = rank, size, device

    def numbers(self, rank, count, dtype=torch.float32, seed=0):
        """Returns small whole numbers, so that sums are exact in every type."""
        generator = torch.Generator().manual_seed(1000 * seed + rank)
        return torch.randint(0, 8, (count,), generator=generator).to(dtype).to(self.device)

    def all_numbers(self, count, dtype=torch.float32, seed=0):
        return [self.numbers(r, count, dtype, seed) for r in range(self.size)]

    def poisoned(self, count, dtype=torch.float32):
        return torch.full((count,), 77, dtype=dtype, device=self.device)


def equal(got, expected, what):
    if not torch.equal(got, expected):
        raise AssertionError(f"{what}: {got.tolist()[:16]}, expected {expected.tolist()[:16]}")


def refused(words, call):
    try:
        call()
    except (ValueError, TypeError, RuntimeError) as error:
        assert words in str(error), f"{words!r} expected in: {error}"
    else:
        raise AssertionError(f"not refused: {words}")


def all_gather_of_every_type(at):
    for count, dtype in [(n, t) for n in (1, 5, 4099) for t in TYPES + (torch.bool, torch.complex64)]:
        mine, output = at.numbers(at.rank, count, dtype), at.poisoned(count * at.size, dtype)
        dist.all_gather_into_tensor(output, mine)
        equal(output, torch.cat(at.all_numbers(count, dtype)), f"all-gather of {count} {dtype}")


def all_gather_in_place_and_to_a_list(at):
    output = at.poisoned(6 * at.size)
    shard = output[6 * at.rank: 6 * at.rank + 6]
    shard.copy_(at.numbers(at.rank, 6))
    dist.all_gather_into_tensor(output, shard)
    equal(output, torch.cat(at.all_numbers(6)), "in place")
    outputs = [at.poisoned(6).view(2, 3) for _ in range(at.size)]
    dist.all_gather(outputs, at.numbers(at.rank, 6).view(2, 3))
    for rank, part in enumerate(outputs):
        equal(part.view(-1), at.numbers(rank, 6), f"from rank {rank}")


def reductions(at):
    for count, dtype in [(n, t) for n in (1, 4099) for t in TYPES]:
        every = torch.stack(at.all_numbers(count, dtype))
        for op, expected in ((dist.ReduceOp.SUM, every.to(torch.float64).sum(0).to(dtype)),
                             (dist.ReduceOp.MAX, every.amax(0)), (dist.ReduceOp.MIN, every.amin(0))):
            tensor = at.numbers(at.rank, count, dtype)
            dist.all_reduce(tensor, op)
            equal(tensor, expected, f"all-reduce {op} of {count} {dtype}")
            tensor = at.numbers(at.rank, count, dtype)
            dist.reduce(tensor, at.size - 1, op)
            if at.rank == at.size - 1:
                equal(tensor, expected, f"reduce {op} of {count} {dtype}")
    mean = at.numbers(at.rank, 8)
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    assert torch.allclose(mean, torch.stack(at.all_numbers(8)).mean(0))


def reduce_scatter_both_ways(at):
    every = torch.stack(at.all_numbers(6 * at.size))
    expected = every.sum(0)[6 * at.rank: 6 * at.rank + 6]
    output = at.poisoned(6)
    dist.reduce_scatter_tensor(output, at.numbers(at.rank, 6 * at.size))
    equal(output, expected, "reduce-scatter")
    output = at.poisoned(6)
    dist.reduce_scatter(output, list(at.numbers(at.rank, 6 * at.size).chunk(at.size)))
    equal(output, expected, "reduce-scatter of a list")


def all_to_all_of_equal_and_of_other_parts(at):
    mine, output = at.numbers(at.rank, 5 * at.size), at.poisoned(5 * at.size)
    dist.all_to_all_single(output, mine)
    expected = torch.cat([at.numbers(r, 5 * at.size)[5 * at.rank: 5 * at.rank + 5] for r in range(at.size)])
    equal(output, expected, "all-to-all")
    # rank r sends r + p rows of 3 to rank p
    sends, receives = [at.rank + p for p in range(at.size)], [r + at.rank for r in range(at.size)]
    mine = at.numbers(at.rank, 3 * sum(sends)).view(-1, 3)
    output = at.poisoned(3 * sum(receives)).view(-1, 3)
    dist.all_to_all_single(output, mine, receives, sends)
    parts = []
    for r in range(at.size):
        theirs = [r + p for p in range(at.size)]
        parts.append(at.numbers(r, 3 * sum(theirs)).view(-1, 3).split(theirs)[at.rank])
    equal(output, torch.cat(parts), "all-to-all of unequal parts")
    outputs = [at.poisoned(4) for _ in range(at.size)]
    dist.all_to_all(outputs, list(at.numbers(at.rank, 4 * at.size).chunk(at.size)))
    for r, part in enumerate(outputs):
        equal(part, at.numbers(r, 4 * at.size)[4 * at.rank: 4 * at.rank + 4], f"all-to-all of lists, from {r}")


def parts_without_rows(at):
    """All ranks send to the last rank only. The others receive nothing, like experts without tokens."""
    last = at.size - 1
    sends = [0] * last + [2]
    receives = [2 * (at.rank == last)] * at.size
    expected = torch.cat([at.numbers(r, 6) for r in range(at.size)]) if at.rank == last else at.poisoned(0)
    mine, output = at.numbers(at.rank, 6).view(2, 3), at.poisoned(3 * sum(receives)).view(-1, 3)
    dist.all_to_all_single(output, mine, receives, sends)
    equal(output.view(-1), expected, "rows for the last rank")
    back = at.poisoned(6).view(2, 3)
    dist.all_to_all_single(back, output, sends, receives)
    equal(back, mine, "rows from the last rank")
    outputs = [at.poisoned(3 * rows) for rows in receives]
    dist.all_to_all(outputs, [at.poisoned(0)] * last + [at.numbers(at.rank, 6)])
    equal(torch.cat(outputs), expected, "a list for the last rank")
    dist.all_to_all_single(at.poisoned(0).view(0, 3), at.poisoned(0).view(0, 3), [0] * at.size, [0] * at.size)


def rooted_calls(at):
    for root in range(at.size):
        tensor = at.numbers(at.rank, 7, seed=root)
        dist.broadcast(tensor, root)
        equal(tensor, at.numbers(root, 7, seed=root), f"broadcast of {root}")
        gathered = [at.poisoned(3) for _ in range(at.size)] if at.rank == root else None
        dist.gather(at.numbers(at.rank, 3), gathered, root)
        for r, part in enumerate(gathered or []):
            equal(part, at.numbers(r, 3), f"gather to {root} from {r}")
        output = at.poisoned(3)
        dist.scatter(output, at.all_numbers(3, seed=root) if at.rank == root else None, root)
        equal(output, at.numbers(at.rank, 3, seed=root), f"scatter of {root}")


def messages(at):
    after, before = (at.rank + 1) % at.size, (at.rank - 1) % at.size
    received = at.poisoned(9)
    if at.rank == 0:
        dist.send(at.numbers(0, 9), 1)
    if at.rank == 1:
        dist.recv(received, 0)
        equal(received, at.numbers(0, 9), "from rank 0")
    works = [dist.isend(at.numbers(at.rank, 9), after), dist.irecv(received, before)]
    dist.barrier()  # starts the messages
    for work in works:
        work.wait()
    equal(received, at.numbers(before, 9), "a ring of messages without a group")
    group = dist.new_group(backend="cecl")  # whose first calls are messages
    received = at.poisoned(9)
    works = [dist.isend(at.numbers(at.rank, 9), after, group), dist.irecv(received, before, group)]
    for work in works:
        work.wait()
    equal(received, at.numbers(before, 9), "a ring of messages in a new group")
    both = [at.poisoned(9), at.poisoned(9)]
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, at.numbers(at.rank, 9), after),
                                        dist.P2POp(dist.isend, at.numbers(at.rank, 9, seed=1), before),
                                        dist.P2POp(dist.irecv, both[0], before),
                                        dist.P2POp(dist.irecv, both[1], after)]):
        work.wait()
    equal(both[0], at.numbers(before, 9), "a ring, forth")
    equal(both[1], at.numbers(after, 9, seed=1), "a ring, back")


def coalesced_calls(at):
    """Torch's managers of coalesced calls begin a group for a given device, and make calls in it. Before that there is a
    message for which nobody has waited."""
    after, before = (at.rank + 1) % at.size, (at.rank - 1) % at.size
    for device in (None, at.device):
        received = at.poisoned(5)
        works = [dist.isend(at.numbers(at.rank, 5), after), dist.irecv(received, before)]
        outputs = [at.poisoned(3 * at.size) for _ in range(2)]
        with dist._coalescing_manager(device=device, async_ops=True) as manager:
            for seed, output in enumerate(outputs):
                dist.all_gather_into_tensor(output, at.numbers(at.rank, 3, seed=seed))
        manager.wait()
        for seed, output in enumerate(outputs):
            equal(output, torch.cat(at.all_numbers(3, seed=seed)), f"all-gather {seed}, device {device}")
        for work in works:
            work.wait()
        equal(received, at.numbers(before, 5), "the message before coalesced calls")
    forth, back = at.poisoned(9), at.poisoned(9)
    with dist._coalescing_manager(device=at.device, async_ops=True) as manager:
        dist.send(at.numbers(at.rank, 9), after)
        dist.recv(forth, before)
        mine = at.numbers(at.rank, 9)
        for _ in range(100):  # on a GPU the next call has to wait for these
            mine = mine + 1
        dist.send(mine, before)
        dist.recv(back, after)
    manager.wait()
    equal(forth, at.numbers(before, 9), "coalesced, forth")
    equal(back, at.numbers(after, 9) + 100, "coalesced, back")


def asynchronous_calls(at):
    outputs = [at.poisoned(5 * at.size) for _ in range(8)]
    works = [dist.all_gather_into_tensor(output, at.numbers(at.rank, 5, seed=i), async_op=True)
             for i, output in enumerate(outputs)]
    for i in reversed(range(8)):
        works[i].wait()
        equal(outputs[i], torch.cat(at.all_numbers(5, seed=i)), f"call {i}")
    tensor = at.numbers(at.rank, 5)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    doubled = future.then(lambda done: done.value()[0] * 2).wait()
    equal(doubled, 2 * torch.stack(at.all_numbers(5)).sum(0), "the future")
    tensor, received = at.numbers(at.rank, 5), at.poisoned(5)
    after, before = (at.rank + 1) % at.size, (at.rank - 1) % at.size
    works = [dist.all_reduce(tensor, async_op=True), dist.isend(at.numbers(at.rank, 5), after), dist.irecv(received, before)]
    deadline = time.monotonic() + 45
    while not all(work.is_completed() for work in works):
        assert time.monotonic() < deadline, "a program that asks for the end of calls never sees it"
    equal(tensor, torch.stack(at.all_numbers(5)).sum(0), "a call that the program asked for")
    equal(received, at.numbers(before, 5), "a message that the program asked for")


def groups_and_objects(at):
    objects = [None] * at.size
    dist.all_gather_object(objects, {"rank": at.rank})
    assert [o["rank"] for o in objects] == list(range(at.size)), objects
    members = list(range(at.size - 1)) or [0]
    group = dist.new_group(members, backend="cecl")
    if at.rank in members:
        tensor = at.numbers(at.rank, 5)
        dist.all_reduce(tensor, group=group)
        equal(tensor, torch.stack([at.numbers(r, 5) for r in members]).sum(0), "a group of fewer ranks")
    dist.barrier()


def functional_collectives(at):
    import torch.distributed._functional_collectives as functional
    group = dist.group.WORLD
    gathered = functional.all_gather_tensor(at.numbers(at.rank, 6), 0, group)
    equal(functional.wait_tensor(gathered), torch.cat(at.all_numbers(6)), "all_gather_tensor")
    reduced = functional.all_reduce(at.numbers(at.rank, 6), "sum", group)
    equal(functional.wait_tensor(reduced), torch.stack(at.all_numbers(6)).sum(0), "functional all_reduce")


def a_module_learns_as_one_alone(at):
    """DistributedDataParallel must give the gradients of the whole batch on one rank."""
    def make():
        torch.manual_seed(1)
        return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).to(at.device)
    batch = torch.cat([at.numbers(r, 32) for r in range(at.size)]).view(-1, 8)
    alone = make()
    alone(batch).pow(2).mean().backward()
    module = torch.nn.parallel.DistributedDataParallel(make())
    module(batch[4 * at.rank: 4 * at.rank + 4]).pow(2).mean().backward()
    for mine, whole in zip(module.module.parameters(), alone.parameters()):
        assert torch.allclose(mine.grad, whole.grad, atol=1e-5), (mine.grad, whole.grad)


def splits_of(rank, blocks):
    """Returns how many rows a rank has for each block; some blocks have none."""
    return [(3 * rank + 2 * block) % 5 for block in range(blocks)]


def rows_of(at, rank, blocks, width):
    """Returns a rank's rows, block by block."""
    splits = splits_of(rank, blocks)
    return at.numbers(rank, sum(splits) * width).view(-1, width).split(splits)


def on_device(at, numbers):
    return torch.tensor(numbers, dtype=torch.int64, device=at.device)


def full(at, rows, *parts):
    """Returns the first `rows` rows that a rank sends, in a tensor that is equally large on all ranks."""
    whole = torch.cat(parts)
    return torch.cat([whole, at.poisoned((rows - len(whole)) * whole.shape[1]).view(-1, whole.shape[1])])


def rows_by_splits_on_the_device(at):
    room, width = 5 * at.size, 3
    output = moe.empty((room, width), torch.float32, at.device)
    out_splits = on_device(at, [[-1] * at.size] * 2)
    moe.alltoallv_device(output, out_splits, full(at, room, *rows_of(at, at.rank, at.size, width)),
                         on_device(at, splits_of(at.rank, at.size)))
    expected = [rows_of(at, r, at.size, width)[at.rank] for r in range(at.size)]
    equal(output[:sum(map(len, expected))], torch.cat(expected), "rows from all ranks")
    begins = [sum(map(len, expected[:r])) for r in range(at.size)]
    equal(out_splits, on_device(at, [list(map(len, expected)), begins]), "splits and offsets")
    scales = moe.empty((room,), torch.float32, at.device)
    moe.dispatch(output, out_splits, at.poisoned(0).view(0, width), on_device(at, [0] * at.size), 1,
                 scales=(at.poisoned(0), scales))
    equal(out_splits, on_device(at, [[0] * at.size] * 2), "splits and offsets without rows")
    for tensor in (output, scales):
        moe.free(tensor)


def rows_go_to_experts_and_come_back(at):
    """What PyTorch's all_to_all_vdev_2d does, and its way back. The scales of row r are r; the expert adds 1 to its rows."""
    local, align, width, blocks = 2, 4, 6, 2 * at.size
    room, inbox_room = 5 * blocks, 5 * blocks + 2 * 4
    parts = rows_of(at, at.rank, blocks, width)
    mine, count = full(at, room, *parts), sum(map(len, parts))
    scales = torch.arange(room, dtype=torch.float32, device=at.device)
    inbox = moe.empty((inbox_room, width), torch.float32, at.device)
    inbox_scales = moe.empty((inbox_room,), torch.float32, at.device)
    back = moe.empty((room, width), torch.float32, at.device)
    received, returned = on_device(at, [[-1] * blocks] * 2), on_device(at, [[-1] * blocks] * 2)
    moe.dispatch(inbox, received, mine, on_device(at, splits_of(at.rank, blocks)), local, align, (scales, inbox_scales))
    begin, block = 0, 0
    for expert in range(local):
        for r in range(at.size):
            theirs = rows_of(at, r, blocks, width)
            number = at.rank * local + expert
            equal(received[:, block], on_device(at, [len(theirs[number]), begin]), f"expert {expert}, from {r}")
            equal(inbox[begin: begin + len(theirs[number])], theirs[number], f"rows of expert {expert} from {r}")
            first = sum(map(len, theirs[:number]))
            equal(inbox_scales[begin: begin + len(theirs[number])],
                  torch.arange(first, first + len(theirs[number]), dtype=torch.float32, device=at.device), "scales")
            begin, block = begin + len(theirs[number]), block + 1
        begin = max(begin + -begin % align, align)
    moe.combine(back, returned, inbox + 1, received, local)
    equal(back[:count], torch.cat(parts) + 1, "rows that came back")
    places = torch.stack([torch.arange(count), (torch.arange(count) + 1) % count], 1).to(at.device)
    weights = torch.tensor([[0.5, 2.0]], device=at.device).repeat(count, 1)
    sums = at.poisoned(count * width).view(count, width)
    moe.sum_rows(sums, back, places, weights)
    equal(sums, 0.5 * back[places[:, 0]] + 2 * back[places[:, 1]], "sums of rows")
    for tensor in (inbox, inbox_scales, back):
        moe.free(tensor)


def rows_that_do_not_fit_are_told(at):
    group = dist.new_group(backend="cecl")
    output = moe.empty((1, 2), torch.float32, at.device, group)
    limit = time.monotonic() + 45  # the communicator fails some time after the call
    try:
        while time.monotonic() < limit:
            moe.alltoallv_device(output, on_device(at, [[0] * at.size] * 2), at.numbers(at.rank, 2 * at.size).view(-1, 2),
                                 on_device(at, [1] * at.size), group)
            torch.cuda.synchronize() if at.device.type == "cuda" else None
    except binding.Error as error:
        assert "for rank 0, whose recvbuff has room for 1" in str(error), error
        return
    raise AssertionError("more rows than fit cause no error")


def tiles_go_to_their_roots(at):
    """As in PyTorch's examples: two column blocks for each rank, in turn; the tiles of a matrix, each for another root."""
    rows, columns, blocks = 6, 5, 2 * at.size
    every = torch.stack(at.all_numbers(rows * blocks * columns)).view(at.size, rows, -1)
    whole = every.sum(0)
    outputs = at.poisoned(2 * rows * columns).view(2, rows, columns)
    begins = [(0, (rank + tile * at.size) * columns) for rank in range(at.size) for tile in range(2)]
    tiles.reduce_scatter(outputs, every[at.rank].contiguous(), begins, (rows, columns))
    for tile in range(2):
        first = (at.rank + tile * at.size) * columns
        equal(outputs[tile], whole[:, first: first + columns], f"column block {tile}")
    output = at.poisoned(2 * columns).view(2, columns)
    begins = [(rank // 2 * 2, rank % 2 * columns) for rank in range(at.size)]
    tiles.reduce_scatter(output, every[at.rank].contiguous(), begins, (2, columns))
    row, column = begins[at.rank]
    equal(output, whole[row: row + 2, column: column + columns], "a tile")


def wrong_arguments_are_named(at):
    refused("not contiguous", lambda: dist.all_reduce(torch.zeros(4, 4, device=at.device).t()))
    refused("SUM, PRODUCT, MIN, MAX or AVG", lambda: dist.all_reduce(at.numbers(0, 4), dist.ReduceOp.BXOR))
    refused("a reduction of torch.bool", lambda: dist.all_reduce(at.numbers(0, 4, torch.bool)))
    refused("splits", lambda: dist.all_to_all_single(
        at.poisoned(at.size), at.numbers(0, at.size), [1] * at.size, [2] * at.size))
    rows, out_splits = at.poisoned(8).view(4, 2), on_device(at, [[0] * at.size] * 2)
    refused(f"{at.size} of torch.int64", lambda: moe.alltoallv_device(rows, out_splits, rows, on_device(at, [1])))
    refused("ceclMemAlloc", lambda: moe.alltoallv_device(rows, out_splits, at.poisoned(8).view(4, 2),
                                                         on_device(at, [0] * at.size)))
    refused("outside of (4, 2)", lambda: tiles.reduce_scatter(at.poisoned(2), rows, [(3, 1)] * at.size, (1, 2)))
    refused("scales of shapes", lambda: moe.dispatch(rows, out_splits, rows, on_device(at, [0] * at.size), 1,
                                                     scales=(at.poisoned(3), at.poisoned(4))))
    if at.rank == 0:  # the root refuses before it makes the call
        for parts in ([at.poisoned(2)] * at.size, [at.poisoned(3)] * (at.size - 1)):
            refused("scatter of", lambda parts=parts: dist.scatter(at.poisoned(3), parts, 0))
    tensor = at.numbers(at.rank, 4)
    dist.all_reduce(tensor)
    equal(tensor, torch.stack(at.all_numbers(4)).sum(0), "after refusals")


def a_rank_that_dies_is_told(at):
    """The last test, because it breaks the group."""
    if at.rank == at.size - 1:
        os._exit(0)
    try:
        tensor = at.numbers(at.rank, 4)
        dist.all_reduce(tensor, async_op=True).wait()
        if at.device.type == "cuda":
            torch.cuda.synchronize()
            dist.all_reduce(tensor)
    except binding.Error as error:
        assert f"rank {at.size - 1}" in str(error), error
    else:
        raise AssertionError("a call without the dead rank did not fail")
    for work in [dist.isend(tensor, at.size - 1), dist.irecv(at.poisoned(4), at.size - 1)]:
        try:
            work.wait()
        except binding.Error:
            continue
        raise AssertionError("a message of a failed group did not fail")


TESTS = (all_gather_of_every_type, all_gather_in_place_and_to_a_list, reductions, reduce_scatter_both_ways,
         all_to_all_of_equal_and_of_other_parts, parts_without_rows, rooted_calls, messages, coalesced_calls,
         asynchronous_calls, groups_and_objects, functional_collectives, a_module_learns_as_one_alone, rows_by_splits_on_the_device,
         rows_go_to_experts_and_come_back, tiles_go_to_their_roots, rows_that_do_not_fit_are_told, wrong_arguments_are_named,
         a_rank_that_dies_is_told)


def kind():
    return sys.argv[1] if len(sys.argv) > 1 else "cpu"


def run(rank, size, backend, file, tests, end_together):
    """One rank: runs the tests that the command line names, or all."""
    torch.set_num_threads(1)
    device = torch.device("cpu")
    if kind() == "cuda":
        device = torch.device("cuda", rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
    dist.init_process_group(backend, init_method=f"file://{file}", rank=rank, world_size=size)
    for test in [test for test in tests if sys.argv[3:] in ([], [test.__name__])]:
        try:
            test(Rank(rank, size, device))
        except BaseException:
            print(f"rank {rank} of {size}, {kind()}, {backend}: {test.__name__} failed", file=sys.stderr)
            raise
        if rank == 0:
            print(f"{kind()}, {size} ranks, {backend}: {test.__name__} passed", flush=True)
    if not end_together:
        os._exit(0)
    dist.barrier()
    dist.destroy_process_group()


def main(tests, worlds=((2, "cecl"), (3, "cecl")), start_method="spawn", end_together=True):
    """Runs tests for each (ranks, backend), one after the other. Arguments: cpu or cuda, ranks, a test's name."""
    if kind() == "cuda" and not torch.cuda.is_available():
        print("skipped: no GPU")
        return 77
    for size, backend in [(int(sys.argv[2]), "cecl")] if len(sys.argv) > 2 else worlds:
        with tempfile.TemporaryDirectory() as folder:
            multiprocessing.start_processes(run, (size, backend, os.path.join(folder, "store"), tests, end_together), size,
                                            start_method=start_method)
    return 0


if __name__ == "__main__":
    sys.exit(main(TESTS, end_together=False))  # a rank has died
