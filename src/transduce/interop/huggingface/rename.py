"""Weights under two names: ours, and those of another project's files; read in one direction, written in the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatch
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from transduce.errors import ModelFolderError

Shape = Literal["same", "transposed", "row"]


class Weights(Protocol):
    """Tensors by name, each read when it is wanted."""

    @property
    def names(self) -> frozenset[str]:
        """What there is."""

    def load(self, name: str) -> Tensor:
        """Read one."""


class Loaded:
    """Tensors that are in memory already."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._tensors)

    def load(self, name: str) -> Tensor:
        return self._tensors[name]


class Rename(NamedTuple):
    """One weight of ours, and where it stands in the other's files."""

    ours: str
    theirs: tuple[str, ...]
    """Several are stacked, one above the other. `a|b` are two names of one tensor: files have one or both."""
    shape: Shape = "same"
    """`transposed` where they multiply from the other side, `row` where they keep a vector as a matrix of one row."""
    widths: tuple[int, ...] = ()
    """How many rows each of several has; equally many unless given."""
    rows: slice = slice(None)
    """Which rows of theirs are ours, where they keep more in one matrix; such a weight is only read."""


def names_of(rename: Rename) -> Iterable[str]:
    """Every name that a weight may have in their files."""
    return (name for names in rename.theirs for name in names.split("|"))


def read_renamed(renames: Sequence[Rename], weights: Weights, ignored: Sequence[str], where: str) -> dict[str, Tensor]:
    """Return our weights, from their files, in the types that they have there.

    What is neither named nor `ignored` (patterns of names that hold nothing learned) is refused: a weight without a
    place would mean another model.
    """
    known = {name for rename in renames for name in names_of(rename)}
    for name in sorted(weights.names - known):
        if not any(fnmatch(name, pattern) for pattern in ignored):
            raise ModelFolderError(f"{where}: has a weight '{name}' that has no place in such a model here")
    return {rename.ours: _stacked(rename, weights, where)[rename.rows] for rename in renames}


def write_renamed(renames: Sequence[Rename], weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return their weights, under the first of their names each; what is ours and has no rename has no place there."""
    written: dict[str, Tensor] = {}
    for rename in renames:
        ours = weights[rename.ours].detach()
        count = len(rename.theirs)
        parts = torch.split(ours, list(rename.widths or [len(ours) // count] * count))
        for names, part in zip(rename.theirs, parts, strict=True):
            turned = {"same": part, "transposed": part.t(), "row": part[None]}[rename.shape]
            written[names.split("|")[0]] = turned.contiguous().clone()
    return written


def missing(renames: Sequence[Rename], weights: Weights) -> list[str]:
    """Which of our weights their files lack."""
    return [
        rename.ours
        for rename in renames
        if any(not weights.names.intersection(names.split("|")) for names in rename.theirs)
    ]


def matrix(weights: Weights, name: str, where: str) -> Tensor:
    """Read a weight whose shape says how large a model is."""
    weight = weights.load(name)
    if weight.dim() != 2:
        raise ModelFolderError(f"{where}: the weight '{name}' has shape {tuple(weight.shape)} and should be a matrix")
    return weight


def _stacked(rename: Rename, weights: Weights, where: str) -> Tensor:
    """Put the parts of a weight of ours above each other, each as large as the settings say it is.

    Only the parts are looked at here: two of wrong sizes could add up to the right one.
    """
    parts = [_turned(_found(names, weights, where), rename.shape) for names in rename.theirs]
    rows = rename.widths or [len(parts[0]) if parts[0].dim() else 0] * len(parts)
    for names, part, count in zip(rename.theirs, parts, rows, strict=True):
        expected = (count, *max(parts, key=Tensor.dim).shape[1:])
        if part.dim() not in (1, 2) or tuple(part.shape) != expected:
            raise ModelFolderError(
                f"{where}: the weight '{names.split('|')[0]}' has shape {tuple(part.shape)}, but by the settings and "
                f"by the other weights it should have {expected}; get config.json and the weights from one place"
            )
    return torch.cat(parts)


def _turned(weight: Tensor, shape: Shape) -> Tensor:
    """A weight as ours lies; one with more axes than a matrix has stays as it is, and is refused."""
    if weight.dim() > 2 or shape == "same":
        return weight
    return weight.t() if shape == "transposed" else weight.flatten()


def _found(names: str, weights: Weights, where: str) -> Tensor:
    """The tensor of one of several names; where files have more than one of them, they must agree."""
    there = [name for name in names.split("|") if name in weights.names]
    if not there:
        raise ModelFolderError(f"{where}: lacks the weight '{names.split('|')[0]}'; get the whole folder again")
    weight = weights.load(there[0])
    if not bool(weight.float().isfinite().all()):
        raise ModelFolderError(
            f"{where}: the weight '{there[0]}' holds values that are not finite, so the file is damaged or its makers' "
            "training failed; get it from them again, or import another model"
        )
    for name in there[1:]:
        if not torch.equal(weight, weights.load(name)):
            raise ModelFolderError(
                f"{where}: '{there[0]}' and '{name}' should be one matrix and differ, which has no place here"
            )
    return weight
