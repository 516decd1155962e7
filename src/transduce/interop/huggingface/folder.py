"""A model folder in Hugging Face's layout, opened as something that a stranger made.

    config.json                      what the model is
    model.safetensors                its weights, or model.safetensors.index.json and the shards that it names
    tokenizer.json, vocab.json, …    its tokenizer, in one of many ways

Nothing in it is run, nothing outside it is read, and nothing is read that is not a plain file of a size that makes
sense. Names come from the folder itself (an index names its shards), so each one is looked at before it is opened: a
link, a pipe or a path with `..` in it can lead anywhere. Links are usual in one place only, the cache of downloads:

    models--owner--name/snapshots/REVISION/config.json  ->  models--owner--name/blobs/HASH
"""

from __future__ import annotations

import functools
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from transduce.config import Table
from transduce.errors import MissingInput, ModelFolderError, brief
from transduce.interop.huggingface.weights import ForeignWeights

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"

MAX_JSON_BYTES = 16 * 2**20
"""Largest settings or index that are read; the index of the largest model there is has a tenth of it."""

_SAFELY = sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOFOLLOW", "O_BINARY"))
"""Flags to open a file that may have become a pipe or a link; not all systems have all of them."""
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")

CONVERSION = (
    'python -c "import glob, torch, safetensors.torch as s; s.save_file({n: t.clone() for f in '
    "sorted(glob.glob('pytorch_model*.bin')) for n, t in torch.load(f, weights_only=True).items()}, "
    "'model.safetensors')\""
)
"""What a person can run, inside a folder of pickles that they trust."""


class ForeignFolder:
    """The plain files of one folder."""

    def __init__(self, path: str | Path) -> None:
        """Open a folder and read what model it says it holds."""
        self.path = Path(path)
        try:
            self._place = Path(os.path.realpath(self.path))
            there, is_folder = self.path.exists(), self.path.is_dir()
        except (OSError, ValueError):
            there = is_folder = False
        if not there:
            raise MissingInput(f"{self.path}: there is no such folder; give one that holds a {CONFIG}")
        if not is_folder:
            raise ModelFolderError(f"{self.path}: is not a folder; give the folder that holds {CONFIG} and the weights")
        self._roots = (self._place, *_download_cache(self._place))
        if self.find(CONFIG) is None:
            raise ModelFolderError(f"{self.path}: has no {CONFIG}, so it is no model folder of Hugging Face's")
        self.config = self.table(CONFIG)
        """What `config.json` says."""
        if "auto_map" in self.config:
            raise ModelFolderError(
                f"{self.path / CONFIG}: names code of its author's that has to be run (auto_map), which is never done"
            )

    def find(self, name: str) -> Path | None:
        """Return where a file of this name really is, None where there is none; anything but a plain file is refused.

        What is returned was safe to open a moment ago; `read` looks again at what it has opened.
        """
        shown = self.path / name
        if not os.path.lexists(shown):
            return None
        real = Path(os.path.realpath(shown))
        if not any(real.is_relative_to(root) for root in self._roots):
            raise ModelFolderError(f"{shown}: is a link that leads out of the folder; put the file itself there")
        try:
            kind = real.stat().st_mode
        except OSError as error:
            raise ModelFolderError(f"{shown}: cannot be read ({error.strerror}); get the file again") from None
        _refuse_odd(kind, shown)
        return real

    def read(self, name: str, limit: int) -> bytes:
        """Return what a file holds, which must be there and have at most `limit` bytes."""
        shown, real = self.path / name, self.find(name)
        if real is None:
            raise ModelFolderError(f"{shown}: is missing; get the whole folder again")
        try:  # without waiting: what was a file just now may be a pipe by now
            descriptor = os.open(real, os.O_RDONLY | _SAFELY)
            with os.fdopen(descriptor, "rb") as file:
                _refuse_odd(os.fstat(descriptor).st_mode, shown)
                content = file.read(limit + 1)
        except OSError as error:
            raise ModelFolderError(f"{shown}: cannot be read ({error.strerror}); get the file again") from None
        if len(content) > limit:
            raise ModelFolderError(f"{shown}: has more than {limit:,} bytes, too many for what it should be")
        return content

    def table(self, name: str, limit: int = MAX_JSON_BYTES) -> Table:
        """Return the JSON object in a file; a name that stands twice in it is refused, for readers differ about it."""
        try:
            table = json.loads(self.read(name, limit), object_pairs_hook=_once)
        except _Twice as error:
            raise ModelFolderError(f"{self.path / name}: names {error} twice; get the file again") from None
        except (ValueError, RecursionError):
            raise ModelFolderError(f"{self.path / name}: is not valid JSON; get the file again") from None
        if not isinstance(table, dict):
            raise ModelFolderError(f"{self.path / name}: is not a JSON object; get the file again")
        return table

    @functools.cached_property
    def weights(self) -> ForeignWeights:
        """The weights, of which nothing but names and shapes is read until it is asked for."""
        if (whole := self.find(WEIGHTS)) is not None:
            return ForeignWeights({self.path / WEIGHTS: whole})
        if self.find(INDEX) is None:
            raise ModelFolderError(self._no_weights())
        listed = self.table(INDEX).get("weight_map")
        if not isinstance(listed, dict) or not listed:
            raise ModelFolderError(f"{self.path / INDEX}: lists no weights; get the file again")
        shards = {name: self._shard(name) for name in dict.fromkeys(map(_as_text, listed.values()))}
        weights = ForeignWeights({self.path / name: real for name, real in shards.items()})
        for tensor, name in listed.items():
            if weights.file_of(tensor) != self.path / name:
                raise ModelFolderError(
                    f"{self.path / name}: lacks the weight {brief(tensor)} that {INDEX} says is there; "
                    "get both files again"
                )
        return weights

    def _shard(self, name: str) -> Path:
        """Where the shard of a name that the index gave is."""
        parts = (*PurePosixPath(name).parts, *PureWindowsPath(name).parts)
        odd = PurePosixPath(name).is_absolute() or PureWindowsPath(name).anchor or ".." in parts or "\0" in name
        if odd or not name.endswith(".safetensors"):
            raise ModelFolderError(
                f"{self.path / INDEX}: names the shard {brief(name)}, which is no safetensors file of this folder"
            )
        real = self.find(name)
        if real is None:
            raise ModelFolderError(f"{self.path / name}: is missing, but {INDEX} names it; get the whole folder again")
        return real

    def _no_weights(self) -> str:
        if any(next(self.path.glob(pattern), None) for pattern in PICKLES):
            return (
                f"{self.path}: has its weights as pickles only, which can run code when they are read; where you trust "
                f"them, make safetensors of them in that folder: {CONVERSION}"
            )
        return f"{self.path}: has neither {WEIGHTS} nor {INDEX}; get the whole folder again"


def _download_cache(place: Path) -> Iterator[Path]:
    """The folder of all that was downloaded of one model, where this is a snapshot in it."""
    for above in place.parents:
        if above.name.startswith("models--") and place.relative_to(above).parts[0] == "snapshots":
            yield above


def _refuse_odd(mode: int, shown: Path) -> None:
    if not stat.S_ISREG(mode):
        raise ModelFolderError(f"{shown}: is not a plain file; put the file itself there")


class _Twice(Exception):
    """A name stands twice in one JSON object."""


def _once(pairs: list[tuple[str, Any]]) -> Table:
    table: Table = {}
    for name, value in pairs:
        if name in table:
            raise _Twice(brief(name))
        table[name] = value
    return table


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else brief(value)
