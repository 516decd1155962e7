"""What is known about one architecture of Hugging Face's: its settings and its names of weights, both ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transduce.config import Config, Table
from transduce.errors import ModelFolderError, brief
from transduce.interop.huggingface.rename import Rename, Weights
from transduce.models.interface import VocabularySizes

BENDS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "swish": "silu",
    "silu": "silu",
}
"""Their names of what bends a feed-forward network, and ours."""
LARGEST = 1e300
"""JSON may hold whole numbers that no float has room for."""


@dataclass(frozen=True)
class Family:
    """One architecture."""

    architecture: str
    """The class that loads it there."""
    read: Callable[[Settings, Weights], Config]
    """Their settings -> ours; what is not said there is seen in the weights."""
    write: Callable[[Any, VocabularySizes], Table]
    """Our settings -> theirs."""
    renames: Callable[[Any], list[Rename]]
    """Our settings -> names of weights."""
    ignored: tuple[str, ...] = ()
    """Patterns of names in their files that hold nothing learned."""
    added: Callable[[Any, Mapping[str, Tensor]], dict[str, Tensor]] = lambda config, weights: {}
    """What is written beside our own weights: those that they have and we do not."""


class Settings:
    """Their `config.json`, asked for one value at a time."""

    def __init__(self, table: Table, where: str) -> None:
        self.table, self.where = table, where

    def number(self, name: str, otherwise: int | None = None) -> int:
        """A whole number."""
        value = self.table.get(name, otherwise)
        if value is None:
            value = otherwise
        if type(value) is not int:
            raise ModelFolderError(f"{self.where}: {name} should be a whole number, not {brief(value)}")
        return value

    def share(self, name: str, otherwise: float) -> float:
        """A number."""
        value = self.table.get(name, otherwise)
        if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) > LARGEST:
            raise ModelFolderError(f"{self.where}: {name} should be a number, not {brief(value)}")
        return float(value)

    def flag(self, name: str, otherwise: bool) -> bool:
        """Yes or no."""
        value = self.table.get(name, otherwise)
        if not isinstance(value, bool):
            raise ModelFolderError(f"{self.where}: {name} should be true or false, not {brief(value)}")
        return value

    def same(self, *names: str) -> int:
        """One whole number under several names, which must agree."""
        values = {name: self.number(name) for name in names}
        if len(set(values.values())) > 1:
            said = " and ".join(f"{name} = {value}" for name, value in values.items())
            raise ModelFolderError(f"{self.where}: {said} differ, and here both sides are built alike")
        return next(iter(values.values()))

    def bend(self, name: str, otherwise: str) -> str:
        """What bends the feed-forward network, by our name."""
        value = self.table.get(name, otherwise)
        if not isinstance(value, str) or value not in BENDS:
            raise ModelFolderError(f"{self.where}: {name} = {brief(value)} is not known here; {', '.join(BENDS)} are")
        return BENDS[value]

    def refuse_unless(self, name: str, *wanted: Any) -> None:
        """Say no to a setting that changes what is computed, unless it has a value for which it does not."""
        value = self.table.get(name, wanted[0])
        if value not in wanted:
            listed = " or ".join(map(repr, wanted))
            raise ModelFolderError(f"{self.where}: {name} = {brief(value)} is not possible here; it must be {listed}")


def bend_name(ours: str) -> str:
    """Their name of what bends a feed-forward network."""
    return next(theirs for theirs, name in BENDS.items() if name == ours)


def are_one(weights: Weights, first: Sequence[str], second: str) -> bool:
    """Whether a tensor is absent, or the same as another: then the two are one matrix."""
    there = next((name for name in first if name in weights.names), None)
    if second not in weights.names or there is None:
        return True
    return bool(torch.equal(weights.load(there), weights.load(second)))
