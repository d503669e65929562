"""A communicator of cecl's in a process group, how its ranks meet, and the work that it has enqueued."""
import ctypes

import torch
import torch.distributed as dist

from . import _binding as binding
from ._binding import library


class Work(dist._Work):
    """A call that is enqueued. `results` are the tensors that it writes."""

    def __init__(self, communicator, results, event):
        super().__init__()
        self._communicator, self._results, self._event, self._done = communicator, results, event, False

    def wait(self, timeout=None):
        """Makes the current stream wait for the call; on the CPU, the host."""
        if self._event is not None:
            torch.cuda.current_stream(self._communicator.device).wait_event(self._event)
        elif not self._done:
            self._communicator.synchronize()
        self._done = True
        return True

    def is_completed(self):
        """Whether the call is done. On the CPU nothing tells that, so this waits for the call, and returns True."""
        return self._event.query() if self._event is not None else self.wait()

    def is_success(self):
        return self.is_completed()

    def synchronize(self):
        self.wait()

    def result(self):
        return self._results

    def get_future(self):
        """A future of the results. On GPUs it is done at once, and its users' streams wait for the call."""
        if self._event is None:
            self.wait()
            future = torch.futures.Future()
            future.set_result(self._results)
            return future
        future = torch.futures.Future(devices=[self._communicator.device])
        with torch.cuda.stream(self._communicator.stream):
            future.set_result(self._results)
        return future


class Exchange:
    """Exchanges bytes through a group's store, by which the ranks of a new communicator meet."""

    def __init__(self, store, rank, size):
        self._store, self._rank, self._size, self._round = store, rank, size, 0
        self.oob = binding.Oob(None, binding.GATHER(self._gather))

    def all(self, mine):
        """Returns the bytes of each rank, in rank order."""
        self._round += 1
        self._store.set(f"{self._round}/{self._rank}", mine)
        keys = [f"{self._round}/{r}" for r in range(self._size)]
        self._store.wait(keys)
        return [self._store.get(key) for key in keys]

    def _gather(self, _context, send, recv, count):
        try:
            all_ranks = self.all(ctypes.string_at(send, count))
            ctypes.memmove(recv, b"".join(all_ranks), count * self._size)
            return 0
        except Exception:  # pylint: disable=broad-except; cecl reports what failed
            return 1


class Communicator:
    """A communicator of cecl's for the GPU or the CPU of this rank. `make` writes its handle."""

    def __init__(self, device, make):
        self.device, self.handle = device, ctypes.c_void_p()
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._kept = []  # tensors of calls that may be pending, on the CPU
        make(ctypes.byref(self.handle))

    @classmethod
    def join(cls, store, rank, size, device, timeout):
        """Joins a new communicator, whose ranks meet through a store."""
        fields = {"device": binding.DEVICE_HOST}
        if device.type == "cuda":
            fields = {"device": binding.DEVICE_CUDA, "cudaDevice": device.index}
        fields["timeoutMs"] = max(1, min(int(timeout.total_seconds() * 1000), 2**31 - 1))
        exchange, config = Exchange(store, rank, size), binding.Config(library.version(), **fields)
        return cls(device, lambda handle: library.call("ceclCommInitOob", handle, size, rank, ctypes.byref(exchange.oob),
                                                       ctypes.byref(config)))

    def split(self, color):
        """Splits: returns the communicator of the ranks with this color. If color is None, it has no handle."""
        number = binding.UNDEF if color is None else color
        return Communicator(self.device, lambda handle: library.call("ceclCommSplit", self.handle, number, 0, handle, None))

    @property
    def stream_handle(self):
        return None if self.stream is None else self.stream.cuda_stream

    def begin(self):
        """Work that is enqueued from here on runs after the work of the current stream."""
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(self.device))

    def end(self, used, results):
        """Returns the work enqueued so far. The memory of `used` stays until the stream has done this work."""
        if self.stream is None:
            self._kept.append(used)
            if len(self._kept) > 64:  # the program does not wait for its calls
                self.synchronize()
            return Work(self, results, None)
        for tensor in used:
            tensor.record_stream(self.stream)
        return Work(self, results, self.stream.record_event())

    def synchronize(self):
        """On the CPU: waits for all calls."""
        library.call("ceclStreamSynchronize", self.handle, None)
        self._kept.clear()

    def close(self, aborts):
        if self.handle:
            library.call("ceclCommAbort" if aborts else "ceclCommDestroy", self.handle)
            self.handle = ctypes.c_void_p()
