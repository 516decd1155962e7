"""Where a token stands: signals added to its embedding (section 3.5)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from transduce.errors import DataError

Signals = Callable[[int, int], Tensor]
"""(length, width) -> a signal for each position."""


def sinusoids(length: int, dim: int) -> Tensor:
    """Position signals of section 3.5: even channels sine, odd cosine, wavelengths 2π … 10000·2π.  -> (length, dim).

    Differs from the paper: nothing.
    """
    position_T1 = torch.arange(length, dtype=torch.float64)[:, None]
    rate_C = torch.exp(torch.arange(0, dim, 2, dtype=torch.float64) * (-math.log(10000.0) / dim))
    signal_TD = torch.empty(length, dim, dtype=torch.float64)
    signal_TD[:, 0::2] = torch.sin(position_T1 * rate_C)
    signal_TD[:, 1::2] = torch.cos(position_T1 * rate_C[: dim // 2])
    return signal_TD


def halved_sinusoids(length: int, dim: int) -> Tensor:
    """The same signals as Marian lays them out: all sines first, then all cosines.  -> (length, dim)."""
    signal_TD = sinusoids(length, dim)
    return torch.cat([signal_TD[:, 0::2], signal_TD[:, 1::2]], dim=1)


def shifted_sinusoids(length: int, dim: int) -> Tensor:
    """Signals as fairseq makes them (M2M100, NLLB): sines first, from position 2 on, rates down to 1/10000 itself."""
    half = dim // 2
    rate_C = torch.exp(torch.arange(half, dtype=torch.float64) * (-math.log(10000.0) / max(half - 1, 1)))
    angle_TC = torch.arange(2, length + 2, dtype=torch.float64)[:, None] * rate_C
    signal_TD = torch.zeros(length, dim, dtype=torch.float64)  # an odd channel stays empty
    signal_TD[:, :half], signal_TD[:, half : 2 * half] = angle_TC.sin(), angle_TC.cos()
    return signal_TD


class SinusoidalPositions(nn.Module):
    """Fixed sine and cosine signals; the table is made when a text comes, grows for a longer one, is never saved."""

    limit: int | None = None
    """No text is too long."""
    table: Tensor

    def __init__(self, dim: int, expected_length: int = 512, signals: Signals = sinusoids) -> None:
        super().__init__()
        self.dim, self.expected_length, self.signals = dim, expected_length, signals
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
                table = self.table = self.signals(size, self.dim).to(table)
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


class NoPositions(nn.Module):
    """Nothing is added: positions are heard of in attention, see `nn.relative`."""

    limit: int | None = None
    zero: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("zero", torch.zeros(1), persistent=False)

    def first(self, length: int) -> Tensor:
        """-> (length, 1)."""
        return self.zero.expand(length, 1)

    def at(self, positions: Tensor, longest: int) -> Tensor:
        """(R T) -> (R T 1)."""
        return self.zero.expand(*positions.shape, 1)


Positions = SinusoidalPositions | LearnedPositions | NoPositions
