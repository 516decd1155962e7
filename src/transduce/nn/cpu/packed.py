"""Products with frozen weights, packed once for the CPU's own kernels (oneDNN), in float32 or int8.

In float32 a packed product takes a quarter to four fifths of the time of `F.linear` on the CPUs that were measured, but
a call costs ten microseconds more: small products are left to `F.linear`. In int8, large weights are quantised per
output channel and inputs per row, and sums are exact: the error is about 1 %, the time a half to a fifth of float32.
The float32 weights stay in memory, for gradients and other precisions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.errors import SettingsError

Precision = Literal["float32", "int8"]
"""Precision in which the products of a frozen model are computed."""

LARGE = 2**17
"""Minimum elements of a matrix that is worth quantising."""
SMALLEST = 2**12
"""Minimum elements of a matrix that is worth packing in float32."""
PAYS = 2**20
"""Rows times elements of the matrix from which a packed product is faster than `F.linear`."""


class Packed:
    """xW' + b with packed weights; W is packed at the first product that is large enough, and again after it was
    modified."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight, self._bias = weight.detach(), None if bias is None else bias.detach()
        self._panels: Tensor | None = None
        self._version = _version(self._weight)

    def __call__(self, rows: Tensor) -> Tensor:
        count = len(rows)
        if count * self._weight.numel() < PAYS:
            return F.linear(rows, self._weight, self._bias)
        if self._panels is None or _version(self._weight) != self._version:
            self._panels = torch.ops.mkldnn._reorder_linear_weight(self._weight, 64)
            self._version = _version(self._weight)
        filled = F.pad(rows, (0, 0, 0, _rounded(count) - count)) if _rounded(count) > count else rows
        found: Tensor = torch.ops.mkldnn._linear_pointwise(filled, self._panels, self._bias, "none", [], "")
        return found[:count]


class Int8Packed:
    """xW' + b with both factors quantised to int8: W per output channel, x per row, symmetric around zero.

    Sums are exact integers, so a row does not depend on the rows around it. On a CPU with VNNI instructions W is
    packed, too, and x is shifted by 128 to be unsigned, as these instructions need it.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight, self._bias = weight.detach(), None if bias is None else bias.detach()
        self._quantize()

    def _quantize(self) -> None:
        integers, scale = _quantized(self._weight)
        self._scale, self._zero = scale.flatten(), torch.zeros(len(scale), dtype=torch.long)
        self._panels = torch.ops.onednn.qlinear_prepack(integers, None) if _has_vnni() else None
        self._integers = integers if self._panels is None else None
        self._version = _version(self._weight)

    def __call__(self, rows: Tensor) -> Tensor:
        if _version(self._weight) != self._version:
            self._quantize()
        count = len(rows)
        integers, scale = _quantized(rows, signed=self._integers is not None)
        if _rounded(count) > count:
            integers = F.pad(integers, (0, 0, 0, _rounded(count) - count))
        if self._integers is not None:
            product = torch._int_mm(integers, self._integers.t())[:count].to(rows.dtype).mul_(self._scale)
        else:
            product = torch.ops.onednn.qlinear_pointwise(
                integers, 1.0, 128, self._panels, self._scale, self._zero, None, 1.0, 0, rows.dtype, "none", [], ""
            )[:count]
        product.mul_(scale)
        return product if self._bias is None else product.add_(self._bias)


class Freezable(nn.Module):
    """A layer xW' + b whose weights are packed by `freeze`, until they may change again.

    Training mode, moving, casting, loading and any pass with gradients unpack them. A copy is not frozen.
    """

    weight: Tensor
    bias: Any
    """A tensor or None; `nn.Linear` annotates it as a tensor."""
    _packed: Packed | Int8Packed | None = None
    precision: Precision = "float32"
    """The precision of the last freeze."""

    def freeze(self, precision: Precision = "float32") -> None:
        """Pack the weights: the caller promises not to change them."""
        self.precision = precision
        self._packed = packed(self.weight, self.bias, precision)

    @property
    def packed(self) -> Packed | Int8Packed | None:
        """The packed product, where there is one; dropped as soon as gradients are enabled, in any mode."""
        if torch.is_grad_enabled():
            self._packed = None
        return self._packed

    def share_packed(self, other: Freezable) -> None:
        """Use the packed weights of a layer with the same weights."""
        self.precision, self._packed = other.precision, other._packed

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


def packed(weight: Tensor, bias: Tensor | None, precision: Precision = "float32") -> Packed | Int8Packed | None:
    """Return a packed product, or None where `F.linear` is as fast or packing is not supported."""
    if precision == "int8":
        if weight.device.type != "cpu":
            raise SettingsError(f"precision int8 needs a CPU, and this model is on {weight.device}; use float32")
        if not can_int8(weight.device):
            raise SettingsError("this build of PyTorch has no int8 products; use precision float32")
        # What is smaller stays with `F.linear`: kernels that change with the number of rows would change last bits, and
        # with them what the next layer rounds to, so that a row would depend on how many are computed with it.
        return Int8Packed(weight, bias) if weight.numel() >= LARGE and weight.dtype == torch.float32 else None
    if precision != "float32":
        raise SettingsError(f"unknown precision '{precision}'; choose float32 or int8")
    return Packed(weight, bias) if weight.numel() >= SMALLEST and _can_pack(weight) else None


def can_int8(device: torch.device) -> bool:
    """Whether the device supports products of int8 matrices."""
    return device.type == "cpu" and hasattr(torch, "_int_mm")


def _quantized(matrix: Tensor, signed: bool = True) -> tuple[Tensor, Tensor]:
    """Round each row to integers of -127 … 127 and return them with the scale of each row.  (N K) -> (N K), (N 1).

    Not `signed`, 128 is added to each.
    """
    scale_N1 = (matrix.abs().amax(dim=1, keepdim=True) / 127).clamp(min=torch.finfo(matrix.dtype).tiny)
    rounded = (matrix / scale_N1).round_()
    return rounded.to(torch.int8) if signed else rounded.add_(128).to(torch.uint8), scale_N1


@cache
def _has_vnni() -> bool:
    """Whether unsigned by signed products are exact and fast here; without VNNI they may overflow 16 bits."""
    try:
        return bool(torch.cpu._is_vnni_supported()) and hasattr(torch.ops.onednn, "qlinear_pointwise")
    except (AttributeError, RuntimeError):
        return False


def _version(weight: Tensor) -> int:
    """In-place version counter of the weight; PyTorch has none for tensors created in inference mode."""
    return 0 if weight.is_inference() else weight._version


def _can_pack(weight: Tensor) -> bool:
    on_cpu = weight.device.type == "cpu" and weight.dtype == torch.float32
    there = torch.backends.mkldnn.is_available() and hasattr(  # type: ignore[no-untyped-call]
        torch.ops.mkldnn, "_linear_pointwise"
    )
    return on_cpu and there


def _rounded(rows: int) -> int:
    """Round the number of rows up: oneDNN compiles a kernel for each number, and sentences finish one by one."""
    step = 1 << max(0, rows.bit_length() - 4)
    return -(-rows // step) * step
