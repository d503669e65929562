"""Loads NCCL as vLLM does: by name, through ctypes. One handle of the library creates a
communicator, which another handle uses."""
import ctypes
import sys

result_t = ctypes.c_int
comm_t = ctypes.c_void_p


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


def checked(call, *arguments):
    result = call(*arguments)
    if result != 0:
        sys.exit(f"{call.__name__}: {result}")


def buffer(*values):
    return (ctypes.c_int * len(values))(*values)


first = ctypes.CDLL("libnccl.so.2")
# A path opens a separate handle of the real NCCL, without the library in NCCL's place.
second = ctypes.CDLL(sys.argv[1])
first.ncclCommInitRank.argtypes = [ctypes.POINTER(comm_t), ctypes.c_int, UniqueId, ctypes.c_int]
for library in (first, second):
    library.ncclAllReduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
                                      ctypes.c_int, comm_t, ctypes.c_void_p]
    library.ncclCommDestroy.argtypes = [comm_t]

unique_id, comm = UniqueId(), comm_t()
checked(first.ncclGetUniqueId, ctypes.byref(unique_id))
checked(first.ncclCommInitRank, ctypes.byref(comm), 1, unique_id, 0)
for library in (first, second):
    send, recv = buffer(3, 5), buffer(0, 0)
    checked(library.ncclAllReduce, send, recv, 2, 2, 0, comm, None)
    if list(recv) != [3, 5]:
        sys.exit(f"received {list(recv)}")
checked(second.ncclCommDestroy, comm)
print("both handles took the communicator")
