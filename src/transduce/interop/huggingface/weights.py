"""Weights in untrusted safetensors files: names and shapes at once, each tensor's values on demand.

A file has 8 bytes with the length of its header, the header (JSON: dtype, shape and offsets of each tensor), and the
data. The header is checked here before the library sees the file: it could name a tensor twice, be as long as memory,
or declare shapes that do not fit into memory.
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
"""Dtypes that weights are loaded from, and their sizes in bytes."""
OTHERS = {"I64": 8, "U64": 8, "I32": 4, "U32": 4, "I16": 2, "U16": 2, "I8": 1, "U8": 1, "BOOL": 1, "C64": 8} | {
    f"F8_{name}": 1 for name in ("E4M3", "E5M2", "E8M0", "E4M3FNUZ", "E5M2FNUZ")
}
"""Dtypes that a file may also hold (a table of positions, say), but that are never loaded."""

MAX_HEADER_BYTES = 16 * 2**20
MAX_TENSORS = 100_000
"""Per file; models have hundreds, mixtures of experts some ten thousands."""
MAX_AXES = 8
"""Axes of one tensor; bounds the arithmetic on a malicious shape."""

REMEDY = "download the file again"


@dataclass(frozen=True)
class _Tensor:
    file: Path
    """The path shown in messages; the library gets the resolved path."""
    kind: str
    shape: tuple[int, ...]


class SafetensorsWeights:
    """The tensors of one or several safetensors files, by name."""

    def __init__(self, files: Mapping[Path, Path]) -> None:
        """Read the headers of files: path shown in messages -> resolved path."""
        self._files = dict(files)
        self._tensors: dict[str, _Tensor] = {}
        for shown, real in files.items():
            for name, tensor in _header(shown, real):
                if name in self._tensors:
                    raise ModelFolderError(f"{shown}: has a second weight {brief(name)}; download the files again")
                self._tensors[name] = tensor

    @property
    def names(self) -> frozenset[str]:
        """Names of all tensors."""
        return frozenset(self._tensors)

    def file_of(self, name: str) -> Path | None:
        """Return the file that holds a weight, as shown in messages; None if there is no such weight."""
        tensor = self._tensors.get(name)
        return None if tensor is None else tensor.file

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a weight without loading it."""
        return self._tensor(name).shape

    def load(self, name: str) -> Tensor:
        """Load one weight in its stored dtype, which must be a floating-point one."""
        tensor = self._tensor(name)
        if tensor.kind not in FLOATING:
            raise ModelFolderError(
                f"{tensor.file}: the weight {brief(name)} has dtype {tensor.kind}; supported: "
                f"{', '.join(FLOATING)}; use a copy that is not quantized"
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
            raise ModelFolderError(f"{files}: missing weight {brief(name)}; is this the folder of this model?")
        return self._tensors[name]


def _header(shown: Path, real: Path) -> Iterator[tuple[str, _Tensor]]:
    """Yield the tensors of a file's header, checked against the size of the file."""
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
    """Return one tensor of a header, if its offsets are within the file and match its shape."""
    table = dict(entry) if _is_object(entry) else {}
    kind, shape, place = table.get("dtype"), table.get("shape"), table.get("data_offsets")
    width = (FLOATING | OTHERS).get(kind) if isinstance(kind, str) else None
    if width is None or not _are_sizes(shape, MAX_AXES) or not _are_sizes(place, 2) or len(place) != 2:
        raise ModelFolderError(
            f"{shown}: the header's entry of {brief(name)} has no valid dtype, shape and data_offsets; {REMEDY}"
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
    """Whether parsed JSON is an object, here a list of pairs: a name may occur twice."""
    return isinstance(value, list) and all(isinstance(pair, tuple) for pair in value)


def _are_sizes(value: Any, most: int) -> TypeGuard[list[int]]:
    return isinstance(value, list) and len(value) <= most and all(type(one) is int and one >= 0 for one in value)


def _brief_number(number: int) -> str:
    return f"{number:,}" if number < 10**18 else "more than 10^18"
