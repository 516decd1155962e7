"""Convolutions over sequences, centred or causal.

The inputs of one output are concatenated and multiplied by one matrix (im2col), so that a convolution is a product like
any other here: packed when frozen, rounded when training in bfloat16, and initialised for its own shape. A causal
convolution also works token by token: it then needs the last few inputs of each row, its *window*, which is part of the
decoding state, and not the whole prefix.

Letters: R rows, T new positions, K kernel width, N inputs of a window, C channels in, D channels out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.nn.attention.multi_head import PackedLinear


@dataclass(frozen=True)
class Windows:
    """Decoding state of a stack of causal convolutions: the inputs of each row that later outputs depend on."""

    layers: tuple[Tensor, ...]
    """(R N C) each, oldest first, zeros before a row's first input; N differs with kernel and dilation."""

    @classmethod
    def empty(cls, convolutions: Iterable[CausalConvolution], rows: int, like: Tensor) -> Windows:
        """Return the windows before the first token."""
        return cls(tuple(each.first_window(rows, like) for each in convolutions))

    def select(self, rows: Tensor) -> Windows:
        """Return these rows, in this order."""
        return Windows(tuple(window.index_select(0, rows) for window in self.layers))

    def join(self, other: Windows) -> Windows:
        """Return the rows of both."""
        return Windows(tuple(torch.cat(pair) for pair in zip(self.layers, other.layers, strict=True)))


class CausalConvolution(nn.Module):
    """Output t depends on the inputs t, t - dilation, t - 2 dilation, …, as many as the kernel is wide."""

    def __init__(self, in_dim: int, parts: Sequence[int], kernel: int, dilation: int = 1, bias: bool = True) -> None:
        """`parts` are the widths of outputs that are computed together, each initialised for its own shape."""
        super().__init__()
        self.in_dim, self.kernel, self.dilation = in_dim, kernel, dilation
        self.linear = PackedLinear(kernel * in_dim, list(parts), bias)

    @property
    def window(self) -> int:
        """Number of earlier inputs in the receptive field, skipped ones included."""
        return (self.kernel - 1) * self.dilation

    def first_window(self, rows: int, like: Tensor) -> Tensor:
        """Return the initial window, zeros.  -> (R N C)."""
        return like.new_zeros(rows, self.window, self.in_dim)

    def forward(self, new: Tensor, window: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Process new inputs of each row: its first `lengths[r]`, or all.  (R T C), (R N C) -> (R T D), window."""
        inputs_RMC = torch.cat([window, new], dim=1)
        mixed_RTD = self.linear(side_by_side(inputs_RMC, new.shape[1], self.kernel, self.dilation))
        if lengths is None:
            return mixed_RTD, inputs_RMC[:, new.shape[1] :]
        kept_RN = lengths[:, None] + torch.arange(self.window, device=new.device)
        return mixed_RTD, inputs_RMC.gather(1, kept_RN[:, :, None].expand(-1, -1, self.in_dim))

    def extra_repr(self) -> str:
        return f"kernel={self.kernel}, dilation={self.dilation}"


class Convolution(nn.Module):
    """Output t depends on the inputs around t; with an even kernel, one more after it than before."""

    def __init__(self, in_dim: int, parts: Sequence[int], kernel: int, dilation: int = 1, bias: bool = True) -> None:
        """`parts` as in `CausalConvolution`."""
        super().__init__()
        self.kernel, self.dilation = kernel, dilation
        self.linear = PackedLinear(kernel * in_dim, list(parts), bias)

    def forward(self, sequence: Tensor) -> Tensor:
        """Process whole sequences; padding must be zero.  (B T C) -> (B T D)."""
        before, after = (self.kernel - 1) // 2 * self.dilation, self.kernel // 2 * self.dilation
        padded = F.pad(sequence, (0, 0, before, after))
        mixed: Tensor = self.linear(side_by_side(padded, sequence.shape[1], self.kernel, self.dilation))
        return mixed

    def extra_repr(self) -> str:
        return f"kernel={self.kernel}, dilation={self.dilation}"


def side_by_side(padded: Tensor, length: int, kernel: int, dilation: int) -> Tensor:
    """Concatenate the inputs of each of `length` outputs, in order (im2col).  (B M C) -> (B T K·C)."""
    if kernel == 1:
        return padded
    starts = range(0, kernel * dilation, dilation)
    return torch.cat([padded[:, start : start + length] for start in starts], dim=-1)
