"""JAX's collectives with cecl in NCCL's place, one process a GPU. Results are compared with plain arithmetic.

    cecl-run --policy all python3 jax_calls.py RANK RANKS ADDRESS [STEPS]

ADDRESS is a free HOST:PORT of rank 0. A process ends with status 1 if anything is wrong. With STEPS a function of two collectives
is called that many times, which gives --policy auto a period for a trial.

With CECL_SHARE_GPU=1 all ranks take GPU 0. NCCL allows that only if the ranks seem to be on different hosts.
"""

import os
import sys

RANK, RANKS, ADDRESS = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
STEPS = int(sys.argv[4]) if len(sys.argv) > 4 else 0
SHARES = os.environ.get("CECL_SHARE_GPU") == "1"
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
if SHARES:
    os.environ["NCCL_HOSTID"] = f"rank {RANK}"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, PartitionSpec  # noqa: E402

jax.distributed.initialize(ADDRESS, RANKS, RANK, local_device_ids=[0 if SHARES else RANK])
MESH = Mesh(np.array(jax.devices()), ("ranks",))


def draw(count, seed):
    """Returns a row for each rank, of small whole numbers, whose sums are exact."""
    return np.random.default_rng(seed).integers(-8, 8, (RANKS, count)).astype(np.float32)


def spread(function, rows):
    """Returns `function`, compiled to run on each rank's row, and the rows."""
    sharding = jax.sharding.NamedSharding(MESH, PartitionSpec("ranks"))
    mine = jax.make_array_from_process_local_data(sharding, rows[RANK : RANK + 1], rows.shape)
    shard_map = getattr(jax, "shard_map", None)
    if shard_map is None:
        from jax.experimental.shard_map import shard_map
    mapped = shard_map(function, mesh=MESH, in_specs=PartitionSpec("ranks"), out_specs=PartitionSpec("ranks"))
    return jax.jit(mapped), mine


def mine_of(out):
    return np.asarray(out.addressable_shards[0].data)


def run(function, rows):
    """Applies `function` to each rank's row. Returns this rank's result."""
    compiled, mine = spread(function, rows)
    return mine_of(compiled(mine))


def expect(got, wanted, what):
    if not np.array_equal(got.reshape(wanted.shape), wanted):
        sys.exit(f"rank {RANK}: {what}: {int((got.reshape(wanted.shape) != wanted).sum())} elements are wrong")


def check(count, seed):
    rows = draw(count, seed)
    expect(run(lambda x: jax.lax.psum(x, "ranks"), rows), rows.sum(0), f"psum of {count}")
    got = run(lambda x: jax.lax.all_gather(x, "ranks").reshape(1, -1), rows)
    expect(got, rows.reshape(-1), f"all_gather of {count}")
    got = run(lambda x: jax.lax.psum_scatter(x[0], "ranks", tiled=True)[jnp.newaxis], rows)
    part = count // RANKS
    expect(got, rows.sum(0)[RANK * part : (RANK + 1) * part], f"psum_scatter of {count}")
    got = run(lambda x: jax.lax.all_to_all(x.reshape(RANKS, -1), "ranks", 0, 0).reshape(1, -1), rows)
    expect(got, rows.reshape(RANKS, RANKS, part)[:, RANK].reshape(-1), f"all_to_all of {count}")


def repeat(steps, count, seed):
    """Parameters are gathered and gradients reduced, as in a training."""
    rows = draw(count, seed)

    def step(x):
        reduced = jax.lax.psum_scatter(x[0], "ranks", tiled=True)
        return jax.lax.all_gather(reduced, "ranks").reshape(1, -1)

    compiled, mine = spread(step, rows)
    for number in range(steps):
        out = compiled(mine)
        if number % 20 == 19 or number == steps - 1:
            expect(mine_of(out), rows.sum(0), f"step {number}")


for number, size in enumerate([RANKS * 128, RANKS * 4096, RANKS << 20]):
    check(size, number)
repeat(STEPS, RANKS << 20, 4)
if RANK == 0:
    print("ok  psum, all_gather, psum_scatter, all_to_all", flush=True)
