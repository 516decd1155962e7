"""One Hugging Face architecture: how its config and its weights map to ours, in both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from transduce.config import Config, Table
from transduce.errors import ModelFolderError, brief
from transduce.models.interface import VocabularySizes

Shape = Literal["same", "transposed", "row"]


class Weights(Protocol):
    """Tensors by name, loaded lazily."""

    @property
    def names(self) -> frozenset[str]:
        """Names of all tensors."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of one tensor without loading it."""

    def load(self, name: str) -> Tensor:
        """Load one tensor."""


class InMemoryWeights:
    """Tensors that are already in memory."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._tensors[name].shape)

    def load(self, name: str) -> Tensor:
        return self._tensors[name]


class WeightMapping(NamedTuple):
    """One of our weights, and the tensors of a checkpoint file that it is made of."""

    name: str
    source_names: tuple[str, ...]
    """Several tensors are concatenated by rows. `a|b` are two names of one tensor: files have one or both."""
    shape: Shape = "same"
    """`transposed` where files store the transpose, `row` where they store a vector as a matrix of one row."""
    widths: tuple[int, ...] = ()
    """Rows of each of several tensors; equal shares by default."""
    rows: slice = slice(None)
    """Rows of the tensor to use, where files store more in one matrix; such a mapping can only be loaded."""


def source_names(mapping: WeightMapping) -> Iterable[str]:
    """Every name that a weight may have in checkpoint files."""
    return (name for names in mapping.source_names for name in names.split("|"))


def load_mapped(
    weight_map: Sequence[WeightMapping], weights: Weights, ignored: Sequence[str], where: str
) -> dict[str, Tensor]:
    """Return our weights from checkpoint files, in the dtypes of the files.

    A tensor that is neither mapped nor `ignored` (patterns of names that hold nothing learned) is an error: it would
    mean a different model.
    """
    known = {name for mapping in weight_map for name in source_names(mapping)}
    for name in sorted(weights.names - known):
        if not any(fnmatch(name, pattern) for pattern in ignored):
            raise ModelFolderError(f"{where}: unexpected weight '{name}'; this architecture has no such parameter")
    return {mapping.name: _stacked(mapping, weights, where)[mapping.rows] for mapping in weight_map}


def export_mapped(weight_map: Sequence[WeightMapping], weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint file, each under the first of its names; unmapped weights are left out."""
    written: dict[str, Tensor] = {}
    for mapping in weight_map:
        weight = weights[mapping.name].detach()
        count = len(mapping.source_names)
        parts = torch.split(weight, list(mapping.widths or [len(weight) // count] * count))
        for names, part in zip(mapping.source_names, parts, strict=True):
            turned = {"same": part, "transposed": part.t(), "row": part[None]}[mapping.shape]
            written[names.split("|")[0]] = turned.contiguous().clone()
    return written


def rows_and_columns(weights: Weights, name: str, where: str) -> tuple[int, int]:
    """Return the shape of a matrix that determines a size of the model."""
    shape = weights.shape(name)
    if len(shape) != 2:
        raise ModelFolderError(f"{where}: the weight '{name}' has shape {shape} and should be a matrix")
    return shape[0], shape[1]


def _stacked(mapping: WeightMapping, weights: Weights, where: str) -> Tensor:
    """Concatenate the parts of one of our weights, each of the size that the config says.

    The parts are checked one by one: two of wrong sizes could add up to the right one.
    """
    parts = [_turned(_found(names, weights, where), mapping.shape) for names in mapping.source_names]
    rows = mapping.widths or [len(parts[0]) if parts[0].dim() else 0] * len(parts)
    for names, part, count in zip(mapping.source_names, parts, rows, strict=True):
        expected = (count, *max(parts, key=Tensor.dim).shape[1:])
        if part.dim() not in (1, 2) or tuple(part.shape) != expected:
            raise ModelFolderError(
                f"{where}: the weight '{names.split('|')[0]}' has shape {tuple(part.shape)}, but the config "
                f"and the other weights require {expected}; take config.json and the weights from one checkpoint"
            )
    return torch.cat(parts)


def _turned(weight: Tensor, shape: Shape) -> Tensor:
    """Return a weight in our layout; one with more than two axes is returned unchanged and rejected later."""
    if weight.dim() > 2 or shape == "same":
        return weight
    return weight.t() if shape == "transposed" else weight.flatten()


def _found(names: str, weights: Weights, where: str) -> Tensor:
    """Load the tensor of one of several names; where files have more than one of them, they must be equal."""
    there = [name for name in names.split("|") if name in weights.names]
    if not there:
        raise ModelFolderError(f"{where}: missing weight '{names.split('|')[0]}'; download the whole folder again")
    weight = weights.load(there[0])
    if not bool(weight.float().isfinite().all()):
        raise ModelFolderError(
            f"{where}: the weight '{there[0]}' holds values that are not finite, so the file is damaged or "
            "training diverged; download it again, or import another model"
        )
    for name in there[1:]:
        if not torch.equal(weight, weights.load(name)):
            raise ModelFolderError(
                f"{where}: '{there[0]}' and '{name}' must be equal (tied) but differ; untied copies are not supported"
            )
    return weight


# Architectures.

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


LEAST_LIMIT = 300_000
"""The least largest size that a config implies: it may leave out its defaults, such as the vocabulary size."""


def check_sizes(table: Table, weights: Weights, where: str) -> None:
    """Reject tensors with more rows or columns than the config can mean, before any of them is loaded.

    The largest axes are a vocabulary, positions, and up to four widths in one matrix.
    """
    numbers = [value for value in table.values() if type(value) is int]
    largest = 4 * max([LEAST_LIMIT, *(number for number in numbers if number <= 2_000_000)])
    for name in weights.names:
        if max(weights.shape(name), default=0) > largest:
            raise ModelFolderError(
                f"{where}: the weight {brief(name)} has shape {weights.shape(name)}, which the config does not imply; "
                "take config.json and the weights from one checkpoint"
            )


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
