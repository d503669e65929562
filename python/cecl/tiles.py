"""Reductions of tiles of a matrix, in groups of the backend "cecl". One call does what PyTorch's reduce_scatter_offset or
multi_root_tile_reduce does.

    tiles.reduce_scatter(outputs, source, [(0, 0), (0, columns)], (rows, columns))

cecl.h says more, under ceclReduceScatterTiles. Tensors may lie in any memory.
"""
import ctypes

import torch.distributed as dist

from . import _binding as binding
from ._tensors import operation_of, type_of
from .torch_backend import group_of


def reduce_scatter(output, source, begins, shape, group=None, op=dist.ReduceOp.SUM, async_op=False):
    """Reduces tiles of the ranks' sources, which are matrices of equal shapes. shape: (rows, columns) of a tile. begins:
    (row, column) at which each tile begins: first the tiles for rank 0, then as many for rank 1, and so on. output: this
    rank's tiles, [tiles of a rank, rows, columns]."""
    group = group_of("reduce_scatter", group)
    rows, columns = shape
    count = len(begins) // group.size()
    if source.dim() != 2 or len(begins) != count * group.size() or count == 0:
        raise ValueError(f"cecl: {len(begins)} tiles of a tensor of shape {tuple(source.shape)}: a matrix, and as many "
                         f"tiles for each of {group.size()} ranks, expected")
    if output.numel() != count * rows * columns or output.dtype != source.dtype:
        raise ValueError(f"cecl: {output.numel()} elements of {output.dtype} as output: {count} tiles of {rows} x {columns} "
                         f"elements of {source.dtype} expected")
    for row, column in begins:
        if not (0 <= row <= source.shape[0] - rows and 0 <= column <= source.shape[1] - columns):
            raise ValueError(f"cecl: a tile of {rows} x {columns} at row {row}, column {column}: outside of "
                             f"{tuple(source.shape)}")
    places = binding.sizes([row * source.shape[1] + column for row, column in begins])
    tiles = binding.Tiles(count, columns, rows, source.shape[1], places)
    return group._call("ceclReduceScatterTiles", [source, output], [output], source, output, ctypes.byref(tiles),
                       type_of(source, True), operation_of(op), async_op=async_op)
