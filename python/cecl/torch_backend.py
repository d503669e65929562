"""A backend of torch.distributed: dist.init_process_group("cecl"), or new_group(backend="cecl").

Makes collectives and messages of contiguous tensors, on GPUs (without SMs if they only move data) and on the CPU. A
group makes a communicator for each device at the first call with a tensor of that device, so all ranks of the group
must make that first call. All ranks must be on one host: with GPUs several hosts were not tested, on the CPU they are refused.

Messages are collected until the program waits for one of them, or the group makes another call. Then all of them are
sent together, so two ranks may send to each other in any order.

As with NCCL, a call on GPU tensors with async_op=True is enqueued on a stream of the group's own, after the work of the
current stream. `wait()` then makes the current stream wait for the call; the host does not wait. Most calls without
async_op=True are enqueued on the current stream. For calls on CPU tensors the host waits in `wait()`.
"""
import weakref

import torch
import torch.distributed as dist

from . import _binding as binding
from ._binding import library
from ._communicator import Communicator, Exchange
from ._tensors import check, count_of, operation_of, type_of


def group_of(function, group):
    """Finds a group of this backend. group: the group, its name, or None for the group of all ranks."""
    if isinstance(group, str):
        group = dist.distributed_c10d._resolve_process_group(group)
    group = dist.group.WORLD if group is None else group
    if not isinstance(group, ProcessGroupCecl):
        given = "no group" if group is None else f"a group of the backend {dist.get_backend(group)!r}"
        raise ValueError(f"cecl: {function}: {given}: a group of the backend 'cecl' expected, such as of "
                         "dist.new_group(backend='cecl')")
    return group


_beside = weakref.WeakKeyDictionary()  # {group of another backend: group of this backend with the same ranks}


def beside(group):
    """The group itself if it is of this backend. Otherwise a group of this backend with the same ranks and store."""
    if isinstance(group, ProcessGroupCecl):
        return group
    if group not in _beside:
        store = dist.PrefixStore("cecl/beside", dist.distributed_c10d._get_process_group_store(group))
        _beside[group] = ProcessGroupCecl(store, group.rank(), group.size(), dist.distributed_c10d.default_pg_timeout)
    return _beside[group]


def finish(work, async_op):
    """With async_op returns the work. Without it makes the current stream wait for the work, and returns None."""
    if async_op or work is None:
        return work
    work.wait()
    return None


def _is_async(opts):
    """Whether the caller wants a work object, to wait for it. In older versions of torch, without the option, it always does."""
    return getattr(opts, "asyncOp", True)


def _only(name, tensors):
    if len(tensors) != 1:
        raise ValueError(f"cecl: {name}: {len(tensors)} tensors: one expected")
    return tensors[0]


def _parts(name, lists, size, tensor):
    """Returns the only list in `lists`. It must have a tensor for each rank, with as many elements as `tensor`."""
    parts = _only(name, lists)
    if len(parts) != size or any(part.numel() != tensor.numel() for part in parts):
        raise ValueError(f"cecl: {name} of {tensor.numel()} elements on {size} ranks: a list of tensors with "
                         f"{[part.numel() for part in parts]} elements")
    return parts


class _Message(dist._Work):
    """A message that is collected, to be sent together with others."""

    def __init__(self, group, device, results, call):
        super().__init__()
        self.device, self.results, self.call, self.work, self.error = device, results, call, None, None
        self._group = group

    def _begun(self):
        if self.work is None:
            self._group.begin_messages()
        if self.error is not None:
            raise self.error
        return self.work

    def wait(self, timeout=None):
        return self._begun().wait(timeout)

    def is_completed(self):
        return self._begun().is_completed()

    def is_success(self):
        return self.is_completed()

    def synchronize(self):
        self.wait()

    def result(self):
        return self.results

    def get_future(self):
        return self._begun().get_future()


class ProcessGroupCecl(dist.ProcessGroup):
    """The process group; torch.distributed calls its methods."""

    supports_coalescing = True
    supports_splitting = False

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self._store, self._rank, self._size, self._timeout = store, rank, size, timeout
        self._communicators, self._grouped, self._messages, self._name, self._desc = {}, None, [], "", ""
        self._splits_made = 0
        self.handles, self.handles_made = {}, 0  # symm_mem's handles, by the address of their memory

    # -- what torch asks of a group

    def getBackendName(self):
        return "cecl"

    def name(self):
        return "cecl"

    def rank(self):
        return self._rank

    def size(self):
        return self._size

    def _get_backend(self, _device):
        return self

    def _get_backend_name(self):
        return "cecl"

    @property
    def supports_reconfigure(self):
        return False

    def _set_group_name(self, name):
        self._name = name

    setGroupName = _set_group_name

    @property
    def group_name(self):
        return self._name

    def getGroupName(self):
        return self._name

    def _set_group_desc(self, desc):
        self._desc = desc

    setGroupDesc = _set_group_desc

    @property
    def group_desc(self):
        return self._desc

    def getGroupDesc(self):
        return self._desc

    def _has_hooks(self):
        return False

    def _set_sequence_number_for_group(self):
        pass

    def set_timeout(self, timeout):
        """Sets the timeout of communicators that are made later."""
        self._timeout = timeout

    def shutdown(self):
        self._close(False)

    def abort(self):
        self._close(True)

    def _close(self, aborts):
        for communicator in self._communicators.values():
            communicator.close(aborts)
        self._communicators = {}

    def __del__(self):
        try:
            self._close(False)
        except Exception:  # pylint: disable=broad-except; the interpreter may be ending
            pass

    # -- calls

    def _communicator(self, device):
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        key = (device.type, device.index if device.type == "cuda" else 0)
        found = self._communicators.get(key)
        if found is None:
            number = sum(kind == device.type for kind, _ in self._communicators)
            store = dist.PrefixStore(f"cecl/{device.type}/{number}", self._store)
            found = Communicator.join(store, self._rank, self._size, device, self._timeout)
            self._communicators[key] = found
        return found

    def _run(self, name, tensors, results, call, dense=True, async_op=True):
        """Enqueues call(communicator, stream) on the device of `tensors`. Returns its work; None without async_op, or if a
        group of calls has begun. Checks the tensors, unless `dense` is None, and keeps them until the call is done. Without
        async_op and outside a group, a GPU call goes to the current stream."""
        for number, tensor in enumerate(tensors if dense is not None else ()):
            check(f"{name}: tensor {number}", tensor, dense)
            if tensor.device != tensors[0].device:
                raise ValueError(f"cecl: {name}: tensors on {tensors[0].device} and {tensor.device} in one call")
        self.begin_messages()
        communicator = self._communicator(tensors[0].device)
        if not async_op and self._grouped is None and communicator.stream is not None:
            call(communicator.handle, torch.cuda.current_stream(communicator.device).cuda_stream)
            return None
        communicator.begin()  # at each call of a group, too: the program may write tensors between the calls
        if self._grouped is not None:
            if not self._grouped:  # not earlier: a communicator cannot be made within a group
                library.call("ceclGroupStart")
            self._grouped.append((communicator, tensors, results))
            call(communicator.handle, communicator.stream_handle)
            return None
        call(communicator.handle, communicator.stream_handle)
        return finish(communicator.end(tensors, results), async_op)

    def _call(self, name, tensors, results, *arguments, async_op=True):
        """Enqueues a function of cecl.h whose last parameters are the communicator and the stream. Passes tensors among the
        arguments as their addresses."""
        addresses = [a.data_ptr() if isinstance(a, torch.Tensor) else a for a in arguments]
        return self._run(name, tensors, results, lambda comm, stream: library.call(name, *addresses, comm, stream),
                         async_op=async_op)

    def _with_stream(self, device, function):
        """Enqueues what function() does on the group's stream, after the group's calls. On the CPU first waits for them."""
        communicator = self._communicator(device)
        if communicator.stream is None:
            communicator.synchronize()
            return function()
        with torch.cuda.stream(communicator.stream):
            return function()

    def start_coalescing(self, _device=None):
        if self._grouped is not None:
            raise RuntimeError("cecl: coalescing within coalescing")
        self.begin_messages()
        self._grouped = []

    def end_coalescing(self, _device=None):
        calls, self._grouped = self._grouped or [], None
        if not calls:
            return None
        library.call("ceclGroupEnd")
        if len({id(communicator) for communicator, _, _ in calls}) != 1:
            raise ValueError("cecl: coalesced calls on tensors of several devices")
        used = [tensor for _, tensors, _ in calls for tensor in tensors]
        return calls[0][0].end(used, [tensor for _, _, results in calls for tensor in results])

    _start_coalescing = start_coalescing
    _end_coalescing = end_coalescing

    def _coalesced(self, calls):
        """Makes all calls in one group of cecl's, and returns their work. If torch has begun to coalesce calls, only adds
        these calls to its group, and returns None."""
        if self._grouped is not None:
            for call in calls:
                call()
            return None
        self.start_coalescing()
        try:
            for call in calls:
                call()
        finally:
            work = self.end_coalescing()
        return work

    # -- collectives

    def _all_gather(self, output, source, async_op=True):
        if output.numel() != source.numel() * self._size or output.dtype != source.dtype:
            raise ValueError(f"cecl: all-gather of {source.numel()} elements of {source.dtype} on {self._size} ranks: "
                             f"{output.numel()} elements of {output.dtype} as output")
        return self._call("ceclAllGather", [source, output], [output], source, output, count_of(source),
                          type_of(source), async_op=async_op)

    def all_gather_single(self, output, source, opts=None):
        return self._all_gather(output, source, _is_async(opts))

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs, sources, _opts=None):
        return self._coalesced([lambda o=o, s=s: self._all_gather(o, s) for o, s in zip(outputs, sources)])

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather(self, outputs, sources, _opts=None):
        source = _only("all-gather", sources)
        parts = _parts("all-gather", outputs, self._size, source)
        flat = source.new_empty((self._size, *source.shape))
        self._all_gather(flat, source)
        return self._copy_out(parts, list(flat), flat)

    def _copy_out(self, parts, blocks, flat):
        """Copies what arrived in `flat` to separate tensors, after the call."""
        def copy():
            for part, block in zip(parts, blocks):
                part.copy_(block.view(part.shape))
        self._with_stream(flat.device, copy)
        work = self._communicator(flat.device).end([flat, *parts], parts)
        return work

    def _all_reduce(self, output, source, op, async_op=True):
        if output.numel() != source.numel() or output.dtype != source.dtype:
            raise ValueError(f"cecl: all-reduce of {source.numel()} elements of {source.dtype}: {output.numel()} elements of "
                             f"{output.dtype} as output")
        return self._call("ceclAllReduce", [source, output], [output], source, output, source.numel(), type_of(source, True),
                          operation_of(op), async_op=async_op)

    def allreduce(self, tensors, opts):
        tensor = _only("all-reduce", tensors)
        return self._all_reduce(tensor, tensor, opts.reduceOp, _is_async(opts))

    def allreduce_coalesced(self, tensors, opts):
        return self._coalesced([lambda t=t: self._all_reduce(t, t, opts.reduceOp) for t in tensors])

    def reduce(self, tensors, opts):
        tensor = _only("reduce", tensors)
        return self._call("ceclReduce", [tensor], [tensor], tensor, tensor, tensor.numel(), type_of(tensor, True),
                          operation_of(opts.reduceOp), opts.rootRank, async_op=_is_async(opts))

    def broadcast(self, tensors, opts):
        tensor = _only("broadcast", tensors)
        return self._call("ceclBroadcast", [tensor], [tensor], tensor, tensor, count_of(tensor), type_of(tensor),
                          opts.rootRank, async_op=_is_async(opts))

    def _reduce_scatter(self, output, source, op, async_op=True):
        widens = output.dtype == torch.float32 and source.dtype in (torch.bfloat16, torch.float16)
        if source.numel() != output.numel() * self._size or not (widens or output.dtype == source.dtype):
            raise ValueError(f"cecl: reduce-scatter of {source.numel()} elements of {source.dtype} on {self._size} "
                             f"ranks: {output.numel()} elements of {output.dtype} as output")
        return self._call("ceclReduceScatterAs", [source, output], [output], source, output, output.numel(),
                          type_of(source, True), type_of(output, True), operation_of(op), async_op=async_op)

    def reduce_scatter_single(self, output, source, opts):
        return self._reduce_scatter(output, source, opts.reduceOp, _is_async(opts))

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs, sources, opts):
        return self._coalesced([lambda o=o, s=s: self._reduce_scatter(o, s, opts.reduceOp)
                                for o, s in zip(outputs, sources)])

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def reduce_scatter(self, outputs, sources, opts):
        output, parts = _only("reduce-scatter", outputs), _only("reduce-scatter", sources)
        return self._reduce_scatter(output, torch.cat([part.reshape(-1) for part in parts]), opts.reduceOp, _is_async(opts))

    def all_to_all_single(self, output, source, output_splits, input_splits, opts=None, async_op=None):
        size, async_op = self._size, _is_async(opts) if async_op is None else async_op
        if not output_splits and not input_splits:
            if source.numel() % size or output.numel() != source.numel():
                raise ValueError(f"cecl: all-to-all of {source.numel()} elements on {size} ranks into {output.numel()}")
            return self._call("ceclAlltoAll", [source, output], [output], source, output,
                              count_of(source, source.numel() // size), type_of(source), async_op=async_op)
        sends = self._splits("input", source, input_splits)
        receives = self._splits("output", output, output_splits)
        starts = [sum(counts[:r]) for counts in (sends, receives) for r in range(size)]
        address = output.data_ptr() or 1  # a rank that receives nothing passes any address but NULL
        return self._call("ceclAlltoAllv", [source, output], [output], source, binding.sizes(sends),
                          binding.sizes(starts[:size]), address, binding.sizes(receives), binding.sizes(starts[size:]),
                          type_of(source), async_op=async_op)

    alltoall_base = all_to_all_single

    def _splits(self, name, tensor, splits):
        """The number of elements for each rank. splits: the number of rows for each rank; empty: equal parts."""
        rows = tensor.shape[0] if tensor.dim() > 0 else 1
        splits = list(splits) or [rows // self._size] * self._size
        if len(splits) != self._size or sum(splits) != rows:
            raise ValueError(f"cecl: {name} splits {splits} of a tensor of {rows} rows on {self._size} ranks")
        row = tensor.numel() // rows if rows else 0
        return [count_of(tensor, split * row) for split in splits]

    def alltoall(self, outputs, sources, _opts=None):
        flat = torch.cat([source.reshape(-1) for source in sources])
        received = flat.new_empty(sum(output.numel() for output in outputs))
        sends, receives = [s.numel() for s in sources], [o.numel() for o in outputs]
        self.all_to_all_single(received, flat, receives, sends)
        return self._copy_out(outputs, received.split(receives), received)

    def gather(self, outputs, sources, opts):
        source, root = _only("gather", sources), opts.rootRank
        parts = _parts("gather", outputs, self._size, source) if self._rank == root else []
        flat = source.new_empty((self._size, *source.shape)) if self._rank == root else source
        work = self._call("ceclGather", [source, flat], [flat], source, flat, count_of(source), type_of(source), root)
        return self._copy_out(parts, list(flat), flat) if self._rank == root else work

    def scatter(self, outputs, sources, opts):
        output, root = _only("scatter", outputs), opts.rootRank
        flat = output
        if self._rank == root:
            flat = torch.cat([part.reshape(-1) for part in _parts("scatter", sources, self._size, output)])
        return self._call("ceclScatter", [flat, output], [output], flat, output, count_of(output), type_of(output),
                          root)

    def barrier(self, opts=None):
        """Makes the host wait, too, as users of torch expect of a barrier."""
        device = getattr(opts, "device", None)
        self.begin_messages()
        if device is None and self._communicators:
            communicator = next(iter(self._communicators.values()))  # the first that the group made: the same on all ranks
        else:
            communicator = self._communicator(device or torch.device("cpu"))
        communicator.begin()
        library.call("ceclBarrier", communicator.handle, communicator.stream_handle)
        library.call("ceclStreamSynchronize", communicator.handle, communicator.stream_handle)
        return communicator.end([], [])

    # -- messages

    def _message(self, name, tensor, results, peer):
        """Collects a message. If torch has begun to coalesce calls, adds the message to torch's group instead."""
        def call():
            return self._call(name, [tensor], results, tensor, count_of(tensor), type_of(tensor), peer)
        if self._grouped is not None:
            return call()
        check("the message", tensor)
        if self._messages and self._messages[0].device != tensor.device:
            self.begin_messages()
        self._messages.append(_Message(self, tensor.device, results, call))
        return self._messages[-1]

    def begin_messages(self):
        """Enqueues all collected messages in one group."""
        messages, self._messages = self._messages, []
        if not messages:
            return
        try:
            work = self._coalesced([message.call for message in messages])
        except Exception as error:
            for message in messages:
                message.error = error
            raise
        for message in messages:
            message.work = work

    def send(self, tensors, peer, _tag=0):
        tensor = _only("send", tensors)
        return self._message("ceclSend", tensor, [], peer)

    def recv(self, tensors, peer, _tag=0):
        tensor = _only("recv", tensors)
        return self._message("ceclRecv", tensor, [tensor], peer)


def split(color, group=None):
    """Makes a group of the ranks of `group` that give this color (a number of 0 or more), in their order in `group`.
    Returns None if color is None. Collective over `group`. Also splits the communicators of `group` (ceclCommSplit): memory
    that is registered in them is then registered in the new ones, too."""
    parent = group_of("split", group)
    if color is not None and not (isinstance(color, int) and 0 <= color < 2**31):
        raise ValueError(f"cecl: split: color {color!r}: a number from 0 to 2**31 - 1, or None, expected")
    parent._splits_made += 1
    store = dist.PrefixStore(f"cecl/split/{parent._splits_made}", parent._store)
    colors = Exchange(store, parent.rank(), parent.size()).all(str(color))
    child = None
    if color is not None:
        members = [dist.get_global_rank(parent, r) for r, theirs in enumerate(colors) if theirs == str(color).encode()]
        child = dist.new_group(members, timeout=parent._timeout, backend="cecl", use_local_synchronization=True)
    for key, communicator in sorted(parent._communicators.items()):
        made = communicator.split(color)
        if child is not None:
            child._communicators[key] = made
    return child


def _create(store, rank, size, timeout):
    return ProcessGroupCecl(store, rank, size, timeout)


def register():
    """Makes the backend "cecl" known to torch.distributed. torch 2.15 calls this function by itself. With older versions
    import this module, which calls it."""
    if "CECL" not in dist.Backend._plugins:
        dist.Backend.register_backend("cecl", _create, devices=["cpu", "cuda"])


register()
