"""Norms, and residual connections: post-norm (the paper) or pre-norm (more stable for deep models)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from transduce.nn.dropout import Dropout

# LayerNorm (the paper) or RMSNorm (Zhang & Sennrich 2019; T5, Llama).

MakeNorm = Callable[[int], nn.Module]
"""Width -> a new norm."""

NORM: dict[str, type[nn.LayerNorm | nn.RMSNorm]] = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}


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
