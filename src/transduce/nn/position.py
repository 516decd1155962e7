"""Where a token stands: signals added to its embedding (section 3.5)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from transduce.errors import DataError


def sinusoids(length: int, dim: int) -> Tensor:
    """Position signals of section 3.5: even channels sine, odd cosine, wavelengths 2π … 10000·2π.  -> (length, dim).

    Differs from the paper: nothing. (Marian puts all sines first; weights then need reordering.)
    """
    position_T1 = torch.arange(length, dtype=torch.float64)[:, None]
    rate_C = torch.exp(torch.arange(0, dim, 2, dtype=torch.float64) * (-math.log(10000.0) / dim))
    signal_TD = torch.empty(length, dim, dtype=torch.float64)
    signal_TD[:, 0::2] = torch.sin(position_T1 * rate_C)
    signal_TD[:, 1::2] = torch.cos(position_T1 * rate_C[: dim // 2])
    return signal_TD


class SinusoidalPositions(nn.Module):
    """Fixed sine and cosine signals; the table is made when a text comes, grows for a longer one, is never saved."""

    limit: int | None = None
    """No text is too long."""
    table: Tensor

    def __init__(self, dim: int, expected_length: int = 512) -> None:
        super().__init__()
        self.dim, self.expected_length = dim, expected_length
        self.register_buffer("table", torch.empty(0, dim), persistent=False)

    def first(self, length: int) -> Tensor:
        """Return the signals of positions 0 … length - 1.  -> (length, D)."""
        return self._reach(length)[:length]

    def at(self, positions: Tensor, longest: int) -> Tensor:
        """Return the signals of given positions, all below `longest`.  (R T) -> (R T D)."""
        return self._reach(longest)[positions]

    def _reach(self, length: int) -> Tensor:
        """Return a table that is long enough; another thread may put a shorter one into its place at any time."""
        table = self.table
        if length > len(table):
            size = max(length, self.expected_length, 2 * len(table))
            with torch.inference_mode(False):  # what is made while translating may be trained with later
                table = self.table = sinusoids(size, self.dim).to(table)
        return table


class LearnedPositions(nn.Module):
    """A trained vector for each position (Table 3, row E). A position it never learned is an error."""

    def __init__(self, dim: int, limit: int) -> None:
        super().__init__()
        self.limit: int | None = limit
        self.table = nn.Parameter(torch.empty(limit, dim))

    def first(self, length: int) -> Tensor:
        """Return the vectors of positions 0 … length - 1.  -> (length, D)."""
        self._check(length)
        return self.table[:length]

    def at(self, positions: Tensor, longest: int) -> Tensor:
        """Return the vectors of given positions, all below `longest`.  (R T) -> (R T D)."""
        self._check(longest)
        return self.table[positions]

    def _check(self, length: int) -> None:
        if length > len(self.table):
            raise DataError(
                f"a text of {length} tokens does not fit a model that learned {len(self.table)} positions; "
                "shorten the text, or train with sinusoidal positions or a larger max_positions"
            )


Positions = SinusoidalPositions | LearnedPositions
