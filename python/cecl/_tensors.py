"""Describes tensors as cecl.h needs it, by datatype and number of elements. Refuses tensors that no call takes."""
import torch
import torch.distributed as dist

from . import _binding as binding

_TYPES = {torch.int8: binding.INT8, torch.uint8: binding.UINT8, torch.bool: binding.UINT8,
          torch.int32: binding.INT32, torch.int64: binding.INT64, torch.float16: binding.FLOAT16,
          torch.float32: binding.FLOAT32, torch.float64: binding.FLOAT64,
          torch.bfloat16: binding.BFLOAT16, torch.float8_e4m3fn: binding.FLOAT8E4M3,
          torch.float8_e5m2: binding.FLOAT8E5M2}
_OPERATIONS = {dist.ReduceOp.SUM: binding.SUM, dist.ReduceOp.PRODUCT: binding.PROD,
               dist.ReduceOp.MAX: binding.MAX, dist.ReduceOp.MIN: binding.MIN,
               dist.ReduceOp.AVG: binding.AVG}


def type_of(tensor, reduces=False):
    """The tensor's ceclDataType_t. If cecl lacks the type, elements travel as bytes; reductions refuse the tensor."""
    known = _TYPES.get(tensor.dtype)
    if reduces and (known is None or tensor.dtype == torch.bool):
        raise TypeError(f"cecl: a reduction of {tensor.dtype}: one of "
                        f"{', '.join(str(t) for t in _TYPES if t != torch.bool)} expected")
    return binding.UINT8 if known is None else known


def count_of(tensor, elements=None):
    elements = tensor.numel() if elements is None else elements
    return elements if tensor.dtype in _TYPES else elements * tensor.element_size()


def operation_of(op):
    kind = op.op if hasattr(op, "op") else op
    if kind not in _OPERATIONS:
        raise ValueError(f"cecl: {op}: SUM, PRODUCT, MIN, MAX or AVG expected")
    return _OPERATIONS[kind]


def check(name, tensor, dense=True):
    """Refuses a tensor that no call takes. dense: refuses tensors that are not contiguous, too."""
    if tensor.device.type not in ("cpu", "cuda"):
        raise ValueError(f"cecl: {name} is on {tensor.device}: a GPU or the CPU expected")
    if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg():
        raise ValueError(f"cecl: {name} is a view that computes, or of layout {tensor.layout}: a tensor in memory expected")
    if dense and not tensor.is_contiguous():
        raise ValueError(f"cecl: {name} of shape {tuple(tensor.shape)} and strides {tensor.stride()} is not contiguous")
