"""A process group's cecl communicator, the exchange by which its ranks meet, and the work objects of its calls."""
import ctypes

import torch
import torch.distributed as dist

from . import _binding as binding
from ._binding import library


class Work(dist._Work):
    """An enqueued call. `results` are the tensors that it writes."""

    def __init__(self, communicator, results, event):
        super().__init__()
        self._communicator, self._results, self._event, self._done = communicator, results, event, False

    def wait(self, timeout=None):
        """Makes the current stream wait for the call. On the CPU the host waits."""
        if self._event is not None:
            torch.cuda.current_stream(self._communicator.device).wait_event(self._event)
        elif not self._done:
            self._communicator.synchronize()
        self._done = True
        return True

    def is_completed(self):
        """Whether the call is done. On the CPU nothing tells that, so this method waits for the call and returns True."""
        return self._event.query() if self._event is not None else self.wait()

    def is_success(self):
        return self.is_completed()

    def synchronize(self):
        self.wait()

    def result(self):
        return self._results

    def get_future(self):
        """A future of the results. On GPUs the future is done at once, and streams that use its value wait for the call. On
        the CPU the host first waits for the call."""
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
    """Exchanges bytes through a group's store. The ranks of a new communicator meet by this exchange."""

    def __init__(self, store, rank, size):
        self._store, self._rank, self._size, self._round = store, rank, size, 0
        self.oob = binding.Oob(None, binding.GATHER(self._gather))

    def all(self, mine):
        """Publishes `mine`, the bytes of this rank, waits for all ranks, and returns their bytes in rank order."""
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
    """A cecl communicator on this rank's GPU or on the CPU. make(pointer) makes it, and writes its handle to `pointer`."""

    def __init__(self, device, make):
        self.device, self.handle = device, ctypes.c_void_p()
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._kept = []  # on the CPU: tensors of calls that may be pending
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
        """Makes a communicator of the ranks that pass the same color. If color is None, the result has no handle."""
        number = binding.UNDEF if color is None else color
        return Communicator(self.device, lambda handle: library.call("ceclCommSplit", self.handle, number, 0, handle, None))

    @property
    def stream_handle(self):
        return None if self.stream is None else self.stream.cuda_stream

    def begin(self):
        """Makes calls that are enqueued from now on wait for the work that is now on the current stream."""
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(self.device))

    def end(self, used, results):
        """Returns a work object for the calls enqueued so far. Keeps the memory of the tensors `used` until the calls end."""
        if self.stream is None:
            self._kept.append(used)
            if len(self._kept) > 64:  # the program has not waited for its last calls
                self.synchronize()
            return Work(self, results, None)
        for tensor in used:
            tensor.record_stream(self.stream)
        return Work(self, results, self.stream.record_event())

    def synchronize(self):
        """Only on the CPU: waits for all calls."""
        library.call("ceclStreamSynchronize", self.handle, None)
        self._kept.clear()

    def close(self, aborts):
        if self.handle:
            library.call("ceclCommAbort" if aborts else "ceclCommDestroy", self.handle)
            self.handle = ctypes.c_void_p()
