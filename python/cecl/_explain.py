"""Tells how cecl would carry out a collective on this machine."""
import ctypes

from . import _binding as binding
from ._binding import Explanation, library

TYPES = {"int8": binding.INT8, "uint8": binding.UINT8, "int32": binding.INT32, "uint32": binding.UINT32,
         "int64": binding.INT64, "uint64": binding.UINT64, "float16": binding.FLOAT16,
         "float32": binding.FLOAT32, "float64": binding.FLOAT64, "bfloat16": binding.BFLOAT16,
         "float8e4m3": binding.FLOAT8E4M3, "float8e5m2": binding.FLOAT8E5M2}
REDUCTIONS = {"sum": binding.SUM, "prod": binding.PROD, "max": binding.MAX, "min": binding.MIN,
              "avg": binding.AVG}
# {op: (the function, whether it takes a reduction after the datatype, whether it then takes a root)}
OPS = {"all_gather": ("ceclAllGather", False, False), "alltoall": ("ceclAlltoAll", False, False),
       "broadcast": ("ceclBroadcast", False, True), "gather": ("ceclGather", False, True),
       "scatter": ("ceclScatter", False, True), "reduce_scatter": ("ceclReduceScatter", True, False),
       "all_reduce": ("ceclAllReduce", True, False), "reduce": ("ceclReduce", True, True)}


def _memory(comms, size):
    """Allocates symmetric memory of `size` bytes on each rank, and returns rank 0's address."""
    places = [ctypes.c_void_p() for _ in comms]
    library.call("ceclGroupStart")
    try:
        for comm, place in zip(comms, places):
            library.call("ceclMemAlloc", comm, ctypes.byref(place), size)
    finally:
        library.call("ceclGroupEnd")
    return places[0]


def _told(comm, op, arguments):
    """Makes rank 0's call in a group, which is not carried out, and returns what ceclGroupExplain tells of it."""
    told = Explanation()
    library.call("ceclGroupStart")
    try:
        library.call(OPS[op][0], *arguments, comm, None)
    finally:
        # ends the group; if cecl refused the call above, this raises an Error with the refusal's message
        library.call("ceclGroupExplain", comm, ctypes.byref(told))
    return {name: value.decode() if isinstance(value, bytes) else bool(value) if name == "zero_sm" else value
            for name, value in ((field[0], getattr(told, field[0])) for field in told._fields_)}


def _one_of(name, value, known):
    if value not in known:
        raise ValueError(f"explain: {name} {value!r}: one of {', '.join(known)} expected")
    return known[value]


def explain(op="all_gather", count=1 << 20, type="float32", ranks=2, in_place=False, reduction="sum"):
    """Tells how rank 0 of `ranks` ranks would carry out a collective: returns a dict with the fields of cecl.h's
    ceclExplanation_t. Makes a communicator in this process, on GPUs 0 to ranks - 1 if the machine has them,
    otherwise on the host device. The buffers are memory of ceclMemAlloc.

    op         "all_gather", "alltoall", "broadcast", "gather", "scatter", "reduce_scatter", "all_reduce"
               or "reduce"; rank 0 is the root
    count      the number of elements that the op's function in cecl.h takes as its argument
    type       of the elements: ceclDataType_t in lower case, such as "float32" or "bfloat16"
    in_place   whether the call is in place on rank 0
    reduction  of reduce_scatter, all_reduce and reduce: "sum", "prod", "max", "min" or "avg"
    """
    _, reduces, is_rooted = _one_of("op", op, OPS)
    arguments = [count, _one_of("type", type, TYPES)]
    arguments += [_one_of("reduction", reduction, REDUCTIONS)] if reduces else []
    arguments += [0] if is_rooted else []
    handles = (ctypes.c_void_p * ranks)()
    library.call("ceclCommInitAll", handles, ranks, None)
    comms = [ctypes.c_void_p(handle) for handle in handles]
    try:
        most = count * 8 * ranks # no element has more than 8 bytes
        recv = _memory(comms, most)
        send = recv if in_place else _memory(comms, most) # rank 0's own block is the first one
        return _told(comms[0], op, [send, recv, *arguments])
    finally:
        for comm in comms:
            library.call("ceclCommDestroy", comm)
