"""Parts of a block around attention: norms, residual connections, and the feed-forward network (section 3)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from transduce.nn.dropout import Dropout
from transduce.nn.hook import HookPoint
from transduce.nn.linear import Linear

MakeNorm = Callable[[int], nn.Module]
"""Width -> a new norm."""

NORM: dict[str, type[nn.LayerNorm | nn.RMSNorm]] = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}
"""LayerNorm (the paper) or RMSNorm (Zhang & Sennrich 2019; T5, Llama)."""


def norms(kind: str, eps: float) -> MakeNorm:
    """Return a factory of norms."""
    return partial(NORM[kind], eps=eps)


class PostNorm(nn.Module):
    """Norm(x + Dropout(Sublayer(x))), section 3.1 and 5.4. The stack's output is normalised already."""

    def __init__(self, dim: int, dropout: float, make_norm: MakeNorm = nn.LayerNorm) -> None:
        super().__init__()
        self.norm = make_norm(dim)
        self.dropout = Dropout(dropout)

    def forward(self, value: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(… D) -> (… D)."""
        normalised: Tensor = self.norm(value + self.dropout(sublayer(value)))
        return normalised


class PreNorm(nn.Module):
    """x + Dropout(Sublayer(Norm(x))); the sum itself is never normalised, so a stack ends with a final norm."""

    def __init__(self, dim: int, dropout: float, make_norm: MakeNorm = nn.LayerNorm) -> None:
        super().__init__()
        self.norm = make_norm(dim)
        self.dropout = Dropout(dropout)

    def forward(self, value: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(… D) -> (… D)."""
        summed: Tensor = value + self.dropout(sublayer(self.norm(value)))
        return summed


RESIDUAL: dict[str, type[PostNorm | PreNorm]] = {"post": PostNorm, "pre": PreNorm}
"""Post-norm (the paper) or pre-norm (more stable for deep models)."""

Activation = Callable[[Tensor], Tensor]


class FeedForward(nn.Module):
    """activation(xW1 + b1)W2 + b2 (section 3.3); the paper's activation is max(0, ·)."""

    def __init__(
        self, activation: Activation, dim: int, ffn_dim: int, dropout: float = 0.0, bias: bool | None = None
    ) -> None:
        """With biases unless `bias` is False."""
        super().__init__()
        self.activation = activation
        self.up = Linear(dim, ffn_dim, bias=bias is not False)
        self.down = Linear(ffn_dim, dim, bias=bias is not False)
        self.dropout = Dropout(dropout)
        self.output = HookPoint()

    def forward(self, value: Tensor) -> Tensor:
        """(… D) -> (… D)."""
        return self.output(self.down(self.dropout(self.activation(self.up(value)))))


class GateUp(Linear):
    """Two projections in one matrix, of the same width; initialised as one."""

    @property
    def matrices(self) -> list[int]:
        return [self.out_features // 2] * 2


class GatedFeedForward(nn.Module):
    """Gated linear unit (Shazeer 2020): activation(gate) · up, both projections packed into `gate_up`."""

    def __init__(
        self, activation: Activation, dim: int, ffn_dim: int, dropout: float = 0.0, bias: bool | None = None
    ) -> None:
        """Without biases unless `bias` is True."""
        super().__init__()
        self.activation = activation
        self.gate_up = GateUp(dim, 2 * ffn_dim, bias=bool(bias))
        self.down = Linear(ffn_dim, dim, bias=bool(bias))
        self.dropout = Dropout(dropout)
        self.output = HookPoint()

    def forward(self, value: Tensor) -> Tensor:
        """(… D) -> (… D)."""
        gate, up = self.gate_up(value).chunk(2, dim=-1)
        return self.output(self.down(self.dropout(self.activation(gate) * up)))


_tanh_gelu = partial(F.gelu, approximate="tanh")

FEED_FORWARD: dict[str, Callable[..., FeedForward | GatedFeedForward]] = {
    "relu": partial(FeedForward, F.relu),
    "gelu": partial(FeedForward, F.gelu),
    "gelu_tanh": partial(FeedForward, _tanh_gelu),
    "silu": partial(FeedForward, F.silu),
    "swiglu": partial(GatedFeedForward, F.silu),
    "geglu": partial(GatedFeedForward, _tanh_gelu),
}
"""By activation: the paper's; BERT's exact GELU (Hendrycks & Gimpel) and the tanh approximation of GPT-2; Marian's
SiLU; SwiGLU (Llama); GeGLU (T5 1.1)."""
GATED = ("swiglu", "geglu")
"""Activations of gated networks."""
