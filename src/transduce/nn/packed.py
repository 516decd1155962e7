"""Products with weights that do not change any more, laid out once for the processor's own kernels (oneDNN).

For a few rows, which is what decoding has, they take a quarter to four fifths of the time of `F.linear` on the CPU that
was tried; for small matrices they cost more to call than they give, and those stay as they are.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

LARGE = 2**17
"""Weights of a matrix that is worth it."""


class Packed:
    """xW' + b with the weights as they are now; each of two layouts is made when it is first needed.

    One row is fastest as a sum of the columns of W, which want to stand together; several rows as oneDNN likes it.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight, self._bias = weight.detach(), None if bias is None else bias.detach()
        self._columns: Tensor | None = None
        self._panels: Tensor | None = None

    def __call__(self, rows: Tensor) -> Tensor:
        count = len(rows)
        if count == 1 and self._weight.shape[0] >= self._weight.shape[1]:
            if self._columns is None:
                self._columns = self._weight.t().contiguous().t()
            return F.linear(rows, self._columns, self._bias)
        if self._panels is None:
            self._panels = torch.ops.mkldnn._reorder_linear_weight(self._weight, 64)
        filled = F.pad(rows, (0, 0, 0, _rounded(count) - count)) if _rounded(count) > count else rows
        found: Tensor = torch.ops.mkldnn._linear_pointwise(filled, self._panels, self._bias, "none", [], "")
        return found[:count]


def packed(weight: Tensor, bias: Tensor | None) -> Packed | None:
    """Return a product that is faster than `F.linear`, or None where there is none."""
    return Packed(weight, bias) if weight.numel() >= LARGE and _can_pack(weight) else None


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
