"""What a decoder looks at in every step and computes once: the keys and values of its memory.

Letters: B sentences, G heads of keys, M memory, K and V widths of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class KeptMemory:
    """The keys and values of what each sentence's rows look at, computed once."""

    keys: list[Tensor]
    """Per layer (B G M K)."""
    values: list[Tensor]
    """Per layer (B G M V)."""
    allowed: Tensor | None
    """(B 1 1 M), or None where no source is padded."""

    @classmethod
    def of(cls, read: Sequence[tuple[Tensor, Tensor]], allowed: Tensor | None) -> KeptMemory:
        """Keep what each layer has read; every step reads it again, so it stands in one piece."""
        return cls([key.contiguous() for key, _ in read], [value.contiguous() for _, value in read], allowed)

    def layer(self, number: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Keys, values and permissions of one layer."""
        return self.keys[number], self.values[number], self.allowed

    def select(self, sentences: Tensor) -> KeptMemory:
        """Keep some sentences, in this order."""
        if torch.equal(sentences, torch.arange(len(self.keys[0]), device=sentences.device)):  # all stay in place
            return self
        return KeptMemory(
            [key.index_select(0, sentences) for key in self.keys],
            [value.index_select(0, sentences) for value in self.values],
            None if self.allowed is None else self.allowed.index_select(0, sentences),
        )

    def join(self, other: KeptMemory) -> KeptMemory:
        """Put the sentences of another behind these."""
        length = max(self.keys[0].shape[2], other.keys[0].shape[2])
        return KeptMemory(
            _stacked(self.keys, other.keys, length),
            _stacked(self.values, other.values, length),
            torch.cat([self._allowed_up_to(length), other._allowed_up_to(length)]),
        )

    def _allowed_up_to(self, length: int) -> Tensor:
        key_BGMK, allowed = self.keys[0], self.allowed
        if allowed is None:
            allowed = torch.ones(len(key_BGMK), 1, 1, key_BGMK.shape[2], dtype=torch.bool, device=key_BGMK.device)
        return nn.functional.pad(allowed, (0, length - allowed.shape[-1]))


def _stacked(first: list[Tensor], second: list[Tensor], length: int) -> list[Tensor]:
    def reach(kept_BGMK: Tensor) -> Tensor:
        return nn.functional.pad(kept_BGMK, (0, 0, 0, length - kept_BGMK.shape[2]))

    return [torch.cat([reach(one), reach(other)]) for one, other in zip(first, second, strict=True)]
