"""How a collective would be carried out here."""
import ctypes

from ._binding import Explanation, library

OPS = {"all_gather": 0, "alltoall": 1}
TYPES = {"int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6,
         "float32": 7, "float64": 8, "bfloat16": 9, "float8e4m3": 10, "float8e5m2": 11}


def _memory(comms, size):
    """Symmetric memory of `size` bytes on each rank."""
    places = [ctypes.c_void_p() for _ in comms]
    library.call("ceclGroupStart")
    for comm, place in zip(comms, places):
        library.call("ceclMemAlloc", comm, ctypes.byref(place), size)
    library.call("ceclGroupEnd")
    return places


def explain(op="all_gather", count=1 << 20, type="float32", ranks=2, in_place=True):
    """Tells how rank 0 of `ranks` would carry out a collective: a dict with what ceclExplain of cecl.h
    tells. Makes a communicator in this process, on GPUs 0 to ranks - 1 if they are there, otherwise on
    the host device. Memory is that of ceclMemAlloc.

    op        "all_gather" or "alltoall"
    count     elements of a block
    in_place  of an all-gather: whether its own block lies in the result already
    """
    if op not in OPS or type not in TYPES:
        raise ValueError(f"explain: op {op!r}, type {type!r}: one of {', '.join(OPS)}, and one of "
                         f"{', '.join(TYPES)} expected")
    comms = (ctypes.c_void_p * ranks)()
    library.call("ceclCommInitAll", comms, ranks, None)
    comms = [ctypes.c_void_p(comm) for comm in comms]
    try:
        whole = count * 8 * ranks # no element has more than 8 bytes
        recv = _memory(comms, whole)[0]
        in_place = in_place and op == "all_gather"
        send = recv if in_place else _memory(comms, whole)[0] # rank 0's own block is the first
        told = Explanation()
        library.call("ceclExplain", OPS[op], send, recv, count, TYPES[type], comms[0], ctypes.byref(told))
    finally:
        for comm in comms:
            library.call("ceclCommDestroy", comm)
    return {name: value.decode() if isinstance(value, bytes) else bool(value) if name == "zero_sm" else value
            for name, value in ((field[0], getattr(told, field[0])) for field in told._fields_)}
