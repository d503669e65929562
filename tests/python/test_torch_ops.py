"""What cecl offers torch's users beyond torch.distributed: collectives, windows, split, operators and ulysses, on 2 to 4 ranks.
    test_torch_ops.py [cpu|cuda] [RANKS] [TEST]
Skipped (77) if torch is missing. Ranks are processes, as in test_torch_backend.py."""
import itertools
import os
import random
import sys

from test_torch_backend import (equal, kind, main, moe, on_device, refused, rows_of, splits_of, torch)  # skips
import torch.distributed as dist
import torch.nn.functional as functional
from torch.utils._python_dispatch import TorchDispatchMode
from cecl import collectives, ops, symm_mem, torch_backend, ulysses, windows

OPS = torch.ops.cecl
SEED = int(os.environ.get("SEED", "1"))  # of shapes; equal on all ranks


def world(at, shape, dtype=torch.float32, number=1000):
    """Returns a tensor that all ranks know."""
    return at.numbers(number, torch.Size(shape).numel(), dtype).view(shape)


def spread(tensor, rng):
    """Returns an equal tensor that is a view: with gaps, and with dimensions in another order in memory."""
    order = list(range(tensor.dim()))
    rng.shuffle(order)
    gaps = [tensor.shape[dim] + rng.randrange(3) for dim in order]
    gaps[-1] *= 2
    memory = torch.full(gaps, 55, dtype=tensor.dtype, device=tensor.device)
    view = memory[tuple(slice(0, tensor.shape[dim]) for dim in order)].permute([order.index(d) for d in range(tensor.dim())])
    return view.copy_(tensor)


def gathers_of_rows(at):
    rng = random.Random(SEED)
    for dtype in (torch.float32, torch.bool, torch.complex64, torch.bfloat16):
        for row in ((), (3,), (2, 5)):
            counts = [rng.randrange(4) for _ in range(at.size)]
            gap = rng.randrange(3)
            begins = [sum(counts[:r]) + r * gap for r in range(at.size)]
            blocks = [world(at, (count, *row), dtype, r) for r, count in enumerate(counts)]
            output = world(at, (sum(counts) + at.size * gap, *row), dtype)
            expected = output.clone()
            for begin, block in zip(begins, blocks):
                expected[begin: begin + len(block)] = block
            collectives.all_gather_v(output, blocks[at.rank], counts, begins)
            equal(output, expected, f"rows {counts} at {begins} of {row} {dtype}")
            equal(OPS.all_gather_v(blocks[at.rank], counts, ops.name()), torch.cat(blocks), "the operator")


def gathers_and_exchanges_of_views(at):
    rng = random.Random(SEED)
    for case in range(24):
        shape = [rng.randint(1, 4) for _ in range(rng.randint(0, 4))]
        dtype = rng.choice((torch.float32, torch.int64, torch.bool, torch.complex64))
        every = [[world(at, shape, dtype, 10 * r + p) for p in range(at.size)] for r in range(at.size)]
        output = spread(at.poisoned(torch.Size([at.size, *shape]).numel(), dtype).view(at.size, *shape), rng)
        collectives.all_gather_strided(output, spread(every[at.rank][0], rng) if shape else every[at.rank][0])
        equal(output, torch.stack([every[r][0] for r in range(at.size)]), f"gather {case} of {shape} {dtype}")
        output = spread(output, rng)
        collectives.all_to_all_strided(output, spread(torch.stack(every[at.rank]), rng))
        equal(output, torch.stack([every[r][at.rank] for r in range(at.size)]), f"exchange {case} of {shape} {dtype}")


def exchanges_between_dimensions(at):
    rng = random.Random(SEED)
    for scatter, gather in itertools.permutations(range(4), 2):
        for even in (True, False):
            shape = [rng.randint(1, 5) for _ in range(4)]
            if even:
                shape[scatter], shape[gather] = 2 * at.size, 3 * at.size
            whole = world(at, shape)
            source, expected = whole.tensor_split(at.size, gather)[at.rank], whole.tensor_split(at.size, scatter)[at.rank]
            for given in (source.contiguous(), source, spread(source, rng)):
                output = at.poisoned(expected.numel()).view(expected.shape)
                collectives.all_to_all_permute(output, given, scatter, gather)
                equal(output, expected, f"{shape} from dimension {scatter} to {gather}")
            output = at.poisoned(expected.numel()).view(expected.shape)
            OPS.all_to_all_permute(source.contiguous(), output, scatter, gather, ops.name())
            equal(output, expected, "the operator")
            equal(OPS.all_to_all_along_dims(source, scatter, gather, shape[gather], ops.name()), expected, "with a result")


def puts_gets_and_signals(at):
    after, before = (at.rank + 1) % at.size, (at.rank - 1) % at.size
    inbox = moe.empty((at.size, 4), torch.float32, at.device)
    window = windows.share(inbox.fill_(77))
    dist.barrier()  # before a peer puts, this rank's stream has filled its memory
    mine = at.numbers(at.rank, 4)
    window.put(mine, after, 4 * at.rank)
    window.put(mine + 1, after, 4 * after, signal=3)  # the signal comes after both
    window.wait(before, 3)
    equal(inbox[before], at.numbers(before, 4), "what was put")
    equal(inbox[at.rank], at.numbers(before, 4) + 1, "what was put with a signal")
    got = at.poisoned(4)
    window.get(got, after, 4 * at.rank)
    equal(got, mine, "what came back")
    for _ in range(2):
        window.signal(after)
    window.wait(before, count=2)
    for words, call in (("an offset of 0 or more", lambda: window.put(mine, after, -1)),
                        ("torch.float32", lambda: window.put(mine.int(), after)),
                        ("peer", lambda: window.put(mine, at.size)),
                        ("ceclPut", lambda: window.put(mine, after, 4 * at.size)),
                        ("signal", lambda: window.signal(after, 64))):
        refused(words, call)
    window.free()
    refused("the window has ended", lambda: window.put(mine, after))
    group = dist.new_group(backend="cecl")
    lost = windows.share(moe.empty((4,), torch.float32, at.device, group), group)
    dist.barrier()
    group.shutdown()
    refused("the group has ended", lambda: lost.get(mine, after))
    dist.barrier()
    moe.free(inbox)


def groups_that_are_split(at):
    dist.all_reduce(at.numbers(0, 1))
    group = torch_backend.split(at.rank % 2)
    members = [r for r in range(at.size) if r % 2 == at.rank % 2]
    tensor = at.numbers(at.rank, 5)
    dist.all_reduce(tensor, group=group)
    equal(tensor, torch.stack([at.numbers(r, 5) for r in members]).sum(0), "the sum of those with an equal color")
    assert dist.get_process_group_ranks(group) == members
    rest = torch_backend.split(None if at.rank == 0 else 0)
    assert (rest is None) == (at.rank == 0)
    if rest is not None:
        equal(OPS.all_gather_into_tensor(at.numbers(at.rank, 3), at.size - 1, ops.name(rest)),
              torch.cat(at.all_numbers(3)[1:]), "a gather of a part")
        assert torch_backend.split(0, rest).size() == at.size - 1
    refused("color -1", lambda: torch_backend.split(-1))


def cases(at):
    """Operators that return a tensor: name, arguments, and what plain loops expect; all take float64."""
    group, size, rank = ops.name(), at.size, at.rank
    every = [at.numbers(r, 2 * size * 3 * size, torch.float64).view(2 * size, 3 * size) for r in range(size)]
    total, mine = torch.stack(every).sum(0), every[rank]
    splits = [[(2 * r + p) % 3 for p in range(size)] for r in range(size)]  # from rank r to rank p: not symmetric
    sent, received = splits[rank], [splits[r][rank] for r in range(size)]
    rows = [at.numbers(r, 3 * sum(splits[r]), torch.float64).view(-1, 3) for r in range(size)]
    parts = [every[r].tensor_split(size, 1)[rank] for r in range(size)]
    return [
        ("all_gather_into_tensor", (mine, size, group), torch.cat(every)),
        ("all_gather_along_dim", (mine, 1, group), torch.cat(every, 1)),
        ("all_gather_along_dim", (mine, -2, group), torch.cat(every)),
        ("reduce_scatter_tensor", (mine, "sum", size, group), total.chunk(size)[rank]),
        ("reduce_scatter_tensor", (mine, "avg", size, group), total.chunk(size)[rank] / size),
        ("reduce_scatter_along_dim", (mine, 1, "sum", group), total.chunk(size, 1)[rank]),
        ("reduce_scatter_along_dim", (mine, 0, "avg", group), total.chunk(size)[rank] / size),
        ("one_shot_all_reduce", (mine, "sum", group), total),
        ("one_shot_all_reduce", (mine, "avg", group), total / size),
        ("all_to_all_single", (mine, [], [], group), torch.cat([every[r].chunk(size)[rank] for r in range(size)])),
        ("all_to_all_single", (rows[rank], received, sent, group),
         torch.cat([rows[r].split(splits[r])[rank] for r in range(size)])),
        ("all_to_all_along_dims", (mine, 1, 0, None, group), torch.cat(parts)),
    ]


def operators_equal_plain_loops(at):
    for name, arguments, expected in cases(at):
        got = getattr(OPS, name)(*arguments)
        assert torch.allclose(got, expected) and got.shape == expected.shape, (name, arguments[1:], got, expected)
    group, mine = ops.name(), at.numbers(at.rank, 6 * at.size)
    total = torch.stack(at.all_numbers(6 * at.size)).sum(0)
    out = at.poisoned(6 * at.size * at.size)
    OPS.all_gather_into_tensor_out(mine, at.size, group, out)
    equal(out, torch.cat(at.all_numbers(6 * at.size)), "all_gather_into_tensor_out")
    out = at.poisoned(6)
    OPS.reduce_scatter_tensor_out(mine, "sum", at.size, group, out)
    equal(out, total.chunk(at.size)[at.rank], "reduce_scatter_tensor_out")
    out = at.poisoned(6 * at.size)
    OPS.one_shot_all_reduce_out(mine, "max", group, out)
    equal(out, torch.stack(at.all_numbers(6 * at.size)).amax(0), "one_shot_all_reduce_out")
    OPS.two_shot_all_reduce_(mine, "sum", group)
    equal(mine, total, "two_shot_all_reduce_")


def operators_equal_gloo(at):
    """Compares with torch's own operators, called with the same arguments in a group of gloo."""
    theirs, group, own = dist.new_group(backend="gloo").group_name, ops.name(), torch.ops._c10d_functional
    rng = random.Random(SEED)
    for _ in range(8):
        shape = (at.size * rng.randint(1, 4), *[rng.randint(1, 5) for _ in range(rng.randint(0, 2))])
        mine = world(at, shape, rng.choice((torch.float32, torch.float64, torch.int64)), at.rank)
        for name, arguments in (("all_gather_into_tensor", (at.size,)), ("reduce_scatter_tensor", ("sum", at.size)),
                                ("all_to_all_single", ([shape[0] // at.size] * at.size,) * 2)):
            expected = own.wait_tensor(getattr(own, name)(mine, *arguments, theirs))
            equal(getattr(OPS, name)(mine, *arguments, group), expected, f"{name} of {shape} {mine.dtype}")
        expected = own.wait_tensor(own.all_reduce(mine, "sum", theirs))
        equal(OPS.one_shot_all_reduce(mine, "sum", group), expected, f"all-reduce of {shape} {mine.dtype}")


def dot(at, a, b):
    """The inner product over all ranks."""
    total = (a.double() * b.double()).sum().reshape(1)
    dist.all_reduce(total)
    return total.item()


def compiled_or_not(function):
    """The function, and the function compiled as one graph."""
    return [function, torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=False)]


def operators_have_gradients_and_compile(at):
    """The operators are linear, so a gradient is right if <op(x), g> = <x, gradient>, summed over ranks, for any x and g."""
    for number, (name, arguments, expected) in enumerate(cases(at)):
        torch._dynamo.reset()
        for function in compiled_or_not(lambda x, n=name, rest=arguments[1:]: getattr(OPS, n)(x * 1.5, *rest) + 1):
            x = arguments[0].clone().requires_grad_()
            got = function(x)
            assert torch.allclose(got, expected * 1.5 + 1), (name, got, expected)
            g = at.numbers(at.rank, got.numel(), torch.float64, seed=number).view(got.shape)
            got.backward(g.t().contiguous().t() if g.dim() == 2 else g)
            left, right = dot(at, expected * 1.5, g), dot(at, x.detach(), x.grad)
            assert abs(left - right) <= 1e-9 * abs(left), (name, arguments[1:], left, right)
    refused("'sum' or 'avg'", lambda: OPS.one_shot_all_reduce(
        at.numbers(0, 4).requires_grad_(), "max", ops.name()).sum().backward())


def operators_that_write_compile(at):
    group, mine = ops.name(), at.numbers(at.rank, 2 * at.size)

    def write(x):
        whole, sums, block, exchanged = x.new_empty(len(x) * at.size), x + 1, x.new_empty(2), x.new_empty(at.size, 2)
        OPS.all_gather_into_tensor_out(x + 1, at.size, group, whole)
        OPS.two_shot_all_reduce_(sums, "sum", group)
        OPS.reduce_scatter_tensor_out(x, "sum", at.size, group, block)
        OPS.all_to_all_permute(x.view(1, -1), exchanged, 1, 0, group)
        return whole.sum() + sums, OPS.all_gather_v(block, [2] * at.size, group), exchanged

    plain, compiled = [function(mine) for function in compiled_or_not(write)]
    for a, b in zip(plain, compiled):
        equal(b, a, "compiled")
    equal(plain[0] - torch.stack(at.all_numbers(2 * at.size)).sum(0),
          at.size + torch.cat(at.all_numbers(2 * at.size)).add(1).sum().expand(2 * at.size), "a sum and a gather")


def operators_pass_opcheck(at):
    for name, arguments, _ in cases(at):
        x = arguments[0].clone().requires_grad_()
        torch.library.opcheck(getattr(OPS, name).default, (x, *arguments[1:]), test_utils=(
            "test_schema", "test_autograd_registration", "test_faketensor"))


def rows_for_experts_by_operators(at):
    """By operators: what PyTorch's all_to_all_vdev does, and all_to_all_vdev_2d and its way back."""
    group, width, local = ops.name(), 3, 2
    room = 5 * local * at.size
    out, back = (moe.empty((room + 8, width), torch.float32, at.device) for _ in range(2))

    def sent(blocks):
        rows = torch.cat(rows_of(at, at.rank, blocks, width))
        padding = at.poisoned((room + 8 - len(rows)) * width).view(-1, width)
        return torch.cat([rows, padding]), on_device(at, splits_of(at.rank, blocks))

    offsets = on_device(at, [[-1] * at.size] * 2)
    OPS.all_to_all_vdev(*sent(at.size)[:1], out, sent(at.size)[1], offsets, group)
    expected = torch.cat([rows_of(at, r, at.size, width)[at.rank] for r in range(at.size)])
    equal(out[:len(expected)], expected, "all_to_all_vdev")
    blocks = local * at.size
    rows, splits = sent(blocks)
    there, here = on_device(at, [[-1] * blocks] * 2), on_device(at, [[-1] * blocks] * 2)

    OPS.all_to_all_vdev_2d(rows, out, splits, there, group, 4)
    OPS.all_to_all_vdev_2d_offset(out.add_(1), back, there, here, group)
    count = int(splits.sum())
    equal(back[:count], rows[:count] + 1, "rows that came back")
    for tensor in (out, back):
        moe.free(tensor)


def permuted(tensor, scatter, gather, size):
    """What programs do without cecl: permute, all_to_all_single with equal splits, permute."""
    class Exchange(torch.autograd.Function):
        """all_to_all_single of equal parts, and its gradient."""
        @staticmethod
        def forward(ctx, x):
            got = torch.empty_like(x)
            dist.all_to_all_single(got, x)
            return got

        @staticmethod
        def backward(ctx, gradient):
            return Exchange.forward(ctx, gradient.contiguous())

    parts = tensor.unflatten(scatter, (size, -1)).movedim(scatter, 0).contiguous()
    return Exchange.apply(parts).movedim(0, gather).flatten(gather, gather + 1)


def heads_and_sequences(at):
    rng = random.Random(SEED)
    for batch in (1, 3):
        sequence, heads, dim = rng.randint(1, 4), at.size * rng.randint(1, 3), rng.randint(1, 5)
        mine = [world(at, (batch, sequence, heads, dim), torch.float64, at.rank).requires_grad_() for _ in range(2)]
        expected = permuted(mine[0], 2, 1, at.size)
        back = permuted(expected.square(), 1, 2, at.size)
        back.cos().sum().backward()
        torch._dynamo.reset()
        for scatter, gather in zip(compiled_or_not(ulysses.scatter_heads), compiled_or_not(ulysses.gather_heads)):
            mine[1].grad = None
            got = scatter(mine[1])
            equal(got, expected, f"heads of {tuple(mine[0].shape)}")
            gather(got.square()).cos().sum().backward()
            assert torch.allclose(mine[1].grad, mine[0].grad)
        slope, = torch.autograd.grad(ulysses.scatter_heads(mine[1]).pow(3).sum(), mine[1], create_graph=True)
        equal(torch.autograd.grad(slope.sum(), mine[1])[0], 6 * mine[1], "a second derivative")
        with Seen() as seen:
            ulysses.scatter_heads(mine[0])
        assert "cecl.all_to_all_along_dims.default" in seen.names, seen.names
    refused("[batch, sequence, heads, dim]", lambda: ulysses.scatter_heads(at.numbers(0, 4)))


class Seen(TorchDispatchMode):
    """Notes the operators that are called while it is active."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, _types, arguments=(), named=None):
        self.names.append(str(function))
        return function(*arguments, **(named or {}))


def attention_equals_that_of_one_rank(at):
    """Also if the number of ranks divides neither the number of heads nor the length. The tensors are parts of a fused projection."""
    for sequence, heads in ((3 * at.size, 2 * at.size), (2 * at.size + 1, at.size + 1), (at.size, 2 * at.size + 1)):
        whole = (world(at, (2, sequence, 3, heads, 4), torch.float64) / 8).requires_grad_()

        def attention(query, key, value):
            seen = functional.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (query, key, value)), is_causal=True)
            return seen.transpose(1, 2)

        expected = attention(*whole.unbind(2))
        expected.square().sum().backward()
        mine = whole.detach().tensor_split(at.size, 1)[at.rank].clone().requires_grad_()
        seen = attention(*(ulysses.scatter_heads(t, sequence) for t in mine.unbind(2)))
        got = ulysses.gather_heads(seen, heads)
        assert torch.allclose(got, expected.tensor_split(at.size, 1)[at.rank])
        got.square().sum().backward()
        assert torch.allclose(mine.grad, whole.grad.tensor_split(at.size, 1)[at.rank])


def wrong_arguments_are_named(at):
    group, mine = ops.name(), at.numbers(at.rank, 2 * at.size).view(at.size, 2)
    for words, call in (
            ("input of shape (2, ", lambda: OPS.all_gather_into_tensor(mine.t(), at.size, group)),
            (f"group_size {at.size + 1}", lambda: OPS.all_gather_into_tensor(mine, at.size + 1, group)),
            ("reduce_op 'mean'", lambda: OPS.one_shot_all_reduce(mine, "mean", group)),
            (f"{at.size} equal parts of dimension 1",
             lambda: OPS.reduce_scatter_along_dim(mine[:, :1].contiguous(), 1, "sum", group)),
            ("dimension 3", lambda: OPS.all_gather_along_dim(mine, 3, group)),
            ("a reduction of torch.bool", lambda: OPS.one_shot_all_reduce(mine.bool(), "sum", group)),
            ("elements of torch.float64 as output", lambda: OPS.all_gather_into_tensor_out(
                mine, at.size, group, torch.empty(at.size * at.size, 2, dtype=torch.float64, device=at.device))),
            ("counts", lambda: collectives.all_gather_v(mine, mine, [1])),
            ("source of shape", lambda: collectives.all_gather_v(mine, mine, [1] * at.size)),
            ("room for counts", lambda: collectives.all_gather_v(mine, mine[:1], [1] * at.size, [at.size] * at.size)),
            ("torch.float32", lambda: collectives.all_gather_v(mine.double(), mine[:1], [1] * at.size)),
            ("one block for each", lambda: collectives.all_gather_strided(mine[:1], mine[0])),
            ("none expanded", lambda: collectives.all_to_all_strided(mine, mine[:1].expand(at.size, 2))),
            ("dimensions 0 and 2", lambda: collectives.all_to_all_permute(mine, mine, 0, 2)),
            ("cut in dimension 0", lambda: collectives.all_to_all_permute(mine, mine, 0, 0)),
            ("a GPU or the CPU", lambda: collectives.all_gather_v(mine.to("meta"), mine, [1] * at.size)),
            ("layout torch.sparse_coo", lambda: OPS.one_shot_all_reduce_out(mine.to_sparse(), "sum", group, mine))):
        refused(words, call)
    theirs = dist.new_group(backend="gloo")
    refused("a group of the backend 'gloo': a group of the backend 'cecl'", lambda: OPS.all_gather_into_tensor(
        mine, at.size, theirs.group_name))
    refused("group of the backend 'gloo'", lambda: ulysses.scatter_heads(mine.view(1, at.size, 2, 1), group=theirs))
    total = torch.stack(at.all_numbers(2 * at.size)).sum(0)
    equal(OPS.one_shot_all_reduce(mine, "sum", group).view(-1), total, "after refusals")


def a_group_over_hosts_is_named(at):
    """Without GPUs such a group cannot be made; on GPUs NCCL would carry its collectives."""
    os.environ["CECL_NODE_SIZE"] = "1"
    try:
        refused("hosts", lambda: OPS.all_gather_along_dim(at.numbers(0, 4), 0, ops.name(dist.new_group(backend="cecl"))))
    finally:
        del os.environ["CECL_NODE_SIZE"]


def graphs_capture_operators(at):
    """torch.cuda.graph of each operator for which hosts exchange nothing. Each replay has new numbers."""
    at_once = [case for case in cases(at) if case[0] != "all_to_all_single" or not case[1][1]]
    heads = torch.zeros(2, 2, 2 * at.size, 3, device=at.device, dtype=torch.float64)
    at_once.append(("all_to_all_along_dims", (heads + at.rank, 2, 1, None, ops.name()), None))
    for name, arguments, _ in at_once:
        x = arguments[0].clone()
        function = getattr(OPS, name)
        expected = [function(x, *arguments[1:]), function(x + 3, *arguments[1:])]
        torch.cuda.synchronize()
        dist.barrier()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            got = function(x, *arguments[1:])
        for number, result in enumerate(expected):
            x.copy_(arguments[0] + 3 * number)
            graph.replay()
            torch.cuda.synchronize()
            equal(got, result, f"{name}, replay {number}")
        del graph
        torch.cuda.synchronize()
        dist.barrier()


def a_graph_captures_gradients(at):
    """Heads are scattered and gathered, forward and backward, in one graph. Each replay has new numbers."""
    x = torch.zeros(2, 3, 2 * at.size, 4, device=at.device, requires_grad=True)
    weights = at.numbers(0, x.numel()).view_as(x)

    def gradient():
        return torch.autograd.grad(ulysses.gather_heads(ulysses.scatter_heads(x).pow(2)), x, weights)[0]

    gradient()
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = gradient()
    for number in range(2):
        with torch.no_grad():
            x.copy_(weights + number)
        graph.replay()
        torch.cuda.synchronize()
        equal(got, 2 * x.detach() * weights, f"replay {number}")
    del graph
    dist.barrier()


def memory_of_peers_by_handles(at):
    following, last = (at.rank + 1) % at.size, (at.rank - 1) % at.size
    for group in (None, ops.name(), dist.new_group(backend="gloo")):
        tensor = symm_mem.empty(4, 6, dtype=torch.bfloat16, device=at.device)
        tensor.copy_(world(at, (4, 6), torch.bfloat16, at.rank))
        handle = symm_mem.rendezvous(tensor[1:], group)
        assert symm_mem.rendezvous(tensor.t(), group) is handle
        assert (handle.rank, handle.world_size, handle.buffer_size) == (at.rank, at.size, tensor.nbytes)
        assert handle.buffer_ptrs[at.rank] == tensor.data_ptr() and handle.multicast_ptr == 0
        for pointers, array in ((handle.buffer_ptrs, handle.buffer_ptrs_dev), (handle.signal_pad_ptrs, handle.signal_pad_ptrs_dev)):
            there = symm_mem._bytes_at(array, 8 * at.size, at.device, handle).view(torch.int64)
            assert there.tolist() == pointers and len(set(pointers)) == at.size
        handle.barrier()
        for r in range(at.size):
            theirs = world(at, (4, 6), torch.bfloat16, r)
            equal(handle.get_buffer(r, (4, 6), torch.bfloat16), theirs, f"memory of rank {r}")
            equal(handle.get_buffer(r, [6], torch.bfloat16, 12), theirs[2], f"a row of rank {r}")
            equal(handle.get_signal_pad(r).view(torch.int32), torch.zeros(512, dtype=torch.int32, device=at.device), "pad")
        handle.barrier(1)
        handle.get_buffer(following, (6,), torch.bfloat16).fill_(at.rank)
        handle.get_signal_pad(following, (2,), torch.int32, 5).fill_(at.rank + 1)
        handle.put_signal(following, 3)
        handle.wait_signal(last, 3)
        equal(tensor[0], torch.full_like(tensor[0], last), "written by the rank before")
        assert handle.get_signal_pad(at.rank, (8,), torch.int32).tolist() == [0] * 5 + [last + 1] * 2 + [0]
        refused("48 bytes are there", lambda: handle.get_buffer(0, (4, 6), torch.float32))
        refused(f"peer {at.size}: ", lambda: handle.get_buffer(at.size, (1,), torch.float32))
        refused("0 to 31 expected", lambda: handle.put_signal(following, 32))
        kept, again = handle.get_buffer(following, (4, 6), torch.bfloat16), handle
        del handle
        equal(kept[2], world(at, (4, 6), torch.bfloat16, following)[2], "a tensor keeps its memory")
        again.barrier()
        again.free()
        refused("has ended", lambda: again.get_buffer(0, (1,), torch.float32))
        assert symm_mem.rendezvous(tensor, group) is not again
    refused("equal numbers expected", lambda: symm_mem.rendezvous(symm_mem.empty(2 + at.rank, device=at.device)))
    refused("'CUDA' or 'CECL'", lambda: symm_mem.set_backend("NVSHMEM"))
    assert symm_mem.get_signal_pad_size() == 2048 and not symm_mem.is_nvshmem_available()


def blocks_are_reduced_to_their_owners(at):
    rng = random.Random(SEED)
    for dim, turns, op in itertools.product((0, 1), (1, 2, 3), ("sum", "max")):
        widths = [rng.randint(0, 4) for _ in range(turns)]
        owners = [r for turn in range(turns) for r in rng.sample(range(at.size), at.size)]
        sizes = [widths[owners[:block].count(owner)] for block, owner in enumerate(owners)]
        ends = list(itertools.accumulate(sizes))
        shape = (ends[-1] + 2, 5) if dim == 0 else (5, ends[-1] + 2)
        every = torch.stack([world(at, shape, torch.bfloat16, r) for r in range(at.size)])
        whole = (every.float().sum(0) if op == "sum" else every.float().amax(0)).bfloat16()
        blocks = [block for block, owner in zip(whole.narrow(dim, 0, ends[-1]).split(sizes, dim), owners) if owner == at.rank]
        out = [torch.full_like(block.contiguous(), 77) for block in blocks]
        OPS.reduce_scatter_offset(every[at.rank], out, ops.name(), dim, ends, owners, op)
        for number, (got, block) in enumerate(zip(out, blocks)):
            equal(got, block, f"block {number} along {dim}, {sizes} to {owners}")
    source = world(at, (2 * at.size, 3), torch.float32, at.rank)
    out = [at.poisoned(6).view(2, 3)]
    OPS.reduce_scatter_offset(source, out, ops.name(), 0)
    every = sum(world(at, (2 * at.size, 3), torch.float32, r) for r in range(at.size))
    equal(out[0], every[2 * at.rank: 2 * at.rank + 2], "equal blocks by default")
    refused("equally many blocks", lambda: OPS.reduce_scatter_offset(source, out, ops.name(), 0, [1, 2], [0, 0]))
    refused("of one size", lambda: OPS.reduce_scatter_offset(source, out, ops.name(), 0, [1, 3, 4][:at.size], None))


def tiles_are_reduced_to_many_roots(at):
    places = [(0, 4), (2, 1), (3, 3)][:at.size]
    roots = [(r + 1) % at.size for r in range(at.size)]
    source = world(at, (6, 9), torch.float32, at.rank)
    cut = lambda whole: [whole[row: row + 3, column: column + 4] for row, column in places]  # noqa: E731
    out = at.poisoned(12).view(3, 4)
    OPS.multi_root_tile_reduce(cut(source), out, roots, ops.name())
    whole = sum(world(at, (6, 9), torch.float32, r) for r in range(at.size))
    equal(out, cut(whole)[roots.index(at.rank)], "tile")
    compiled = torch.compile(lambda x, y: OPS.multi_root_tile_reduce(cut(x), y, roots, ops.name()), fullgraph=True,
                             backend="aot_eager")
    again = at.poisoned(12).view(3, 4)
    compiled(source, again)
    equal(again, out, "compiled")
    refused("each of", lambda: OPS.multi_root_tile_reduce(cut(source), out, [0] * at.size, ops.name()))
    refused("views of one matrix", lambda: OPS.multi_root_tile_reduce([t.clone() for t in cut(source)], out, roots, ops.name()))


TESTS = (memory_of_peers_by_handles, blocks_are_reduced_to_their_owners, tiles_are_reduced_to_many_roots, gathers_of_rows, gathers_and_exchanges_of_views, exchanges_between_dimensions, puts_gets_and_signals,
         groups_that_are_split, operators_equal_plain_loops, operators_have_gradients_and_compile, operators_that_write_compile,
         operators_pass_opcheck, rows_for_experts_by_operators, heads_and_sequences, attention_equals_that_of_one_rank,
         wrong_arguments_are_named)
TESTS_OF = {"cpu": (operators_equal_gloo, a_group_over_hosts_is_named), "cuda": (graphs_capture_operators, a_graph_captures_gradients)}


if __name__ == "__main__":
    sys.exit(main(TESTS + TESTS_OF[kind()]))
