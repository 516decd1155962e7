"""Sharding a model over ranks, for one that does not fit a device: FSDP2 (Zhao et al. 2023, arXiv 2304.11277).

Each rank holds a shard of every weight, of its gradient and of its optimizer state. A block is gathered right before it
is used and freed afterwards; its gradient is reduced over the ranks as soon as it is computed. So a rank needs memory
for its shard of the model, for what is outside the blocks, and for one or two blocks.

On disk nothing is sharded: checkpoints and models are the same files as without sharding.

torch's modules for this take two seconds to import, so only sharded runs import them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeGuard

import torch.distributed as dist
from torch import Tensor, nn

from transduce.errors import SettingsError
from transduce.models.interface import Model

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor


def shard(model: Model, device: str) -> Model:
    """Shard a model over all ranks, in place. Blocks move to the device one by one: it never holds all of them."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    blocks = [block for stack in model.children() if isinstance(stack, nn.ModuleList) for block in stack]
    if not blocks:
        raise SettingsError("training.shard: this model has no blocks to shard; leave it out")
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    for module in (*blocks, model):
        part = fully_shard(module, mesh=mesh)
        part.set_gradient_divide_factor(1.0)  # the loss is divided by the tokens of all ranks already
        part.set_force_sum_reduction_for_comms(True)
    if model.has_target:
        register_fsdp_forward_method(model, "encode")
    return model


def is_sharded(module: nn.Module) -> TypeGuard[FSDPModule]:
    """Whether a module is sharded."""
    return hasattr(module, "unshard")


def _is_spread(tensor: Tensor) -> TypeGuard[DTensor]:
    return hasattr(tensor, "full_tensor")


@contextlib.contextmanager
def whole(model: Model) -> Iterator[None]:
    """Gather a model on every rank inside the context, so that each can use it without the others.

    All ranks must enter. It takes the memory of the weights, a quarter of what training would take.
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
            part.set_reshard_after_forward(part is not parts[0], recurse=False)  # the first holds all but the blocks


def full(tensor: Tensor) -> Tensor:
    """Return a tensor gathered from all ranks, all of which must call; one that is not sharded as it is."""
    return tensor.full_tensor() if _is_spread(tensor) else tensor


def local(tensor: Tensor) -> Tensor:
    """Return this rank's shard of a tensor."""
    return tensor.to_local() if _is_spread(tensor) else tensor


def gathered(tensors: Mapping[str, Tensor], keep: bool = True) -> dict[str, Tensor]:
    """Return gathered tensors in main memory, one after the other; with `keep=False` this rank only takes part."""
    found = {}
    for name, tensor in tensors.items():
        together = full(tensor).cpu() if _is_spread(tensor) else tensor
        if keep:
            found[name] = together
    return found


def spread_like(value: Tensor, other: Tensor) -> Tensor:
    """Return this rank's shard of a tensor that all ranks have, if `other` is sharded; a scalar never is."""
    if not _is_spread(other) or not value.dim():
        return value.to(other.device)
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value.to(other.device), other.device_mesh, other.placements, src_data_rank=None)
