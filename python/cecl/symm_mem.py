"""Symmetric memory for a program's own kernels: each rank has addresses at which its kernels reach all ranks' tensors.
Functions have the same names as in torch.distributed._symmetric_memory.

    tensor = symm_mem.empty(1024, dtype=torch.float32, device="cuda")    # local: peers do not reach it yet
    handle = symm_mem.rendezvous(tensor, group)                          # collective; group: of any backend, or its name
    kernel[grid](handle.buffer_ptrs_dev, handle.signal_pad_ptrs_dev, handle.rank, handle.world_size)

All ranks must be on one host. If a kernel waits for a word of a signal pad, and the rank that should write it dies, cecl
cannot end the kernel: limit the kernel's loop. docs/python.md lists the differences from torch's module.
"""
import ctypes
import mmap
import os

import torch
import torch.distributed as dist

from . import _binding as binding
from ._communicator import Exchange
from .torch_backend import beside
from .windows import Window

_SIGNALS = 32  # a handle uses the upper half of cecl's 64 signals; cecl.windows may use the lower half
_pad_bytes, _pools = 2048, {}


# -- memory


def empty(*size, dtype=None, device=None):
    """A tensor that `rendezvous` takes. Local. On a GPU it lies in memory of torch's allocator; on the CPU in memory that
    other processes can map."""
    size = torch.Size(size[0] if len(size) == 1 and not isinstance(size[0], int) else size)
    dtype = torch.get_default_dtype() if dtype is None else dtype
    device = torch.get_default_device() if device is None else torch.device(device)
    if device.type != "cpu":
        return torch.empty(size, dtype=dtype, device=device)
    file = os.memfd_create("cecl symm_mem")
    try:
        nbytes = max(1, size.numel() * dtype.itemsize)
        os.ftruncate(file, nbytes)
        return torch.frombuffer(mmap.mmap(file, nbytes), dtype=torch.uint8)[:size.numel() * dtype.itemsize].view(dtype).view(size)
    finally:
        os.close(file)  # the mapping keeps a descriptor of its own


def get_mem_pool(device):
    """A torch.cuda.MemPool for torch.cuda.use_mem_pool. `rendezvous` also takes tensors of other pools, if cudaMalloc made
    their memory."""
    device = torch.device(device)
    index = torch.cuda.current_device() if device.index is None else device.index
    if index not in _pools:
        _pools[index] = torch.cuda.MemPool()
    return _pools[index]


def get_signal_pad_size():
    return _pad_bytes


def set_signal_pad_size(size):
    """Sets how many bytes the signal pads of later handles have. All ranks must set the same number."""
    global _pad_bytes  # pylint: disable=global-statement
    if size <= 0 or size % 8:
        raise ValueError(f"cecl: set_signal_pad_size: {size} bytes: a multiple of 8 expected")
    _pad_bytes = size


def set_backend(name):
    """Only checks the name, because there is only one backend."""
    if name not in ("CUDA", "CECL"):
        raise ValueError(f"cecl: set_backend: {name!r}: cecl's own memory is meant here, 'CUDA' or 'CECL' expected")


def get_backend(device):  # pylint: disable=unused-argument; torch's has it
    return "CECL"


def is_nvshmem_available():
    return False


# -- tensors on memory of peers, by DLPack


class _Layout(ctypes.Structure):
    """DLTensor"""
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class _Managed(ctypes.Structure):
    """DLManagedTensor"""
    _fields_ = [("layout", _Layout), ("context", ctypes.c_void_p), ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p))]


_alive = {}  # what a tensor on memory of a peer needs, by the address of its _Managed
_drop = dict(_Managed._fields_)["deleter"](lambda managed: _alive.pop(managed, None) and None)
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def _bytes_at(address, nbytes, device, owner):
    """A tensor of the bytes at an address. The tensor keeps `owner` alive."""
    shape, stride = (ctypes.c_int64 * 1)(nbytes), (ctypes.c_int64 * 1)(1)
    kind = (1, 0) if device.type == "cpu" else (2, device.index)
    managed = _Managed(_Layout(address, *kind, 1, 1, 8, 1, shape, stride, 0), None, _drop)
    _alive[ctypes.addressof(managed)] = (managed, shape, stride, owner)
    return torch.from_dlpack(_new_capsule(ctypes.addressof(managed), b"dltensor", None))


# -- rendezvous


class SymmetricMemory:
    """The handle that `rendezvous` returns: where the memory and the signal pad of each rank lie."""

    multicast_ptr = 0  # cecl uses no multicast

    def __init__(self, tensor, group):
        self._group, self._process, self.device = group, os.getpid(), tensor.device
        memory = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
        pad = empty(_pad_bytes, dtype=torch.uint8, device=tensor.device).zero_()
        if tensor.is_cuda:
            torch.cuda.synchronize(tensor.device)  # so that peers see zeros
        self.buffer_size, self.signal_pad_size = memory.nbytes, pad.nbytes
        self._memory, self._pads = Window(memory, group), Window(pad, group)
        self.buffer_ptrs, self.signal_pad_ptrs = ([window.pointer(r) for r in range(group.size())]
                                                  for window in (self._memory, self._pads))
        self._arrays = [torch.tensor(pointers, dtype=torch.int64, device=tensor.device)
                        for pointers in (self.buffer_ptrs, self.signal_pad_ptrs)]

    rank = property(lambda self: self._group.rank())
    world_size = property(lambda self: self._group.size())
    buffer_ptrs_dev = property(lambda self: self._arrays[0].data_ptr())
    signal_pad_ptrs_dev = property(lambda self: self._arrays[1].data_ptr())

    def _check(self, name):
        if self._process != os.getpid():
            raise RuntimeError(f"cecl: {name}: the handle is of process {self._process}, which this one was forked from")

    def _tensor(self, name, pointers, room, rank, sizes, dtype, offset):
        self._check(name)
        self._memory.pointer(rank)  # raises an error if the group has ended, or if there is no such rank
        sizes, begin = torch.Size(sizes), (offset or 0) * dtype.itemsize
        nbytes = sizes.numel() * dtype.itemsize
        if begin < 0 or begin + nbytes > room:
            raise ValueError(f"cecl: {name}: {tuple(sizes)} elements of {dtype} from element {offset}: {room} bytes are there")
        if nbytes == 0:
            return torch.empty(sizes, dtype=dtype, device=self.device)
        return _bytes_at(pointers[rank] + begin, nbytes, self.device, self).view(dtype).view(sizes)

    def get_buffer(self, rank, sizes, dtype, storage_offset=0):
        """A tensor on the memory of a rank. storage_offset: where the tensor begins in that memory, in elements of `dtype`."""
        return self._tensor("get_buffer", self.buffer_ptrs, self.buffer_size, rank, sizes, dtype, storage_offset)

    def get_signal_pad(self, rank, sizes=(), dtype=None, storage_offset=0):
        """A tensor on the signal pad of a rank; by default on the whole pad, as words of 32 bits."""
        dtype = torch.uint32 if dtype is None else dtype
        sizes = sizes or [self.signal_pad_size // dtype.itemsize - (storage_offset or 0)]
        return self._tensor("get_signal_pad", self.signal_pad_ptrs, self.signal_pad_size, rank, sizes, dtype, storage_offset)

    def _signal(self, name, channel):
        self._check(name)
        if not 0 <= channel < _SIGNALS:
            raise ValueError(f"cecl: {name}: channel {channel}: 0 to {_SIGNALS - 1} expected")
        return binding.SIGNALS - _SIGNALS + channel

    def barrier(self, channel=0, timeout_ms=0):  # pylint: disable=unused-argument; the group's timeout holds
        """Later work of the current stream waits for earlier work of all ranks' current streams. On the CPU the host waits."""
        self._signal("barrier", channel)
        self._memory._enqueue("ceclBarrier")

    def put_signal(self, dst_rank, channel=0, timeout_ms=0):  # pylint: disable=unused-argument
        """Sends a signal to a rank, after all earlier work of the current stream."""
        self._memory._enqueue("ceclSignal", dst_rank, self._signal("put_signal", channel))

    def wait_signal(self, src_rank, channel=0, timeout_ms=0):  # pylint: disable=unused-argument
        """Waits for a signal of a rank. The current stream waits; on the CPU the host does."""
        wait = binding.SignalWait(src_rank, self._signal("wait_signal", channel), 1)
        self._memory._enqueue("ceclWaitSignal", 1, ctypes.byref(wait))

    def free(self):
        """Ends the handle; the end of its group does this, too. Collective. Afterwards no kernel may use peers' memory, and the
        handle no longer keeps this rank's memory allocated."""
        self._check("free")
        self._group.handles.pop(self.buffer_ptrs[self.rank], None)
        for window in (self._memory, self._pads):
            window.free()


def rendezvous(tensor, group=None):
    """Opens the whole storage of `tensor` to the ranks of a group, and their storages to this rank. Collective: waits until
    all ranks have come; their storages must have equal sizes. Later calls for the same memory and group return the same
    handle, and do not wait."""
    group = dist.distributed_c10d._resolve_process_group(group) if isinstance(group, str) else group or dist.group.WORLD
    if group is None or not isinstance(group, dist.ProcessGroup):
        raise TypeError(f"cecl: rendezvous: {group!r}: a process group or its name expected")
    group, storage = beside(group), tensor.untyped_storage()
    if storage.data_ptr() not in group.handles:
        group.handles_made += 1
        store = dist.PrefixStore(f"cecl/symm_mem/{group.handles_made}", group._store)
        sizes = [int(size) for size in Exchange(store, group.rank(), group.size()).all(str(storage.nbytes()))]
        if len(set(sizes)) > 1 or sizes[0] == 0:
            raise ValueError(f"cecl: rendezvous: memory of {sizes} bytes on ranks 0 to {group.size() - 1}: equal numbers expected")
        group.handles[storage.data_ptr()] = SymmetricMemory(tensor, group)
    return group.handles[storage.data_ptr()]
