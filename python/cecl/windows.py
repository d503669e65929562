"""One-sided calls in groups of the backend "cecl". Ranks read and write each other's memory in windows, and send signals.

    window = windows.share(inbox)              # all ranks; inbox: a tensor of experts.empty, or on a GPU any contiguous one
    window.put(tensor, peer, signal=7)         # rank 0; the peer makes no call for the copy
    window.wait(0, signal=7)                   # the peer: later work of the current stream sees the bytes

Copy engines move the bytes. On GPUs a one-sided call is enqueued on the current stream, and the group's collectives and
messages do not wait for it. On the CPU the call is done when it returns. cecl.h says more, under "One-sided calls".
"""
import ctypes

import torch

from . import _binding as binding
from ._binding import library
from ._tensors import check, count_of, type_of
from .torch_backend import group_of


class Window:
    """The result of `share`. Offsets count elements of the peer's tensor, which has the same type as this rank's."""

    def __init__(self, tensor, group):
        self._tensor, self._group, self._handle = tensor, group, ctypes.c_void_p()
        self._communicator = group._communicator(tensor.device)
        library.call("ceclWindowShare", self._communicator.handle, tensor.data_ptr(), tensor.nbytes,
                     ctypes.byref(self._handle))

    def _check(self, name):
        if not self._communicator.handle or not self._handle:
            raise RuntimeError(f"cecl: {name}: the {'window' if self._communicator.handle else 'group'} has ended")
        return self._communicator

    def _enqueue(self, name, *arguments):
        communicator = self._check(name)
        self._group.begin_messages()
        stream = None if communicator.stream is None else torch.cuda.current_stream(communicator.device).cuda_stream
        library.call(name, *arguments, communicator.handle, stream)
        if communicator.stream is None:
            communicator.synchronize()

    def _move(self, name, tensor, peer, offset, *signal):
        check(f"{name}: the tensor", tensor)
        if tensor.dtype != self._tensor.dtype or tensor.device != self._tensor.device or offset < 0:
            raise ValueError(f"cecl: {name}: a tensor of {tensor.dtype} on {tensor.device}, at {offset}: {self._tensor.dtype} "
                             f"on {self._tensor.device}, as the window, and an offset of 0 or more expected")
        self._enqueue(name, tensor.data_ptr() or 1, count_of(tensor), type_of(tensor), peer, self._handle,
                      offset * tensor.element_size(), *signal)

    def pointer(self, peer):
        """The address at which this rank reaches the peer's memory."""
        at = ctypes.c_void_p()
        library.call("ceclWindowPointer", self._check("ceclWindowPointer").handle, self._handle, peer, ctypes.byref(at))
        return at.value

    def put(self, tensor, peer, offset=0, signal=None):
        """Copies a tensor into the peer's memory, from element `offset` on. Then sends the peer the signal with the number
        `signal`, unless that is None."""
        if signal is None:
            self._move("ceclPut", tensor, peer, offset)
        else:
            self._move("ceclPutSignal", tensor, peer, offset, signal)

    def get(self, tensor, peer, offset=0):
        """Fills a tensor from the peer's memory, which is read from element `offset` on."""
        self._move("ceclGet", tensor, peer, offset)

    def signal(self, peer, signal=0):
        """Sends a signal, whose number is 0 to 63, after all earlier work of the current stream."""
        self._enqueue("ceclSignal", peer, signal)

    def wait(self, peer, signal=0, count=1):
        """Waits for `count` signals of a peer, and takes them, so later waits need new ones. The current stream waits; on the
        CPU the host does."""
        self._enqueue("ceclWaitSignal", 1, ctypes.byref(binding.SignalWait(peer, signal, count)))

    def free(self):
        """Ends the window. Collective: waits until no one-sided call uses this rank's memory. The memory stays the caller's."""
        if self._handle and self._communicator.handle:
            if self._communicator.stream is not None:
                torch.cuda.synchronize(self._communicator.device)
            library.call("ceclWindowFree", self._communicator.handle, self._handle)
        self._handle = ctypes.c_void_p()


def share(tensor, group=None):
    """Shares a contiguous tensor of each rank; sizes may differ. Collective: waits until all ranks have come."""
    check("share: the tensor", tensor)
    return Window(tensor, group_of("share", group))
