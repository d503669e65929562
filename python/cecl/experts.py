"""Sends rows to experts and back, in groups of the backend "cecl". How many rows go where is read on the device, never by
the host.

    inbox = experts.empty((room, hidden), tokens.dtype, tokens.device)
    experts.dispatch(inbox, received, tokens, splits, local_experts, align=16)
    experts.combine(back, returned, results, received, local_experts)
    experts.sum_rows(sums, back, places, weights)

Splits are tensors of int64, shaped as in PyTorch's all_to_all_vdev, all_to_all_vdev_2d and all_to_all_vdev_2d_offset. A call
writes its out_splits (above: `received`, `returned`): out_splits[0] is the number of rows of each block, out_splits[1] the
row at which each block begins. cecl.h says what each call does, under ceclAlltoAllvDevice, ceclDispatch, ceclCombine and
ceclSumRows. The outputs of all calls but sum_rows must be made by `empty`, with equal shapes on all ranks.

SMs move the rows. If CECL_SM_POLICY is not set, each call but sum_rows sets the policy CECL_SM_ALLOW for itself.
"""
import ctypes
import os

import torch

from . import _binding as binding
from ._binding import library
from ._tensors import count_of, type_of
from .torch_backend import group_of


class _Memory:
    """Memory of ceclMemAlloc, from which torch can make a tensor. It stays allocated until `free` or the group's end."""

    def __init__(self, address, nbytes):
        self.__cuda_array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 3}


def empty(shape, dtype, device, group=None):
    """A tensor in symmetric memory, to which peers' kernels can write. Collective: all ranks ask for equally many bytes."""
    device, address = torch.device(device), ctypes.c_void_p()
    communicator = group_of("empty", group)._communicator(device)
    nbytes = torch.Size(shape).numel() * torch.empty((), dtype=dtype).element_size()
    if nbytes == 0:
        return torch.empty(shape, dtype=dtype, device=device)
    library.call("ceclMemAlloc", communicator.handle, ctypes.byref(address), nbytes)
    if device.type == "cpu":
        flat = torch.frombuffer((ctypes.c_uint8 * nbytes).from_address(address.value), dtype=torch.uint8)
    else:
        flat = torch.as_tensor(_Memory(address.value, nbytes), device=communicator.device)
    return flat.view(dtype).view(shape)


def free(tensor, group=None):
    """Frees the memory of a tensor that `empty` returned. Collective. Does not wait: first let all calls that use the memory
    end. Use no tensor in that memory afterwards."""
    if tensor.numel() > 0:
        library.call("ceclMemFree", group_of("free", group)._communicator(tensor.device).handle, tensor.data_ptr())


def _rows(name, tensor):
    """Returns the number of rows, and the number of elements in a row."""
    if tensor.dim() == 0:
        raise ValueError(f"cecl: {name}: a tensor of rows expected")
    return tensor.shape[0], count_of(tensor, torch.Size(tensor.shape[1:]).numel())


def _check_splits(name, tensor, words):
    if tensor.dtype != torch.int64 or tensor.numel() != words:
        raise ValueError(f"cecl: {name}: {tensor.numel()} elements of {tensor.dtype}: {words} of torch.int64 expected")


def _scales(scales, output, source):
    """Returns ceclExperts_t's sendscales, recvscales and scalebytes, and the tensors of scales: (source's, output's)."""
    if scales is None:
        return (None, None, 0), []
    sent, received = scales
    (rows, _), (room, _) = _rows("scales of the source", sent), _rows("scales of the output", received)
    bytes_of = [torch.Size(tensor.shape[1:]).numel() * tensor.element_size() for tensor in scales]
    if bytes_of[0] != bytes_of[1] or rows != source.shape[0] or room != output.shape[0]:
        raise ValueError(f"cecl: scales of shapes {tuple(sent.shape)} and {tuple(received.shape)}: as many rows as "
                         f"{source.shape[0]} and {output.shape[0]}, of equal size, expected")
    return (sent.data_ptr(), received.data_ptr(), bytes_of[0]), list(scales)


def _move(name, output, out_splits, source, splits, group, async_op, experts=None, align=1, scales=None):
    """Makes a call whose splits lie on the device. experts: how many a rank has; None for alltoallv_device."""
    group = group_of(name, group)
    sendrows, count = _rows("the source", source)
    recvrows, received = _rows("the output", output)
    if count != received or source.dtype != output.dtype:
        raise ValueError(f"cecl: rows of shape {tuple(source.shape[1:])} and {source.dtype}: "
                         f"the output has {tuple(output.shape[1:])} and {output.dtype}")
    blocks = group.size() * (1 if experts is None else experts)
    _check_splits("splits", splits, 2 * blocks if name == "ceclCombine" else blocks)
    _check_splits("out_splits", out_splits, 2 * blocks)
    (sent, got, nbytes), more = _scales(scales, output, source)
    described = [] if experts is None else [ctypes.byref(binding.Experts(experts, align, sent, got, nbytes))]

    def call(comm, stream):
        allows = "CECL_SM_POLICY" not in os.environ
        if allows:
            options = binding.Options(library.version(), smPolicy=binding.SM_ALLOW)
            library.call("ceclSetOptions", comm, ctypes.byref(options))
        try:
            library.call(name, source.data_ptr(), sendrows, splits.data_ptr(), output.data_ptr(), recvrows,
                         out_splits.data_ptr(), *described, count, type_of(source), comm, stream)
        finally:
            if allows:
                library.call("ceclSetOptions", comm, None)

    return group._run(name, [source, splits, output, out_splits, *more], [output, out_splits], call, async_op=async_op)


def alltoallv_device(output, out_splits, source, splits, group=None, async_op=False):
    """Sends splits[r] rows to each rank r, as PyTorch's all_to_all_vdev does. out_splits: [2, ranks]."""
    return _move("ceclAlltoAllvDevice", output, out_splits, source, splits, group, async_op)


def dispatch(output, out_splits, source, splits, experts, align=1, scales=None, group=None, async_op=False):
    """Sends rows to the experts of all ranks, as PyTorch's all_to_all_vdev_2d does. experts: how many a rank has. splits:
    [ranks * experts], how many rows each expert gets; out_splits: [2, ranks * experts]. In the output each expert's rows
    begin at a multiple of `align`. scales: two tensors, of source and output: row i of the first travels with source[i]."""
    return _move("ceclDispatch", output, out_splits, source, splits, group, async_op, experts, align, scales)


def combine(output, out_splits, source, splits, experts, scales=None, group=None, async_op=False):
    """Sends rows back to the ranks that dispatched them, as PyTorch's all_to_all_vdev_2d_offset does. splits: the out_splits
    that `dispatch` wrote."""
    return _move("ceclCombine", output, out_splits, source, splits, group, async_op, experts, 1, scales)


def sum_rows(sums, rows, places, weights=None, group=None, async_op=False):
    """For each token, adds the rows whose numbers are in places[token], each times its weight, which is 1 if `weights` is
    None. Local. places: [tokens, rows of a token]."""
    (nrows, count), (tokens, each) = _rows("rows", rows), places.shape
    _check_splits("places", places, tokens * each)
    if weights is not None and (weights.dtype != torch.float32 or weights.shape != places.shape):
        raise ValueError(f"cecl: weights of {weights.dtype} and shape {tuple(weights.shape)}: torch.float32 and "
                         f"{tuple(places.shape)} expected")
    if sums.numel() != tokens * count or sums.dtype != rows.dtype:
        raise ValueError(f"cecl: sums of {sums.numel()} elements of {sums.dtype}: {tokens * count} of {rows.dtype} expected")
    tensors = [rows, places, sums] + ([] if weights is None else [weights])
    return group_of("sum_rows", group)._call("ceclSumRows", tensors, [sums], rows, nrows, places, weights, sums, tokens, each,
                                             count, type_of(rows, True), async_op=async_op)
