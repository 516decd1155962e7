"""Products with weights that do not change any more, laid out once for the processor's own kernels (oneDNN).

For a few rows, which is what decoding has, they take a quarter to four fifths of the time of `F.linear` on the CPU that
was tried; for small matrices they cost more to call than they give, and those stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LARGE = 2**17
"""Weights of a matrix that is worth it."""


class Packed:
    """xW' + b; each of two layouts of W is made when it is first needed, and anew when W was written to.

    One row is fastest as a sum of the columns of W, which want to stand together; several rows as oneDNN likes it.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight, self._bias = weight.detach(), None if bias is None else bias.detach()
        self._forget()

    def _forget(self) -> None:
        self._columns: Tensor | None = None
        self._panels: Tensor | None = None
        self._written = _written(self._weight)

    def __call__(self, rows: Tensor) -> Tensor:
        if _written(self._weight) != self._written:
            self._forget()
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


class Freezable(nn.Module):
    """A layer xW' + b that is packed when its weights are frozen, until they may change again.

    What may change them is training, moving or casting, and loading others; it is enough that a gradient may be wanted.
    A copy has weights of its own, which nobody has frozen.
    """

    weight: Tensor
    bias: Any
    """A tensor or None; `nn.Linear` says it is always there."""
    _packed: Packed | None = None

    def freeze(self) -> None:
        """Promise that the weights will not change."""
        self._packed = packed(self.weight, self.bias)

    @property
    def packed(self) -> Packed | None:
        """The faster product, where there is one; forgotten as soon as somebody may want a gradient, in any mode."""
        if torch.is_grad_enabled():
            self._packed = None
        return self._packed

    def train(self, mode: bool = True) -> Self:
        if mode:
            self._packed = None
        return super().train(mode)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self._packed = None
        moved: Self = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return moved

    def _load_from_state_dict(self, *given: Any) -> None:
        self._packed = None
        super()._load_from_state_dict(*given)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_packed"}


def packed(weight: Tensor, bias: Tensor | None) -> Packed | None:
    """Return a product that is faster than `F.linear`, or None where there is none."""
    return Packed(weight, bias) if weight.numel() >= LARGE and _can_pack(weight) else None


def _written(weight: Tensor) -> int:
    """How often it was written to in place, as far as PyTorch counts: not for what was made while inferring."""
    return 0 if weight.is_inference() else weight._version


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
