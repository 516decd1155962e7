"""What happens to each position by itself (section 3.3): widen, bend, narrow."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from transduce.nn.dropout import Dropout
from transduce.nn.linear import Linear

Bend = Callable[[Tensor], Tensor]


class Bent(nn.Module):
    """bend(xW1 + b1)W2 + b2; the paper bends with max(0, ·)."""

    gated = False

    def __init__(self, bend: Bend, dim: int, ffn_dim: int, dropout: float = 0.0, bias: bool | None = None) -> None:
        """Biases are there unless they are not wanted."""
        super().__init__()
        self.bend = bend
        self.widen = Linear(dim, ffn_dim, bias=bias is not False)
        self.narrow = Linear(ffn_dim, dim, bias=bias is not False)
        self.dropout = Dropout(dropout)

    def forward(self, value: Tensor) -> Tensor:
        """(… D) -> (… D)."""
        narrowed: Tensor = self.narrow(self.dropout(self.bend(self.widen(value))))
        return narrowed


class Gated(nn.Module):
    """Shazeer's gated unit (2020): one half, bent, decides how much of the other passes."""

    gated = True

    def __init__(self, bend: Bend, dim: int, ffn_dim: int, dropout: float = 0.0, bias: bool | None = None) -> None:
        """Biases are not there unless they are wanted."""
        super().__init__()
        self.bend = bend
        self.widen = Linear(dim, 2 * ffn_dim, bias=bool(bias))
        self.narrow = Linear(ffn_dim, dim, bias=bool(bias))
        self.dropout = Dropout(dropout)

    def forward(self, value: Tensor) -> Tensor:
        """(… D) -> (… D)."""
        gate, passed = self.widen(value).chunk(2, dim=-1)
        narrowed: Tensor = self.narrow(self.dropout(self.bend(gate) * passed))
        return narrowed


FeedForward = Bent | Gated
_tanh_gelu = partial(F.gelu, approximate="tanh")

FEED_FORWARD: dict[str, Callable[..., FeedForward]] = {
    "relu": partial(Bent, F.relu),
    "gelu": partial(Bent, F.gelu),
    "gelu_tanh": partial(Bent, _tanh_gelu),
    "silu": partial(Bent, F.silu),
    "gated": partial(Gated, F.silu),
    "gated_gelu": partial(Gated, _tanh_gelu),
}
"""By name: the paper's; BERT's Gaussian error unit (Hendrycks & Gimpel) and the approximation that GPT-2 computes;
Marian's; SwiGLU (Llama); GeGLU (T5 1.1)."""
