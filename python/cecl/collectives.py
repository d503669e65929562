"""Collectives that torch.distributed does not have, in groups of the backend "cecl".

    collectives.all_gather_v(output, source, counts)      # gathers counts[r] rows of each rank r
    collectives.all_gather_strided(blocks, source)        # blocks[r] = source of rank r
    collectives.all_to_all_strided(blocks, parts)         # blocks[r] = parts[rank] of rank r, where rank is this rank
    collectives.all_to_all_permute(output, source, scatter_dim, gather_dim)    # cuts along one dimension, joins along another

The strided calls take views. Nothing is packed: copy engines read and write rows where they lie. For example, this
gathers a tensor `whole` [a, b, c] along dimension 1, from each rank's `part` [a, b / ranks, c]:

    all_gather_strided(whole.unflatten(1, (ranks, -1)).movedim(1, 0), part)

cecl.h says more, under ceclAllGatherv, ceclAllGatherStrided and ceclAlltoAllStrided.
"""
import contextlib
import ctypes
import functools
import itertools
import math

import torch

from . import _binding as binding
from ._binding import library
from ._tensors import check, count_of, type_of
from .torch_backend import finish, group_of


def parts(length, size):
    """The lengths of the `size` parts into which torch.tensor_split cuts `length`: the first parts may be longer by one."""
    return [length // size + (rank < length % size) for rank in range(size)]


def _check_pair(name, output, source, dense):
    for argument, tensor in (("output", output), ("source", source)):
        check(f"{name}: {argument}", tensor, dense)
    if output.dtype != source.dtype or output.device != source.device:
        raise ValueError(f"cecl: {name}: output of {output.dtype} on {output.device}: {source.dtype} on {source.device} "
                         f"expected, as source")


def all_gather_v(output, source, counts, begins=None, group=None, async_op=False):
    """Gathers counts[r] rows (of dimension 0) of each rank r, to output[begins[r]:]. By default ranks' rows follow one
    another in rank order. All ranks pass equal counts and begins; source has counts[rank] rows."""
    group = group_of("all_gather_v", group)
    _check_pair("all_gather_v", output, source, True)
    counts, row = [int(count) for count in counts], output.shape[1:]
    begins = list(itertools.accumulate(counts[:-1], initial=0)) if begins is None else [int(begin) for begin in begins]
    if len(counts) != group.size() or len(begins) != group.size() or min(counts + begins) < 0:
        raise ValueError(f"cecl: all_gather_v: counts {counts} and begins {begins}: {group.size()} numbers of 0 or more "
                         f"expected, one for each rank")
    if source.shape != (counts[group.rank()], *row):
        raise ValueError(f"cecl: all_gather_v: source of shape {tuple(source.shape)}: {(counts[group.rank()], *row)} "
                         f"expected")
    if any(begin + count > output.shape[0] for begin, count in zip(begins, counts)):
        raise ValueError(f"cecl: all_gather_v: output of {output.shape[0]} rows: room for counts {counts} at {begins} expected")
    elements = count_of(output, math.prod(row))
    sizes = [binding.sizes([number * elements for number in numbers]) for numbers in (counts, begins)]
    return group._call("ceclAllGatherv", [source, output], [output], source.data_ptr() or 1, count_of(source),
                       output.data_ptr() or 1, *sizes, type_of(source), async_op=async_op)


def _levels(output, source):
    """The dimensions after the first, each as [size, stride in output, stride in source]. Leaves out those of size 1, and
    joins neighbouring dimensions if both tensors' strides allow it."""
    levels = []
    for size, *steps in zip(output.shape[1:], output.stride()[1:], source.stride()[1:]):
        if size > 1 and levels and all(above == size * step for above, step in zip(levels[-1][1:], steps)):
            levels[-1] = [levels[-1][0] * size, *steps]
        elif size > 1:
            levels.append([size, *steps])
    return levels


def _rows(name, function, output, source, size):
    """Describes the calls of `function` that move source to output, both of shape [ranks, ...]. One call is enough if the
    rows of a block are equally far apart. Returns a ceclStrided_t, the same for all calls; the offsets in source and
    output, in bytes, at which each call begins; and whether the calls should form a group, as they should if there are
    several and they write to separate memory."""
    if output.shape != source.shape or output.dim() == 0 or output.shape[0] != size:
        raise ValueError(f"cecl: {name}: output of shape {tuple(output.shape)} and source of {tuple(source.shape)}: equal "
                         f"shapes expected, with one block for each of {size} ranks")
    levels, unit = _levels(output, source), count_of(source, 1)
    width = levels.pop()[0] if levels and levels[-1][1:] == [1, 1] else 1
    rows, recv_pitch, send_pitch = levels.pop() if levels else (1, width, width)
    steps = [output.stride(0), recv_pitch, send_pitch, *itertools.chain(*levels)]
    if function == "ceclAlltoAllStrided":
        steps.append(source.stride(0))
    if output.numel() == 0:
        width = 0
    elif size > 1 and 0 in steps:
        raise ValueError(f"cecl: {name}: tensors of strides {output.stride()} and {source.stride()}: none expanded expected")
    fields = binding.Strided(width * unit, rows, send_pitch * unit, source.stride(0) * unit, recv_pitch * unit,
                             output.stride(0) * unit)
    places = [[sum(at * level[which] for at, level in zip(index, levels)) * source.element_size() for which in (2, 1)]
              for index in itertools.product(*(range(level[0]) for level in levels))]
    extent = (output.shape[0] - 1) * output.stride(0) + (rows - 1) * recv_pitch + width
    return fields, places, len(places) > 1 and all(level[1] >= extent for level in levels)


def _move(name, function, output, source, rows, group, async_op):
    fields, places, apart = rows

    def call(comm, stream):
        with binding.grouped() if apart else contextlib.nullcontext():
            for sent, received in places:
                library.call(function, source.data_ptr() + sent, output.data_ptr() + received, fields, type_of(source), comm,
                             stream)

    return group._run(name, [source, output], [output], call, None, async_op)


def _strided(name, function, output, source, group, async_op):
    _check_pair(name, output, source, False)
    return _move(name, function, output, source, _rows(name, function, output, source, group.size()), group, async_op)


def all_gather_strided(output, source, group=None, async_op=False):
    """Gathers the source of each rank r to output[r]. output: [ranks, *source.shape]. Both are views of any strides."""
    group = group_of("all_gather_strided", group)
    return _strided("all_gather_strided", "ceclAllGatherStrided", output, source.expand(group.size(), *source.shape), group,
                    async_op)


def all_to_all_strided(output, source, group=None, async_op=False):
    """Sends source[r] to rank r, where it becomes output[rank]. Both are views of any strides."""
    group = group_of("all_to_all_strided", group)
    return _strided("all_to_all_strided", "ceclAlltoAllStrided", output, source, group, async_op)


@functools.lru_cache(1024)
def _permuted(shape, steps, source_shape, source_steps, dtype, scatter_dim, gather_dim, size, rank):
    """Checks and prepares all_to_all_permute for tensors of these shapes and strides. Returns both dimensions, counted
    from 0; the lengths of all ranks' parts along each; the sizes that the output must have, except in gather_dim; and what
    _rows returns, or None if lengths differ. Results are cached, because computing them takes longer than a call."""
    name, dims = "all_to_all_permute", len(source_shape)
    if len(shape) != dims or not all(-dims <= dim < dims for dim in (scatter_dim, gather_dim)):
        raise ValueError(f"cecl: {name}: dimensions {scatter_dim} and {gather_dim} of tensors of {dims} and {len(shape)}: "
                         f"dimensions of both expected")
    scatter, gather = scatter_dim % dims, gather_dim % dims
    sent, received = parts(source_shape[scatter], size), parts(shape[gather], size)
    expected = [sent[rank] if dim == scatter else length for dim, length in enumerate(source_shape)]
    if scatter == gather or source_shape[gather] != received[rank] or any(
            length != shape[dim] for dim, length in enumerate(expected) if dim != gather):
        raise ValueError(f"cecl: {name}: source of shape {tuple(source_shape)}, cut in dimension {scatter}, and output of "
                         f"{tuple(shape)}, joined in dimension {gather}: another dimension, {received[rank]} in it of "
                         f"the source, and all other sizes of {expected} expected on rank {rank} of {size}")
    if not len(set(sent)) == len(set(received)) == 1:
        return scatter, gather, sent, received, expected, None
    output = torch.empty_strided(shape, steps, dtype=dtype, device="meta")
    source = torch.empty_strided(source_shape, source_steps, dtype=dtype, device="meta")
    return scatter, gather, sent, received, expected, _rows(
        name, "ceclAlltoAllStrided", output.unflatten(gather, (size, received[0])).movedim(gather, 0),
        source.unflatten(scatter, (size, sent[0])).movedim(scatter, 0), size)


def all_to_all_permute(output, source, scatter_dim, gather_dim, group=None, async_op=False):
    """Cuts the source along scatter_dim into a part for each rank, as torch.tensor_split does. In rank order, the parts that
    arrive are joined along gather_dim. If all parts have equal shapes, nothing is packed; otherwise the parts may be copied
    once before they are sent, and once after they arrive."""
    name = "all_to_all_permute"
    group = group_of(name, group)
    _check_pair(name, output, source, False)
    size, rank = group.size(), group.rank()
    scatter, gather, sent, received, expected, rows = _permuted(
        output.shape, output.stride(), source.shape, source.stride(), source.dtype, scatter_dim, gather_dim, size, rank)
    if rows:
        return _move(name, "ceclAlltoAllStrided", output, source, rows, group, async_op)
    each = math.prod(length for dim, length in enumerate(expected) if dim not in (scatter, gather))
    sends = [each * count * received[rank] for count in sent]
    receives = [each * sent[rank] * count for count in received]
    theirs = [each * count * sum(received[:rank]) for count in sent]  # where this rank's blocks begin at the others
    if source.is_contiguous() and math.prod(source.shape[:scatter]) == 1:
        flat = source
    else:
        flat = torch.cat([part.reshape(-1) for part in source.tensor_split(size, scatter)])
    direct = output.is_contiguous() and math.prod(output.shape[:gather]) == 1
    inbox = output if direct else source.new_empty(output.numel())
    starts = [list(itertools.accumulate(counts[:-1], initial=0)) for counts in (sends, receives)]
    arrays = [binding.sizes([count_of(source, number) for number in numbers])
              for numbers in (sends, starts[0], receives, starts[1], theirs)]
    work = group._call("ceclAlltoAllvAt", [flat, inbox], [output], flat, *arrays[:2], inbox.data_ptr() or 1, *arrays[2:],
                       type_of(source))
    if not direct:
        work = group._copy_out(output.tensor_split(size, gather), inbox.split(receives), inbox)
    return finish(work, async_op)
