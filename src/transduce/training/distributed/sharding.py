"""A model spread over ranks, for one that does not fit a device: FSDP2 (Zhao et al. 2023, arXiv 2304.11277).

Each rank holds a part of every weight, of its gradient and of its moments. A block is put together right before it is
used and let go afterwards; its gradient is added up over the ranks as soon as it is there, and each keeps its part. So
a rank needs room for its share of the model, for what stands outside the blocks, and for one or two blocks.

On disk nothing is spread: checkpoints and models are the same files as everywhere else.

torch's own modules for this take two seconds to import, so only a run that wants them does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeGuard

import torch.distributed as dist
from torch import Tensor, nn

from transduce.errors import SettingsError
from transduce.models.interface import Model, Transducer

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor


def shard(model: Model, device: str) -> Model:
    """Spread a model over all ranks, in place. Blocks go to the device one by one: it never holds all of them."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    blocks = [block for stack in model.children() if isinstance(stack, nn.ModuleList) for block in stack]
    if not blocks:
        raise SettingsError("training.shard: this model has no blocks to spread over the ranks; leave it out")
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    for module in (*blocks, model):
        part = fully_shard(module, mesh=mesh)
        part.set_gradient_divide_factor(1.0)  # the loss is divided by the tokens of all ranks already
        part.set_force_sum_reduction_for_comms(True)
    if isinstance(model, Transducer):
        register_fsdp_forward_method(model, "encode")
    return model


def is_sharded(module: nn.Module) -> TypeGuard[FSDPModule]:
    """Whether a module is spread over ranks."""
    return hasattr(module, "unshard")


def _is_spread(tensor: Tensor) -> TypeGuard[DTensor]:
    return hasattr(tensor, "full_tensor")


@contextlib.contextmanager
def whole(model: Model) -> Iterator[None]:
    """Put a model together on every rank while inside, so that it can be used there without the others.

    All ranks have to come in. It takes the room of the weights, a quarter of what training would take.
    """
    parts = [module for module in model.modules() if is_sharded(module)]
    for part in parts:
        part.set_reshard_after_forward(False, recurse=False)
        part.unshard()
    try:
        yield
    finally:
        for part in parts:
            part.reshard()
            part.set_reshard_after_forward(part is not parts[0], recurse=False)  # the first is what is no block's


def full(tensor: Tensor) -> Tensor:
    """Return a tensor put together from all ranks, which all have to ask; one that is not spread as it is."""
    return tensor.full_tensor() if _is_spread(tensor) else tensor


def local(tensor: Tensor) -> Tensor:
    """Return this rank's part of a tensor."""
    return tensor.to_local() if _is_spread(tensor) else tensor


def gathered(tensors: Mapping[str, Tensor], keep: bool = True) -> dict[str, Tensor]:
    """Return tensors put together, in main memory, one after the other; a rank that only helps keeps none."""
    found = {}
    for name, tensor in tensors.items():
        together = full(tensor).cpu() if _is_spread(tensor) else tensor
        if keep:
            found[name] = together
    return found


def spread_like(value: Tensor, other: Tensor) -> Tensor:
    """Return this rank's part of a tensor that all ranks have, if `other` is spread; a single number never is."""
    if not _is_spread(other) or not value.dim():
        return value.to(other.device)
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value.to(other.device), other.device_mesh, other.placements, src_data_rank=None)
