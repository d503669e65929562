"""How a collective would be carried out here."""
import ctypes

from ._places import library

OPS = {"all_gather": 0, "alltoall": 1}
TYPES = {"int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6,
         "float32": 7, "float64": 8, "bfloat16": 9, "float8e4m3": 10, "float8e5m2": 11}


class _Explanation(ctypes.Structure):
    """ceclExplanation_t of cecl.h."""
    _fields_ = [("zero_sm", ctypes.c_int), ("copies", ctypes.c_int), ("local_copies", ctypes.c_int),
                ("reductions", ctypes.c_int), ("kernels", ctypes.c_int), ("barriers", ctypes.c_int),
                ("bytes_sent", ctypes.c_uint64), ("path", ctypes.c_char * 64),
                ("reason", ctypes.c_char * 192)]


class _Library:
    def __init__(self):
        self.calls = ctypes.CDLL(str(library()))
        self.calls.ceclGetLastError.restype = ctypes.c_char_p

    def __call__(self, name, *arguments):
        if getattr(self.calls, name)(*arguments) != 0:
            words = self.calls.ceclGetLastError(None).decode()
            raise RuntimeError(f"{name}: {words}")


def _memory(lib, comms, size):
    """Symmetric memory of `size` bytes on each rank."""
    places = [ctypes.c_void_p() for _ in comms]
    lib("ceclGroupStart")
    for comm, place in zip(comms, places):
        lib("ceclMemAlloc", comm, ctypes.byref(place), ctypes.c_size_t(size))
    lib("ceclGroupEnd")
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
    lib = _Library()
    comms = (ctypes.c_void_p * ranks)()
    lib("ceclCommInitAll", comms, ranks, None)
    comms = [ctypes.c_void_p(comm) for comm in comms]
    try:
        whole = count * 8 * ranks # no element has more than 8 bytes
        recv = _memory(lib, comms, whole)[0]
        in_place = in_place and op == "all_gather"
        send = recv if in_place else _memory(lib, comms, whole)[0] # rank 0's own block is the first
        told = _Explanation()
        lib("ceclExplain", OPS[op], send, recv, ctypes.c_size_t(count), TYPES[type], comms[0],
            ctypes.byref(told))
    finally:
        for comm in comms:
            lib("ceclCommDestroy", comm)
    return {name: value.decode() if isinstance(value, bytes) else bool(value) if name == "zero_sm" else value
            for name, value in ((field[0], getattr(told, field[0])) for field in told._fields_)}
