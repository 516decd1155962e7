"""What happens to each position by itself (section 3.3): widen, bend, narrow."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from transduce.nn.dropout import Dropout
from transduce.nn.product import Linear


class Bent(nn.Module):
    """bend(xW1 + b1)W2 + b2; a leaf says what bends."""

    bend: Callable[[Tensor], Tensor]

    def __init__(self, dim: int, ffn_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.widen = Linear(dim, ffn_dim)
        self.narrow = Linear(ffn_dim, dim)
        self.dropout = Dropout(dropout)

    def forward(self, value: Tensor) -> Tensor:
        """(… D) -> (… D)."""
        narrowed: Tensor = self.narrow(self.dropout(self.bend(self.widen(value))))
        return narrowed


class Relu(Bent):
    """max(0, xW1 + b1)W2 + b2, as printed."""

    bend = staticmethod(F.relu)


class Gelu(Bent):
    """The same with the Gaussian error unit of Hendrycks & Gimpel (BERT, GPT)."""

    bend = staticmethod(F.gelu)


class Gated(nn.Module):
    """Shazeer's gated unit with SiLU (SwiGLU): one half decides how much of the other passes. No biases."""

    def __init__(self, dim: int, ffn_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.widen = Linear(dim, 2 * ffn_dim, bias=False)
        self.narrow = Linear(ffn_dim, dim, bias=False)
        self.dropout = Dropout(dropout)

    def forward(self, value: Tensor) -> Tensor:
        """(… D) -> (… D)."""
        gate, passed = self.widen(value).chunk(2, dim=-1)
        narrowed: Tensor = self.narrow(self.dropout(F.silu(gate) * passed))
        return narrowed


FEED_FORWARD: dict[str, type[Relu | Gelu | Gated]] = {"relu": Relu, "gelu": Gelu, "gated": Gated}
