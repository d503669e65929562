"""FSDP2 by cecl: gathers that take no SM, and gradients that travel as 16 bits and are summed to fp32.

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    fully_shard(model, mp_policy=policy)         # groups may be of any backend
    cecl.fsdp.use(model)

By itself FSDP2 converts gradients to fp32 and then sends them. With cecl half as many bytes travel, and the sums are those
of FSDP2 itself, bit for bit. Gradients that FSDP2 accumulated in fp32 (set_requires_gradient_sync(False)) travel in fp32.
"""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter

from .torch_backend import beside


class _Gather(AllGather):
    def allocate(self, size, *, dtype, device):
        return torch.empty(size, dtype=dtype, device=device)

    def __call__(self, output_tensor, input_tensor, group, async_op=False):
        return beside(group)._all_gather(output_tensor, input_tensor, async_op)


class _ReduceScatter(ReduceScatter):
    """Relies on FSDP2's order: it allocates the input of a reduce-scatter, then copies the gradients there, and then
    allocates the output. No document of torch promises this order. In another order the datatypes of input and output
    would not fit, and cecl would refuse the call."""

    def __init__(self):
        self._gradients, self._allocated = None, 0

    def begin(self, gradients):
        """Called before each reduction. gradients: the gradients' datatype, or None if they have several."""
        self._gradients, self._allocated = gradients, 0

    def allocate(self, size, *, dtype, device):
        self._allocated += 1
        if self._allocated == 1 and dtype == torch.float32 and self._gradients in (torch.bfloat16, torch.float16):
            dtype = self._gradients
        return torch.empty(size, dtype=dtype, device=device)

    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
        if getattr(op, "op", op) not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            raise ValueError(f"cecl: fsdp: {op}: SUM or AVG expected; set_gradient_divide_factor takes no other number than "
                             f"that of the ranks, {group.size()}")
        return beside(group)._reduce_scatter(output_tensor, input_tensor, op, async_op)


def _gradient_types(params):
    for param in params.fsdp_params:
        unsharded = getattr(param, "_unsharded_param", None)
        for gradient in (param.unsharded_accumulated_grad, None if unsharded is None else unsharded.grad):
            if gradient is not None:
                yield gradient.dtype


def _tell(params, scatter):
    """Makes FSDP2 tell `scatter` the gradients' datatype before each reduction. By itself FSDP2 does not."""
    post_backward = params.post_backward

    def told(*unused):
        types = set(_gradient_types(params))
        scatter.begin(types.pop() if len(types) == 1 else None)
        return post_backward(*unused)

    params.post_backward = told


def use(model):
    """Makes cecl carry out the gathers and reduce-scatters of all modules of `model` to which fully_shard has been applied.
    Returns the model. Local; the ranks of a group meet at the group's first gather."""
    modules = [module for module in model.modules() if isinstance(module, FSDPModule)]
    if not modules:
        raise ValueError(f"cecl: fsdp.use: {type(model).__name__} has no module of fully_shard: call that first")
    for module in modules:
        params = module._get_fsdp_state()._fsdp_param_group
        if params is None or isinstance(params._reduce_scatter_comm, _ReduceScatter):
            continue  # the module has no parameters of its own, or an earlier `use` has changed it
        scatter = _ReduceScatter()
        module.set_custom_all_gather(_Gather())
        module.set_custom_reduce_scatter(scatter)
        _tell(params, scatter)
    return model
