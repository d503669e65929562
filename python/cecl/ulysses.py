"""Sequence parallel as in DeepSpeed's Ulysses: between its attention layers a rank has a part of each sequence, and in them all
of it, for a part of the heads.

    query, key, value = (ulysses.scatter_heads(tensor) for tensor in (query, key, value))
    seen = attention(query, key, value)              # [batch, sequence, heads / ranks, dim]
    seen = ulysses.gather_heads(seen)                # [batch, sequence / ranks, heads, dim]

Each call is one exchange, of rows where they lie: no permutation, and no copy if heads and sequences can be divided by the
number of ranks. Tensors may be views, such as parts of a fused projection. Gradients go the opposite way. Functions that
torch.compile(fullgraph=True) compiles may call both.
"""
from . import ops


def _exchange(function, tensor, scatter_dim, gather_dim, length, group):
    if tensor.dim() != 4:
        raise ValueError(f"cecl: {function}: tensor of shape {tuple(tensor.shape)}: [batch, sequence, heads, dim] expected")
    return ops.all_to_all_along_dims(tensor, scatter_dim, gather_dim, length, ops.name(group))


def scatter_heads(tensor, sequence=None, group=None):
    """[batch, sequence / ranks, heads, dim] -> [batch, sequence, heads / ranks, dim]. sequence: its whole length, for lengths
    that the number of ranks does not divide; as with torch.tensor_split, the first ranks then have one more."""
    return _exchange("scatter_heads", tensor, 2, 1, sequence, group)


def gather_heads(tensor, heads=None, group=None):
    """[batch, sequence, heads / ranks, dim] -> [batch, sequence / ranks, heads, dim]. heads: their whole number, if the
    number of ranks does not divide it."""
    return _exchange("gather_heads", tensor, 1, 2, heads, group)
