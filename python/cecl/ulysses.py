"""Sequence parallelism as in DeepSpeed's Ulysses. Between attention layers a rank has a part of each sequence. In an
attention layer it has whole sequences, for a part of the heads.

    query, key, value = (ulysses.scatter_heads(tensor) for tensor in (query, key, value))
    seen = attention(query, key, value)              # [batch, sequence, heads / ranks, dim]
    seen = ulysses.gather_heads(seen)                # [batch, sequence / ranks, heads, dim]

Each call is one exchange. If the number of ranks divides the number of heads and the sequence's length, rows are read and
written where they lie: nothing is permuted or packed. Tensors may be views, such as parts of a fused projection. The
gradient of each call is the other call. torch.compile(fullgraph=True) takes both.
"""
from . import ops


def _exchange(function, tensor, scatter_dim, gather_dim, length, group):
    if tensor.dim() != 4:
        raise ValueError(f"cecl: {function}: tensor of shape {tuple(tensor.shape)}: [batch, sequence, heads, dim] expected")
    return ops.all_to_all_along_dims(tensor, scatter_dim, gather_dim, length, ops.name(group))


def scatter_heads(tensor, sequence=None, group=None):
    """[batch, sequence / ranks, heads, dim] -> [batch, sequence, heads / ranks, dim]. sequence: the whole sequence's length,
    needed if the number of ranks does not divide it. Parts are then as those of torch.tensor_split."""
    return _exchange("scatter_heads", tensor, 2, 1, sequence, group)


def gather_heads(tensor, heads=None, group=None):
    """[batch, sequence, heads / ranks, dim] -> [batch, sequence / ranks, heads, dim]. heads: the number of heads on all ranks
    together, needed if the number of ranks does not divide it."""
    return _exchange("gather_heads", tensor, 1, 2, heads, group)
