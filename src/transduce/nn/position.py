"""Position encodings that are added to embeddings (section 3.5)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from transduce.errors import DataError
from transduce.nn.dropout import Dropout, keyed_bits

Signals = Callable[[int, int], Tensor]
"""(length, width) -> an encoding for each position."""


def sinusoids(length: int, dim: int) -> Tensor:
    """Position encodings of section 3.5: even channels sine, odd cosine, wavelengths 2π … 10000·2π.  -> (length, dim).

    Differs from the paper: nothing.
    """
    position_T1 = torch.arange(length, dtype=torch.float64)[:, None]
    rate_C = torch.exp(torch.arange(0, dim, 2, dtype=torch.float64) * (-math.log(10000.0) / dim))
    signal_TD = torch.empty(length, dim, dtype=torch.float64)
    signal_TD[:, 0::2] = torch.sin(position_T1 * rate_C)
    signal_TD[:, 1::2] = torch.cos(position_T1 * rate_C[: dim // 2])
    return signal_TD


def halved_sinusoids(length: int, dim: int) -> Tensor:
    """The same encodings in Marian's layout: all sines first, then all cosines.  -> (length, dim)."""
    signal_TD = sinusoids(length, dim)
    return torch.cat([signal_TD[:, 0::2], signal_TD[:, 1::2]], dim=1)


def shifted_sinusoids(length: int, dim: int) -> Tensor:
    """Encodings in fairseq's layout (M2M100, NLLB): sines first, from position 2 on, rates down to 1/10000 itself."""
    half = dim // 2
    rate_C = torch.exp(torch.arange(half, dtype=torch.float64) * (-math.log(10000.0) / max(half - 1, 1)))
    angle_TC = torch.arange(2, length + 2, dtype=torch.float64)[:, None] * rate_C
    signal_TD = torch.zeros(length, dim, dtype=torch.float64)  # an odd channel stays empty
    signal_TD[:, :half], signal_TD[:, half : 2 * half] = angle_TC.sin(), angle_TC.cos()
    return signal_TD


class SinusoidalPositions(nn.Module):
    """Fixed sinusoids; the table is computed on demand, grows for longer texts and is never saved."""

    limit: int | None = None
    """No maximum length."""
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
        """Return a table of at least this length; another thread may replace it by a shorter one at any time."""
        table = self.table
        if length > len(table):
            size = max(length, self.expected_length, 2 * len(table))
            with torch.inference_mode(False):  # a table made in inference mode may be used in training later
                table = self.table = self.signals(size, self.dim).to(table)
        return table


class LearnedPositions(nn.Module):
    """A learned vector for each position (Table 3, row E); longer texts are an error."""

    def __init__(self, dim: int, limit: int) -> None:
        super().__init__()
        self.limit: int | None = limit
        self.weight = nn.Parameter(torch.empty(limit, dim))

    def first(self, length: int) -> Tensor:
        """Return the vectors of positions 0 … length - 1.  -> (length, D)."""
        self._check(length)
        return self.weight[:length]

    def at(self, positions: Tensor, longest: int) -> Tensor:
        """Return the vectors of given positions, all below `longest`.  (R T) -> (R T D)."""
        self._check(longest)
        return self.weight[positions]

    def _check(self, length: int) -> None:
        if length > len(self.weight):
            raise DataError(
                f"a text of {length} tokens does not fit a model that learned {len(self.weight)} positions; "
                "shorten the text, or train with sinusoidal positions or a larger max_positions"
            )


class NoPositions(nn.Module):
    """Nothing is added: positions are encoded in attention, see `nn.relative_position`."""

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


# Coordinates of the Universal Transformer: encodings of position and step.
#
# In training, positions may start at a random offset instead of 0 (section 3 of the paper), so that the model
# generalises to longer texts. Offsets are keyed like dropout: they depend neither on resuming nor on micro-batches.


class Coordinates(nn.Module):
    """sinusoid(position) + sinusoid(step), steps counted from 1."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.signals = SinusoidalPositions(dim)

    def at(self, positions: Tensor, longest: int) -> Tensor:
        """The signals of positions below `longest`.  (B N) -> (B N D)."""
        return self.signals.at(positions, longest)

    def of_step(self, step: int) -> Tensor:
        """The signal of a step, counted from 0.  -> (D)."""
        return self.signals.first(step + 2)[step + 1]


class RandomOffsets(nn.Module):
    """Offset of each row's positions: 0, or in training random up to `most`."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self.site = Dropout(0.0)
        """Holds the key of the pass, like every dropout of the model."""

    def forward(self, tokens: Tensor) -> Tensor:
        """(B N) -> (B)."""
        if not self.training or self.most == 0:
            return torch.zeros(len(tokens), dtype=torch.long, device=tokens.device)
        if self.site.key is None or tokens.device.type != "cpu":
            return torch.randint(0, self.most + 1, (len(tokens),), device=tokens.device)
        bits_B2 = keyed_bits(self.site.key, self.site.site, self.site.calls, tokens.new_zeros(len(tokens), 2)).long()
        self.site.calls += 1
        return ((bits_B2[:, 0] + 2**15) * 2**16 + bits_B2[:, 1] + 2**15) % (self.most + 1)
