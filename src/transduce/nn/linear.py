"""Matrix products with a weight, in float32, or in bfloat16 where that is faster.

`forward` applies the weight, `backward` propagates a gradient through it, and `add_outer` accumulates the weight's own
gradient. In bfloat16 the factors and the result of a product are rounded; sums inside it are accumulated in float32,
and everything around the products is float32.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.nn.cpu.packed import Freezable
from transduce.nn.embedding import Output


def sum_dtype(device: torch.device) -> torch.dtype:
    """Return the dtype of long sums: float64, or float32 on Apple's MPS, which has no wider one."""
    return torch.float32 if device.type == "mps" else torch.float64


PANEL = 64
"""In bfloat16 the rows of a factor are padded to a multiple of this. oneDNN compiles a kernel for every new shape,
which takes a millisecond and half a megabyte, so batches of any size must map to a few shapes."""


class FullProducts:
    """Products of token vectors (rows) with one weight, in its precision."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def factor(self, rows: Tensor) -> Tensor:
        """Convert rows to the precision of the products, once for several products."""
        return rows.to(self.weight.dtype)

    def forward(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        """(N D) -> (N V)."""
        return torch.mm(rows, self.weight.t(), out=out)

    def backward(self, grad: Tensor, out: Tensor | None = None) -> Tensor:
        """(N V) -> (N D)."""
        return torch.mm(grad, self.weight, out=out)

    def add_outer(self, total: Tensor | None, grad: Tensor, rows: Tensor) -> Tensor:
        """Return grad^T · rows, added in place to `total` if there is one.  (V D), (N V), (N D) -> (V D)."""
        return torch.mm(grad.t(), rows) if total is None else total.addmm_(grad.t(), rows)


class HalfProducts:
    """The same in bfloat16; inputs and outputs are float32."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight.bfloat16()

    def factor(self, rows: Tensor) -> Tensor:
        return panels(rows)

    def forward(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        return _single(torch.mm(panels(rows), self.weight.t()), len(rows), out)

    def backward(self, grad: Tensor, out: Tensor | None = None) -> Tensor:
        return _single(torch.mm(panels(grad), self.weight), len(grad), out)

    def add_outer(self, total: Tensor | None, grad: Tensor, rows: Tensor) -> Tensor:
        outer = torch.mm(panels(grad).t(), panels(rows))
        return outer.float() if total is None else total.add_(outer)


Products = FullProducts | HalfProducts


class Linear(Freezable, nn.Linear):
    """`nn.Linear` whose products may be bfloat16 in training, see `set_half_products`, and packed for inference."""

    half_products = False

    @property
    def matrices(self) -> list[int]:
        """Rows of each matrix in the weight: one, unless several projections are packed into it."""
        return [self.out_features]

    def forward(self, value: Tensor) -> Tensor:
        """(… D) -> (… V)."""
        packed = self.packed
        if packed is not None:
            return packed(value.reshape(-1, value.shape[-1])).view(*value.shape[:-1], -1)
        if not (self.half_products and self.training):
            return F.linear(value, self.weight, self.bias)
        applied: Tensor = _HalfLinear.apply(value, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return applied


def set_half_products(model: nn.Module, wanted: bool) -> None:
    """Turn bfloat16 products in training on or off, for every layer that supports them.

    Validation and inference use full precision either way.
    """
    for module in model.modules():
        if isinstance(module, Linear | Output):
            module.half_products = wanted


def panels(rows: Tensor) -> Tensor:
    """Round rows to bfloat16 and, on a CPU, pad them with zeros to whole panels; idempotent.  (N D) -> (N' D)."""
    if rows.dtype == torch.bfloat16:
        return rows
    if rows.device.type != "cpu":
        return rows.bfloat16()
    count = len(rows)
    filled = rows.new_empty(-(-count // PANEL) * PANEL, rows.shape[1], dtype=torch.bfloat16)
    filled[:count] = rows
    filled[count:] = 0
    return filled


def _single(filled: Tensor, count: int, out: Tensor | None) -> Tensor:
    return filled[:count].float() if out is None else out.copy_(filled[: len(out)])


class _HalfLinear(torch.autograd.Function):
    """Saves its input in bfloat16 for the backward pass, at half the memory."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows_ND = value.reshape(-1, value.shape[-1])
        filled_ND = panels(rows_ND)
        ctx.save_for_backward(filled_ND, weight)
        ctx.has_bias = bias is not None
        applied_NV = HalfProducts(weight).forward(filled_ND)[: len(rows_ND)]
        if bias is not None:
            applied_NV += bias
        return applied_NV.view(*value.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        grad = upstream[0]
        filled_ND, weight = ctx.saved_tensors
        grad_NV = grad.reshape(-1, grad.shape[-1])
        count = len(grad_NV)
        halved_NV = panels(grad_NV)
        products = HalfProducts(weight)
        value_grad = (
            products.backward(halved_NV)[:count].view(*grad.shape[:-1], -1) if ctx.needs_input_grad[0] else None
        )
        weight_grad = torch.mm(halved_NV.t(), filled_ND).float() if ctx.needs_input_grad[1] else None
        bias_grad = grad_NV.sum(dim=0) if ctx.has_bias and ctx.needs_input_grad[2] else None
        return value_grad, weight_grad, bias_grad
