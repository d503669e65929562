"""FSDP2 by cecl.fsdp, on 2 to 4 ranks: gradients must be all ranks' gradients, added in rank order in fp32, bit for bit.
    test_torch_fsdp.py [cpu|cuda] [RANKS] [TEST]
Skipped (77) if torch is missing. Ranks are processes, as in test_torch_backend.py."""
import copy
import sys

from test_torch_backend import equal, kind, main, refused, torch  # skips
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_model_state_dict, StateDictOptions
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy
from torch.utils.checkpoint import checkpoint
from cecl import fsdp, torch_backend

POLICY = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
WIDTH, LAYERS, BATCH = 13, 3, 5  # no shard of 13 rows is whole


class Layer(torch.nn.Module):
    def __init__(self, checkpoints):
        super().__init__()
        self.linear, self.checkpoints = torch.nn.Linear(WIDTH, WIDTH), checkpoints

    def forward(self, x):
        call = lambda x: torch.tanh(self.linear(x))  # noqa: E731
        return checkpoint(call, x, use_reentrant=False) if self.checkpoints else call(x)


def made(at, mesh, policy=POLICY, reshard=True, checkpoints=False, uses=True):
    """The same model on all ranks: whole, and sharded."""
    torch.manual_seed(3)
    whole = torch.nn.Sequential(*[Layer(checkpoints) for _ in range(LAYERS)]).to(at.device)
    model = copy.deepcopy(whole)
    for module in [*model, model]:
        fully_shard(module, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard)
    return whole, fsdp.use(model) if uses else model


def batch(at, rank, step=0):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(BATCH, WIDTH, generator=generator).to(at.device)


def gradients_of(at, whole, rank, steps=(0,)):
    """One rank's contribution: gradients of bf16, which several steps add up in fp32."""
    total = None
    for step in steps:
        model = copy.deepcopy(whole).bfloat16()
        model(batch(at, rank, step).bfloat16()).float().square().sum().backward()
        mine = [parameter.grad for parameter in model.parameters()]
        total = [g.float() for g in mine] if total is None else [t + g for t, g in zip(total, mine)]
    return total


def mean(parts):
    """Adds as cecl.h says: in rank order, each element times the same power of two."""
    scale = 1.0
    while scale * len(parts) > 1:
        scale /= 2
    total = parts[0] * scale
    for part in parts[1:]:
        total = total + part * scale
    return total / (scale * len(parts))


def expected(at, whole, steps=(0,), ranks=None):
    every = [gradients_of(at, whole, r, steps) for r in (range(at.size) if ranks is None else ranks)]
    return [mean(parts) for parts in zip(*every)]


def step(at, model, number=0):
    model(batch(at, at.rank, number)).float().square().sum().backward()


def same(got, want, what):
    """Compares. On GPUs a matrix product may have other bits if a matrix begins at another address."""
    if got.is_cuda:
        torch.testing.assert_close(got, want, rtol=0.03, atol=0.03, msg=lambda words: f"{what}: {words}")
    else:
        equal(got, want, what)


def compare(model, wanted, what):
    for (name, parameter), want in zip(model.named_parameters(), wanted):
        assert parameter.grad.dtype == torch.float32, parameter.grad.dtype
        same(parameter.grad.full_tensor(), want, f"{what}: {name}")


def calls_of(function):
    """The calls of cecl that a function makes."""
    calls, library = [], torch_backend.library
    torch_backend.library = type("Library", (), {"call": staticmethod(lambda name, *a: (calls.append(name), library.call(name, *a)))})
    try:
        function()
    finally:
        torch_backend.library = library
    return calls


def mesh_of(at, *sizes):
    names = ("replicate", "shard")[-len(sizes):]
    return init_device_mesh(at.device.type, sizes, mesh_dim_names=names)


def gradients_travel_as_16_bits_and_are_summed_in_fp32(at):
    for dtype in (torch.bfloat16, torch.float16):
        for reshard in (True, False):
            for checkpoints in (True, False):
                whole, model = made(at, mesh_of(at, at.size), MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32),
                                    reshard, checkpoints)
                calls = calls_of(lambda m=model: step(at, m))
                assert calls.count("ceclReduceScatterAs") == LAYERS and "ceclAllGather" in calls, calls
                if dtype == torch.bfloat16:
                    compare(model, expected(at, whole), f"reshard {reshard}, checkpoints {checkpoints}")


def gradients_that_were_added_up_are_not_rounded(at):
    whole, model = made(at, mesh_of(at, at.size))
    wanted = expected(at, whole, (0, 1))
    assert any(not torch.equal(g, g.bfloat16().float()) for g in gradients_of(at, whole, at.rank, (0, 1)))
    for _ in range(2):
        model.set_requires_gradient_sync(False)
        step(at, model, 0)
        model.set_requires_gradient_sync(True)
        step(at, model, 1)
        compare(model, wanted, "two steps")
        model.zero_grad()
    step(at, model)
    compare(model, expected(at, whole), "one step again")


def other_reductions_stay_as_they_are(at):
    for policy in (MixedPrecisionPolicy(), MixedPrecisionPolicy(param_dtype=torch.bfloat16)):
        whole, model = made(at, mesh_of(at, at.size), policy)
        step(at, model)
        total = [p.grad.full_tensor() for p in model.parameters()]
        type_of_sum = policy.param_dtype or torch.float32
        every = []
        for rank in range(at.size):
            alone = copy.deepcopy(whole).to(type_of_sum)
            alone(batch(at, rank).to(type_of_sum)).float().square().sum().backward()
            every.append([p.grad.float() for p in alone.parameters()])
        for got, parts in zip(total, zip(*every)):
            same(got, mean(parts).to(type_of_sum).float(), f"{type_of_sum}")


def shards_may_be_replicated(at):
    if at.size != 4:
        return
    whole, model = made(at, mesh_of(at, 2, 2))
    step(at, model)
    pairs = [expected(at, whole, ranks=ranks) for ranks in ((0, 1), (2, 3))]
    compare(model, [mean(parts) for parts in zip(*pairs)], "2 x 2")


def a_training_and_its_state(at):
    whole, model = made(at, mesh_of(at, at.size))
    optimizer, alone = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, whole))
    for number in range(4):
        wanted = expected(at, whole, (number,))
        step(at, model, number)
        compare(model, wanted, f"step {number}")
        for parameter, gradient in zip(whole.parameters(), wanted):
            parameter.grad = gradient
        for each in (optimizer, alone):
            each.step()
            each.zero_grad()
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    if at.rank == 0:
        for name, parameter in whole.named_parameters():
            same(state[name].to(at.device), parameter.detach(), name)


def wrong_uses_are_named(at):
    refused("call that first", lambda: fsdp.use(torch.nn.Linear(2, 2)))
    scatter, group = fsdp._ReduceScatter(), dist.group.WORLD
    scatter.begin(torch.bfloat16)
    first = scatter.allocate((4 * at.size,), dtype=torch.float32, device=at.device)
    second = scatter.allocate((4,), dtype=torch.float32, device=at.device)
    assert (first.dtype, second.dtype) == (torch.bfloat16, torch.float32)
    refused("SUM or AVG expected", lambda: scatter(second, first, group, dist.ReduceOp.MAX))
    scatter.begin(torch.bfloat16)
    output = scatter.allocate((4,), dtype=torch.float32, device=at.device)  # the output before the source
    source = scatter.allocate((4 * at.size,), dtype=torch.float32, device=at.device)
    refused("elements of torch.bfloat16 as output", lambda: scatter(output, source, group, dist.ReduceOp.SUM))
    _, model = made(at, mesh_of(at, at.size))
    assert fsdp.use(model) is model
    step(at, model)  # once is enough


TESTS = (gradients_travel_as_16_bits_and_are_summed_in_fp32, gradients_that_were_added_up_are_not_rounded,
         other_reductions_stay_as_they_are, shards_may_be_replicated, a_training_and_its_state, wrong_uses_are_named)


if __name__ == "__main__":
    sys.exit(main(TESTS, [(3, "gloo"), (4, "cecl")], "spawn" if kind() == "cuda" else "fork"))  # fork: no other import
