"""Settings of a GPU for one run: TF32, the state of its random numbers, compiled blocks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

from transduce.models.block import DecoderBlock, EncoderBlock


@contextlib.contextmanager
def gpu_settings(device: str, half: bool) -> Iterator[None]:
    """Set up a CUDA GPU inside the context, and restore its settings and random state afterwards.

    Where training is in bfloat16, what is left in float32 may use TF32, which has as many digits or more; with
    `training.precision = "float32"` every product is one.
    """
    if device != "cuda":
        yield
        return
    products, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    with torch.random.fork_rng([torch.cuda.current_device()]):
        torch.set_float32_matmul_precision("high" if half else "highest")
        torch.backends.cudnn.allow_tf32 = half
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(products)
            torch.backends.cudnn.allow_tf32 = convolutions


def blocks_of(model: nn.Module) -> Iterator[nn.Module]:
    """The blocks of each stack; a Universal Transformer has one block in place of a stack."""
    for child in model.children():
        if isinstance(child, nn.ModuleList):
            yield from child
        elif isinstance(child, EncoderBlock | DecoderBlock):
            yield child


def compile_blocks(model: nn.Module) -> None:
    """Compile each block in place, for any length: blocks of one stack share their code (regional compilation).

    Decoding, which calls `extend` instead, stays as it is, and so do the names of the weights.
    """
    for block in blocks_of(model):
        block.compile(dynamic=True)
