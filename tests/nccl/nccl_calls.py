"""Direct calls of NCCL on PyTorch's tensors and streams, without PyTorch's process groups."""

import ctypes

import torch.distributed as dist

BFLOAT16, SUM = 9, 0  # ncclBfloat16, ncclSum


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


def load():
    """Returns the library that this process uses as NCCL."""
    library = ctypes.CDLL("libnccl.so.2")
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    library.ncclCommInitRank.argtypes = [ctypes.POINTER(pointer), number, UniqueId, number]
    library.ncclAllGather.argtypes = [pointer, pointer, size, number, pointer, pointer]
    library.ncclAllReduce.argtypes = [pointer, pointer, size, number, number, pointer, pointer]
    library.ncclSend.argtypes = [pointer, size, number, number, pointer, pointer]
    library.ncclRecv.argtypes = [pointer, size, number, number, pointer, pointer]
    library.ncclCommDestroy.argtypes = [pointer]
    return library


class Comm:
    """A communicator of all ranks of the default group. Tensors have type bfloat16, and counts are in elements."""

    def __init__(self):
        self.library, self.comm = load(), ctypes.c_void_p()
        unique_id = UniqueId()
        if dist.get_rank() == 0:
            self.call("ncclGetUniqueId", ctypes.byref(unique_id))
        shared = [bytes(unique_id)]
        dist.broadcast_object_list(shared, 0)
        unique_id = UniqueId.from_buffer_copy(shared[0])
        self.call(
            "ncclCommInitRank",
            ctypes.byref(self.comm),
            dist.get_world_size(),
            unique_id,
            dist.get_rank(),
        )

    def call(self, name, *arguments):
        result = getattr(self.library, name)(*arguments)
        if result != 0:
            raise RuntimeError(f"{name}: {result}")

    def all_gather(self, out, mine, stream):
        arguments = out.data_ptr(), mine.numel(), BFLOAT16
        self.call("ncclAllGather", mine.data_ptr(), *arguments, self.comm, stream.cuda_stream)

    def all_reduce(self, out, mine, stream):
        arguments = out.data_ptr(), mine.numel(), BFLOAT16, SUM
        self.call("ncclAllReduce", mine.data_ptr(), *arguments, self.comm, stream.cuda_stream)

    def send(self, mine, peer, stream):
        arguments = mine.data_ptr(), mine.numel(), BFLOAT16, peer
        self.call("ncclSend", *arguments, self.comm, stream.cuda_stream)

    def recv(self, out, peer, stream):
        arguments = out.data_ptr(), out.numel(), BFLOAT16, peer
        self.call("ncclRecv", *arguments, self.comm, stream.cuda_stream)

    def __enter__(self):
        """Begins a group."""
        self.call("ncclGroupStart")

    def __exit__(self, *error):
        self.call("ncclGroupEnd")

    def destroy(self):
        self.call("ncclCommDestroy", self.comm)
