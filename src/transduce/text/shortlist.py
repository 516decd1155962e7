"""Lexical shortlists: for each source token a few likely target tokens, and some that are always allowed.

A search that scores only these does much less work in the output layer. The file is safetensors, with a fingerprint of
the tokenizers and a hash of everything: safetensors itself does not detect flipped bits.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from transduce.errors import MissingInput, ModelFolderError
from transduce.storage.atomic import atomic_file
from transduce.storage.untrusted import SafetensorsHeader
from transduce.text.tokenizer import AnyTokenizer

Integers = NDArray[np.int64]

KIND = "transduce shortlist"
FORMAT = 1
"""Version of the file; higher ones are rejected."""
ARRAYS = ("tokens", "offsets", "always")
REMEDY = "create it again with `transduce shortlist`"


@dataclass(frozen=True)
class Shortlist:
    """Candidates by source token. Row i of the lists is `tokens[offsets[i]:offsets[i + 1]]`."""

    tokens: Integers
    offsets: Integers
    always: Integers
    """Tokens allowed for every source: frequent and special ones."""

    def of(self, source: Sequence[int] | NDArray[Any]) -> Integers:
        """Return the candidate tokens of a source, sorted and unique."""
        known = np.unique(np.asarray(source, dtype=np.int64))
        rows = zip(self.offsets[known].tolist(), self.offsets[known + 1].tolist(), strict=True)
        return np.unique(np.concatenate([self.always, *(self.tokens[start:end] for start, end in rows)]))

    def save(self, path: Path, source: AnyTokenizer, target: AnyTokenizer) -> None:
        """Write the file atomically; the same lists always give the same bytes."""
        arrays = {"tokens": self.tokens, "offsets": self.offsets, "always": self.always}
        note = {"kind": KIND, "format": FORMAT, **fingerprint(source, target)}
        with atomic_file(path) as temporary:
            temporary.write_bytes(save(arrays, {"shortlist": json.dumps({**note, "sha256": _digest(arrays, note)})}))

    @classmethod
    def load(cls, path: str | Path, source: AnyTokenizer, target: AnyTokenizer) -> Shortlist:
        """Load a file of `save`; a damaged one, or one of other tokenizers, is an error."""
        path = Path(path)
        arrays, note = _read(path)
        digest, written = note.pop("sha256", None), note.get("format")
        if note.get("kind") != KIND:
            raise ModelFolderError(f"{path}: is not a shortlist; {REMEDY}")
        if isinstance(written, int) and written > FORMAT:
            raise ModelFolderError(f"{path}: has format {written}; this version reads up to {FORMAT}: {REMEDY}")
        if digest != _digest(arrays, note):
            raise ModelFolderError(f"{path}: is damaged (SHA-256 mismatch); {REMEDY}")
        if not fingerprint(source, target).items() <= note.items():
            raise ModelFolderError(f"{path}: was created for other tokenizers than this model's; {REMEDY}")
        if not _fits(arrays, source.size, target.size):
            raise ModelFolderError(f"{path}: its lists do not fit these tokenizers; {REMEDY}")
        return cls(arrays["tokens"], arrays["offsets"], arrays["always"])


def fingerprint(source: AnyTokenizer, target: AnyTokenizer) -> dict[str, str]:
    """Return a hash of each tokenizer."""
    return {
        side: hashlib.sha256(tokenizer.to_json().encode("utf-8")).hexdigest()
        for side, tokenizer in (("source", source), ("target", target))
    }


def _read(path: Path) -> tuple[dict[str, Integers], dict[str, Any]]:
    if not path.exists() or path.is_dir():
        raise MissingInput(f"{path}: cannot be read (no such file); check the path")
    real = Path(os.path.realpath(path))
    try:
        header = SafetensorsHeader(real, path).tensors(64)  # with the braces of the metadata
    except ModelFolderError:
        raise ModelFolderError(f"{path}: is not a shortlist, or is damaged; {REMEDY}") from None
    if any(entry.dtype.startswith(("F8", "BF")) for entry in header.values()):  # numpy has no such dtypes
        raise ModelFolderError(f"{path}: is not a shortlist, or is damaged; {REMEDY}")
    try:
        with safe_open(real, framework="numpy") as file:
            note = json.loads((file.metadata() or {}).get("shortlist", "{}"))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except OSError as error:
        raise MissingInput(f"{path}: cannot be read ({error.strerror or 'no such file'}); check the path") from None
    except (SafetensorError, ValueError, RecursionError):
        raise ModelFolderError(f"{path}: is not a shortlist, or is damaged; {REMEDY}") from None
    return arrays, note if isinstance(note, dict) else {}


def _digest(arrays: dict[str, Integers], note: dict[str, Any]) -> str:
    found = hashlib.sha256(json.dumps(note).encode())
    for name, array in sorted(arrays.items()):
        found.update(f"{name} {array.dtype} {array.shape}\n".encode())
        found.update(array.tobytes())
    return found.hexdigest()


def _fits(arrays: dict[str, Integers], sources: int, targets: int) -> bool:
    """Whether arrays are valid lists for vocabularies of these sizes."""
    if arrays.keys() != set(ARRAYS):
        return False
    if any(array.dtype != np.int64 or array.ndim != 1 for array in arrays.values()):
        return False
    tokens, offsets, always = (arrays[name] for name in ARRAYS)
    in_order = len(offsets) == sources + 1 and offsets[0] == 0 and offsets[-1] == len(tokens)
    every = np.concatenate([tokens, always])
    return bool(in_order and np.all(np.diff(offsets) >= 0) and np.all((every >= 0) & (every < targets)))
