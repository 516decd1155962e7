"""One Hugging Face architecture: how its config and its weights map to ours, in both directions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transduce.config import Config, Table
from transduce.errors import ModelFolderError, brief
from transduce.interop.huggingface.weight_map import WeightMapping, Weights
from transduce.models.interface import VocabularySizes

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "swish": "silu",
    "silu": "silu",
}
"""Activation functions: Hugging Face's names -> ours."""
LARGEST = 1e300
"""Largest number accepted: JSON may hold integers that no float can represent."""


@dataclass(frozen=True)
class Architecture:
    """Mapping of one architecture."""

    class_name: str
    """The class in `transformers` that loads it."""
    read: Callable[[Settings, Weights], Config]
    """Their config -> ours; what the config does not say is inferred from the weights."""
    write: Callable[[Any, VocabularySizes], Table]
    """Our config -> theirs."""
    weight_map: Callable[[Any], list[WeightMapping]]
    """Our config -> the mapping of every weight."""
    ignored: tuple[str, ...] = ()
    """Patterns of tensor names in their files that hold nothing learned."""
    added: Callable[[Any, Mapping[str, Tensor]], dict[str, Tensor]] = lambda config, weights: {}
    """Further tensors to export: those that they have and we do not."""


class Settings:
    """Typed access to the values of a `config.json`."""

    def __init__(self, table: Table, where: str) -> None:
        self.table, self.where = table, where

    def integer(self, name: str, default: int | None = None) -> int:
        """Return an integer."""
        value = self.table.get(name, default)
        if value is None:
            value = default
        if type(value) is not int:
            raise ModelFolderError(f"{self.where}: {name} must be an integer, not {brief(value)}")
        return value

    def number(self, name: str, default: float) -> float:
        """Return a float."""
        value = self.table.get(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) > LARGEST:
            raise ModelFolderError(f"{self.where}: {name} must be a number, not {brief(value)}")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """Return a boolean."""
        value = self.table.get(name, default)
        if not isinstance(value, bool):
            raise ModelFolderError(f"{self.where}: {name} must be true or false, not {brief(value)}")
        return value

    def same(self, *names: str) -> int:
        """Return an integer that several settings must agree on."""
        values = {name: self.integer(name) for name in names}
        if len(set(values.values())) > 1:
            listed = " and ".join(f"{name} = {value}" for name, value in values.items())
            raise ModelFolderError(f"{self.where}: {listed} differ; encoder and decoder must have the same size")
        return next(iter(values.values()))

    def activation(self, name: str, default: str) -> str:
        """Return our name of the activation function."""
        value = self.table.get(name, default)
        if not isinstance(value, str) or value not in ACTIVATIONS:
            raise ModelFolderError(
                f"{self.where}: {name} = {brief(value)} is not supported; supported: {', '.join(ACTIVATIONS)}"
            )
        return ACTIVATIONS[value]

    def require(self, name: str, *wanted: Any) -> None:
        """Raise an error unless a setting that changes what is computed has one of the supported values."""
        value = self.table.get(name, wanted[0])
        if value not in wanted:
            listed = " or ".join(map(repr, wanted))
            raise ModelFolderError(f"{self.where}: {name} = {brief(value)} is not supported; it must be {listed}")


def activation_name(activation: str) -> str:
    """Return Hugging Face's name of one of our activation functions."""
    return next(name for name, ours in ACTIVATIONS.items() if ours == activation)


def are_tied(weights: Weights, first: Sequence[str], second: str) -> bool:
    """Whether a tensor is absent, or equal to another: then the two are tied."""
    there = next((name for name in first if name in weights.names), None)
    if second not in weights.names or there is None:
        return True
    return bool(torch.equal(weights.load(there), weights.load(second)))
