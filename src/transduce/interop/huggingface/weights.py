"""Weights of a stranger's in safetensors files: names and shapes at once, the numbers of a tensor when it is wanted.

A file is 8 bytes that say how long its header is, the header (JSON: type, shape and place of each tensor), and the
numbers. The header is checked here before the library sees the file: it can name a tensor twice, be as long as memory,
or declare shapes that nobody has room for.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from safetensors import SafetensorError, safe_open
from torch import Tensor

from transduce.errors import ModelFolderError, brief, one_line

FLOATING = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
"""Types of numbers that weights are read from, and their bytes."""
OTHERS = {"I64": 8, "U64": 8, "I32": 4, "U32": 4, "I16": 2, "U16": 2, "I8": 1, "U8": 1, "BOOL": 1, "C64": 8} | {
    f"F8_{name}": 1 for name in ("E4M3", "E5M2", "E8M0", "E4M3FNUZ", "E5M2FNUZ")
}
"""Types that a file may hold beside them (a table of positions, say), but that are never read."""

MAX_HEADER_BYTES = 16 * 2**20
MAX_TENSORS = 100_000
"""Per file; models have hundreds, or some ten thousands where they have many experts."""
MAX_AXES = 8
"""Of one tensor; it keeps the arithmetic on a hostile shape short."""

REMEDY = "get the file again"


@dataclass(frozen=True)
class _Tensor:
    file: Path
    """As it is shown; the library is given where it really is."""
    kind: str
    shape: tuple[int, ...]


class ForeignWeights:
    """The tensors of one or several safetensors files, by name."""

    def __init__(self, files: Mapping[Path, Path]) -> None:
        """Read the headers of files, which are given as a person knows them and as they are opened."""
        self._files = dict(files)
        self._tensors: dict[str, _Tensor] = {}
        for shown, real in files.items():
            for name, tensor in _header(shown, real):
                if name in self._tensors:
                    raise ModelFolderError(f"{shown}: has a second weight {brief(name)}; get the files again")
                self._tensors[name] = tensor

    @property
    def names(self) -> frozenset[str]:
        """What there is."""
        return frozenset(self._tensors)

    def file_of(self, name: str) -> Path | None:
        """The file that has a weight of this name, as a person knows it; None where there is no such weight."""
        tensor = self._tensors.get(name)
        return None if tensor is None else tensor.file

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a weight, without reading it."""
        return self._tensor(name).shape

    def load(self, name: str) -> Tensor:
        """Read one weight, in the type in which it stands there; one that is not made of floats is refused."""
        tensor = self._tensor(name)
        if tensor.kind not in FLOATING:
            raise ModelFolderError(
                f"{tensor.file}: the weight {brief(name)} is of type {tensor.kind}; weights are read from "
                f"{', '.join(FLOATING)} only, so get a copy that is not quantized"
            )
        try:
            with safe_open(self._files[tensor.file], framework="pt") as file:
                weight: Tensor = file.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise ModelFolderError(f"{tensor.file}: cannot be read ({one_line(error)}); {REMEDY}") from None
        return weight

    def _tensor(self, name: str) -> _Tensor:
        if name not in self._tensors:
            files = ", ".join(map(str, self._files))
            raise ModelFolderError(f"{files}: lacks the weight {brief(name)}; is this a folder of this model?")
        return self._tensors[name]


def _header(shown: Path, real: Path) -> Iterator[tuple[str, _Tensor]]:
    """Yield the tensors of a file after checking that it can hold them."""
    try:
        with real.open("rb") as file:
            size = real.stat().st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, MAX_HEADER_BYTES):
                raise ModelFolderError(
                    f"{shown}: is not a safetensors file (its header cannot be {length:,} bytes long); {REMEDY}"
                )
            header = json.loads(file.read(length), object_pairs_hook=list)
    except OSError as error:
        raise ModelFolderError(f"{shown}: cannot be read ({error.strerror}); {REMEDY}") from None
    except (ValueError, RecursionError):
        raise ModelFolderError(f"{shown}: is not a safetensors file (its header is no JSON); {REMEDY}") from None
    if not _is_object(header) or len(header) > MAX_TENSORS:
        raise ModelFolderError(f"{shown}: is not a safetensors file (its header lists no tensors); {REMEDY}")
    for name, entry in header:
        if name != "__metadata__":
            yield name, _checked(shown, name, entry, size - 8 - length)


def _checked(shown: Path, name: str, entry: Any, room: int) -> _Tensor:
    """One tensor of a header, if it is where it says and as large as its shape."""
    table = dict(entry) if _is_object(entry) else {}
    kind, shape, place = table.get("dtype"), table.get("shape"), table.get("data_offsets")
    width = (FLOATING | OTHERS).get(kind) if isinstance(kind, str) else None
    if width is None or not _are_sizes(shape, MAX_AXES) or not _are_sizes(place, 2) or len(place) != 2:
        raise ModelFolderError(
            f"{shown}: the header's entry of {brief(name)} has no known type, shape and place; {REMEDY}"
        )
    begin, end = place
    needed = math.prod(shape) * width
    if not begin <= end <= room or end - begin != needed:
        raise ModelFolderError(
            f"{shown}: declares {_brief_number(needed)} bytes for the weight {brief(name)} and gives it "
            f"{_brief_number(begin)} to {_brief_number(end)} of the {room:,} that the file holds; {REMEDY}"
        )
    return _Tensor(shown, str(kind), tuple(shape))


def _is_object(value: Any) -> bool:
    """Whether parsed JSON is an object, which is a list of pairs here: a name may stand in it twice."""
    return isinstance(value, list) and all(isinstance(pair, tuple) for pair in value)


def _are_sizes(value: Any, most: int) -> TypeGuard[list[int]]:
    return isinstance(value, list) and len(value) <= most and all(type(one) is int and one >= 0 for one in value)


def _brief_number(number: int) -> str:
    return f"{number:,}" if number < 10**18 else "more than 10^18"
