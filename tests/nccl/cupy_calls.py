"""CuPy's NCCL with cecl in its place, one process a GPU. Results are compared with plain arithmetic.

    cecl-run --policy all python3 cupy_calls.py RANK RANKS FILE

Rank 0 writes NCCL's unique id to FILE, which must not exist. A process ends with status 1 if anything is wrong.

With CECL_SHARE_GPU=1 all ranks take GPU 0. NCCL allows that only if the ranks seem to be on different hosts.
"""

import os
import pickle
import sys
import time

RANK, RANKS, FILE = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
SHARES = os.environ.get("CECL_SHARE_GPU") == "1"
if SHARES:
    os.environ["NCCL_HOSTID"] = f"rank {RANK}"

import cupy  # noqa: E402
from cupy.cuda import nccl  # noqa: E402

PATIENCE_S = 60


def share(unique_id):
    """Returns rank 0's id on all ranks. A rename makes the whole file appear at once."""
    if RANK == 0:
        with open(FILE + ".part", "wb") as file:
            pickle.dump(unique_id, file)  # a tuple of integers, and bytes since CuPy 14
        os.rename(FILE + ".part", FILE)
        return unique_id
    end = time.monotonic() + PATIENCE_S
    while not os.path.exists(FILE):
        if time.monotonic() > end:
            sys.exit(f"rank {RANK}: rank 0 wrote no unique id to {FILE} in {PATIENCE_S} s")
        time.sleep(0.01)
    with open(FILE, "rb") as file:
        return pickle.load(file)


def draw(count, seed):
    """Returns a row for each rank, of small whole numbers, whose sums are exact."""
    return cupy.random.RandomState(seed).randint(-8, 8, (RANKS, count)).astype(cupy.float32)


def expect(got, wanted, what):
    if not bool((got == wanted).all()):
        sys.exit(f"rank {RANK}: {what}: {int((got != wanted).sum())} elements are wrong")


def check(comm, count, seed):
    rows, stream = draw(count, seed), cupy.cuda.get_current_stream().ptr
    mine, kind = rows[RANK].copy(), nccl.NCCL_FLOAT32
    out = cupy.full(count, 77, cupy.float32)
    comm.allReduce(mine.data.ptr, out.data.ptr, count, kind, nccl.NCCL_SUM, stream)
    expect(out, rows.sum(0), f"allReduce of {count}")
    out = cupy.full(RANKS * count, 77, cupy.float32)
    comm.allGather(mine.data.ptr, out.data.ptr, count, kind, stream)
    expect(out, rows.reshape(-1), f"allGather of {count}")
    part = count // RANKS
    out = cupy.full(part, 77, cupy.float32)
    comm.reduceScatter(mine.data.ptr, out.data.ptr, part, kind, nccl.NCCL_SUM, stream)
    expect(out, rows.sum(0)[RANK * part : (RANK + 1) * part], f"reduceScatter of {count}")
    root = seed % RANKS
    out = mine.copy()
    comm.bcast(out.data.ptr, count, kind, root, stream)
    expect(out, rows[root], f"bcast of {count}")
    to, source = (RANK + 1) % RANKS, (RANK - 1) % RANKS
    out = cupy.full(count, 77, cupy.float32)
    nccl.groupStart()
    comm.send(mine.data.ptr, count, kind, to, stream)
    comm.recv(out.data.ptr, count, kind, source, stream)
    nccl.groupEnd()
    expect(out, rows[source], f"send and recv of {count}")


cupy.cuda.Device(0 if SHARES else RANK).use()
communicator = nccl.NcclCommunicator(RANKS, share(nccl.get_unique_id() if RANK == 0 else None), RANK)
for number, size in enumerate([RANKS, RANKS * 1000, RANKS << 20]):
    check(communicator, size, number)
communicator.destroy()
if RANK == 0:
    print("ok  allReduce, allGather, reduceScatter, bcast, send and recv", flush=True)
