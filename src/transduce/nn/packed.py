"""Products with weights that do not change any more, laid out once for the processor's own kernels (oneDNN).

For a few rows, which is what decoding has, they take a quarter to four fifths of the time of `F.linear` on the CPU that
was tried; for small matrices they cost more to call than they give, and those stay as they are.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

LARGE = 2**17
"""Weights of a matrix that is worth it."""


class Product(Protocol):
    """(R D) -> (R V)."""

    def __call__(self, rows: Tensor) -> Tensor: ...


class Plain:
    """xW' + b, whatever the weights are by then."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight, bias

    def __call__(self, rows: Tensor) -> Tensor:
        return F.linear(rows, self.weight, self.bias)


class Packed:
    """xW' + b with the weights as they are now."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), 64)
        self.bias = None if bias is None else bias.detach()

    def __call__(self, rows: Tensor) -> Tensor:
        count = len(rows)
        filled = F.pad(rows, (0, 0, 0, _rounded(count) - count)) if _rounded(count) > count else rows
        found: Tensor = torch.ops.mkldnn._linear_pointwise(filled, self.weight, self.bias, "none", [], "")
        return found[:count]


def product(weight: Tensor, bias: Tensor | None, frozen: bool) -> Product:
    """The fastest way to multiply rows by weights; `frozen` promises that these will not change."""
    if frozen and weight.numel() >= LARGE and _can_pack(weight):
        return Packed(weight, bias)
    return Plain(weight, bias)


def _can_pack(weight: Tensor) -> bool:
    on_cpu = weight.device.type == "cpu" and weight.dtype == torch.float32
    there = torch.backends.mkldnn.is_available() and hasattr(  # type: ignore[no-untyped-call]
        torch.ops.mkldnn, "_linear_pointwise"
    )
    return on_cpu and there


def _rounded(rows: int) -> int:
    """A number of rows that is a little larger: a kernel is made for each number, and sentences end one by one."""
    step = 1 << max(0, rows.bit_length() - 4)
    return -(-rows // step) * step
