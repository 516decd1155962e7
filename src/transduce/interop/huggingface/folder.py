"""An untrusted model folder in Hugging Face's layout.

    config.json                      the architecture and its sizes
    model.safetensors                the weights, or model.safetensors.index.json and the shards that it names
    tokenizer.json, vocab.json, …    the tokenizer, in one of many formats

No code in it is run, nothing outside it is read, and only regular files of a plausible size are read. Names come from
the folder itself (an index names its shards), so each one is checked before it is opened: a link, a pipe or a path with
`..` in it can lead anywhere. Links are allowed in one place only, the download cache:

    models--owner--name/snapshots/REVISION/config.json  ->  models--owner--name/blobs/HASH
"""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

from safetensors import SafetensorError, safe_open
from torch import Tensor

from transduce.config import Table
from transduce.errors import MissingInput, ModelFolderError, brief, one_line
from transduce.storage.untrusted import (
    FLOATING,
    MAX_JSON_BYTES,
    MAX_JSON_VALUES,
    SafetensorsHeader,
    parse_json,
    read_regular,
)

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"

PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")

CONVERSION = (
    'python -c "import glob, torch, safetensors.torch as s; s.save_file({n: t.clone() for f in '
    "sorted(glob.glob('pytorch_model*.bin')) for n, t in torch.load(f, weights_only=True).items()}, "
    "'model.safetensors')\""
)
"""Command that converts trusted pickles, to be run inside their folder."""


class HuggingFaceFolder:
    """The regular files of one folder."""

    def __init__(self, path: str | Path) -> None:
        """Open a folder and read its config."""
        self.path = Path(path)
        try:
            self._place = Path(os.path.realpath(self.path))
            there, is_folder = self.path.exists(), self.path.is_dir()
        except (OSError, ValueError):
            there = is_folder = False
        if not there:
            raise MissingInput(f"{self.path}: no such folder; give one that holds a {CONFIG}")
        if not is_folder:
            raise ModelFolderError(f"{self.path}: is neither a folder nor a .gguf file; give a Hugging Face folder")
        self._roots = (self._place, *_download_cache(self._place))
        if self.find(CONFIG) is None:
            raise ModelFolderError(f"{self.path}: has no {CONFIG}, so it is not a Hugging Face model folder")
        self.config = self.table(CONFIG)
        """Contents of `config.json`."""
        if "auto_map" in self.config:
            raise ModelFolderError(f"{self.path / CONFIG}: needs custom code (auto_map), which is never run")

    def find(self, name: str) -> Path | None:
        """Return the resolved path of a file, None if there is none; anything but a regular file is an error.

        The path was safe at the time of the check; `read` checks again what it has opened.
        """
        shown = self.path / name
        if not os.path.lexists(shown):
            return None
        real = Path(os.path.realpath(shown))
        if not any(real.is_relative_to(root) for root in self._roots):
            raise ModelFolderError(f"{shown}: is a link to a file outside the folder; replace it by the file itself")
        try:
            kind = real.stat().st_mode
        except OSError as error:
            raise ModelFolderError(f"{shown}: cannot be read ({error.strerror}); download the file again") from None
        _check_regular_file(kind, shown)
        return real

    def read(self, name: str, limit: int) -> bytes:
        """Return the contents of a file, which must exist and have at most `limit` bytes."""
        shown, real = self.path / name, self.find(name)
        if real is None:
            raise ModelFolderError(f"{shown}: is missing; download the whole folder again")
        return read_regular(real, limit, remedy=REMEDY, shown=shown)

    def table(self, name: str, limit: int = MAX_JSON_BYTES) -> Table:
        """Return the JSON object in a file; duplicate keys are an error, because parsers differ about them."""
        values = max(MAX_JSON_VALUES, limit // 32)  # a piece of a vocabulary takes more than 32 bytes
        return parse_json(self.read(name, limit), self.path / name, remedy=REMEDY, most_values=values)

    @functools.cached_property
    def weights(self) -> SafetensorsWeights:
        """The weights; values are loaded on demand, names and shapes at once."""
        if (whole := self.find(WEIGHTS)) is not None:
            return SafetensorsWeights({self.path / WEIGHTS: whole})
        if self.find(INDEX) is None:
            raise ModelFolderError(self._no_weights())
        listed = self.table(INDEX).get("weight_map")
        if not isinstance(listed, dict) or not listed:
            raise ModelFolderError(f"{self.path / INDEX}: lists no weights; download the file again")
        names = dict.fromkeys(map(_as_text, listed.values()))
        if len(names) > MAX_SHARDS:
            raise ModelFolderError(f"{self.path / INDEX}: names more than {MAX_SHARDS:,} shards; {REMEDY}")
        shards = {name: self._shard(name) for name in names}
        weights = SafetensorsWeights({self.path / name: real for name, real in shards.items()})
        for tensor, name in listed.items():
            if weights.file_of(tensor) != self.path / name:
                raise ModelFolderError(
                    f"{self.path / name}: missing weight {brief(tensor)}, which {INDEX} lists; "
                    "download both files again"
                )
        return weights

    def _shard(self, name: str) -> Path:
        """Return the resolved path of a shard that the index names."""
        parts = (*PurePosixPath(name).parts, *PureWindowsPath(name).parts)
        odd = PurePosixPath(name).is_absolute() or PureWindowsPath(name).anchor or ".." in parts or "\0" in name
        odd = odd or PurePosixPath(name).as_posix() != name
        if odd or not name.endswith(".safetensors"):
            raise ModelFolderError(
                f"{self.path / INDEX}: names the shard {brief(name)}, which is not a safetensors file of this folder"
            )
        real = self.find(name)
        if real is None:
            raise ModelFolderError(
                f"{self.path / name}: is missing, but {INDEX} names it; download the whole folder again"
            )
        return real

    def _no_weights(self) -> str:
        if any(next(self.path.glob(pattern), None) for pattern in PICKLES):
            return (
                f"{self.path}: has pickled weights only, which can run code when they are loaded; if you trust "
                f"them, convert them to safetensors inside that folder: {CONVERSION}"
            )
        return f"{self.path}: has neither {WEIGHTS} nor {INDEX}; download the whole folder again"


def _download_cache(place: Path) -> Iterator[Path]:
    """Yield the download-cache folder of a model if this is a snapshot in it."""
    for above in place.parents:
        if above.name.startswith("models--") and place.relative_to(above).parts[0] == "snapshots":
            yield above


def _check_regular_file(mode: int, shown: Path) -> None:
    if not stat.S_ISREG(mode):
        raise ModelFolderError(f"{shown}: is not a regular file; replace it by the file itself")


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else brief(value)


# Weights in untrusted safetensors files: names and shapes at once, each tensor's values on demand.

MAX_TENSORS = 20_000
"""Per file; the supported architectures have up to two thousand."""
MAX_SHARDS = 1000
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
            for name, tensor in SafetensorsHeader(real, shown, REMEDY).tensors(MAX_TENSORS).items():
                if name in self._tensors:
                    raise ModelFolderError(f"{shown}: has a second weight {brief(name)}; download the files again")
                self._tensors[name] = _Tensor(shown, tensor.dtype, tensor.shape)

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
