"""The folder of a translation in blocks, OUTPUT.blocks, which all processes share.

    plan.json         the blocks of the input with their SHA-256, and the fingerprint of model and options
    000012            the translation of block 12; of OUTPUT.gz it is a gzip file
    000012.json       its manifest: size, SHA-256, counts; a block is complete when it has one
    000012.part, .progress.json      one that is being translated, or was interrupted

The first process to come writes the plan while the others wait; a later one must find in it what it was given itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from transduce.config import Table
from transduce.errors import Busy, CannotCreate, DataError, MissingInput
from transduce.inference.jobs.blocks import Block, cut_blocks, default_block_lines
from transduce.inference.segment import TranslationCounts
from transduce.storage.atomic import json_bytes, read_json, write_file
from transduce.storage.filesystem import create_parents, locked_file, storage_errors
from transduce.storage.manifest import sha256

SUFFIX = ".blocks"
PLAN, LOCK = "plan.json", "plan.lock"
PLAN_KIND, BLOCK_KIND = "transduce translation in blocks", "transduce translated block"
OWN_NAMES = re.compile(
    r"plan\.(json|lock)|[0-9]{6,}(\.gz)?(\.json|\.part|\.progress\.json(\.new)?)?|\.(plan|[0-9]{6,})\..*\.writing"
)
"""Files of a folder, and temporary ones of processes that were killed."""
POLL_SECONDS = 0.2
"""Between two looks whether another process has written the plan."""


@dataclass(frozen=True)
class TranslatedBlock:
    """The manifest of a block that is complete."""

    block: int
    job: str
    """Of the plan that it belongs to."""
    lines: int
    """Of the input."""
    size: int
    sha256: str
    counts: TranslationCounts

    def to_table(self) -> Table:
        return {"kind": BLOCK_KIND, **asdict(self)}

    @classmethod
    def from_table(cls, table: Table) -> TranslatedBlock:
        """Read what `to_table` returned; anything else raises a built-in exception, such as KeyError."""
        numbers = {name: int(table[name]) for name in ("block", "lines", "size")}
        counts = TranslationCounts(**{name: int(count) for name, count in table["counts"].items()})
        return cls(**numbers, job=str(table["job"]), sha256=str(table["sha256"]), counts=counts)


class BlockFolder:
    """An opened folder: the plan, and where blocks and their manifests are."""

    def __init__(self, output: str) -> None:
        """Read the plan of the folder of an output."""
        self.output, self.path = output, folder_of(output)
        path = self.path / PLAN
        if not path.is_file():
            if output.endswith(SUFFIX) and (Path(output) / PLAN).is_file():
                whole = output.removesuffix(SUFFIX)
                raise MissingInput(f"{output}: is the folder of the blocks; give the output itself, {whole}")
            raise MissingInput(f"{path}: does not exist; translate with --shard and --output {output} first")
        table = read_json(path, CannotCreate, self._remedy)
        try:
            if table["kind"] != PLAN_KIND:
                raise ValueError
            self.size, self.block_lines = int(table["size"]), int(table["block_lines"])
            self.fingerprint: Table = dict(table["fingerprint"])
            self.blocks = _blocks(table["blocks"])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise CannotCreate(f"{path}: is not the plan of a translation, or damaged; {self._remedy}") from None
        self.job = hashlib.sha256(json_bytes(table)).hexdigest()[:16]

    @property
    def _remedy(self) -> str:
        return f"delete {self.path} to start over"

    def check(self, size: int, fingerprint: Table, block_lines: int | None) -> None:
        """Raise unless this process was given what the plan was made for."""
        given = json.loads(json.dumps(fingerprint))
        differing = [
            name for name in sorted(given.keys() | self.fingerprint) if given.get(name) != self.fingerprint.get(name)
        ]
        if size != self.size:
            differing.insert(0, "input")
        if block_lines not in (None, self.block_lines):
            differing.insert(0, "--block-lines")
        if differing:
            raise CannotCreate(
                f"{self.path}: was started with another {differing[0]}; give the same as before, or {self._remedy}"
            )

    def file(self, number: int) -> Path:
        """Return the path of a translated block."""
        return self.path / f"{number:06d}{'.gz' if self.output.endswith('.gz') else ''}"

    def manifest(self, number: int) -> Path:
        """Return the path of the manifest of a block."""
        return self.path / f"{number:06d}.json"

    def read(self, number: int) -> TranslatedBlock | None:
        """Return the manifest of a block that is complete; None if it is not."""
        path = self.manifest(number)
        if not path.is_file() or not self.file(number).is_file():
            return None
        advice = f"delete {path} and run its shard again"
        table = read_json(path, DataError, advice)
        try:
            found = TranslatedBlock.from_table(table)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise DataError(f"{path}: is damaged; {advice}") from None
        if (found.block, found.job, found.lines) != (number, self.job, self.blocks[number].lines):
            raise DataError(f"{path}: belongs to another block or translation; {advice}")
        if (size := self.file(number).stat().st_size) != found.size:
            raise DataError(f"{self.file(number)}: has {size:,} bytes instead of {found.size:,}; {advice}")
        return found

    def is_complete(self, number: int) -> bool:
        """Whether a block has been translated."""
        return self.read(number) is not None

    def counts(self, numbers: Iterable[int]) -> TranslationCounts:
        """Return the sum of the counts of those of these blocks that are complete."""
        found = TranslationCounts()
        for number in numbers:
            if (one := self.read(number)) is not None:
                found = found.plus(one.counts)
        return found

    def remove(self) -> None:
        """Delete the folder, or the one that it links to, unless it has files of somebody else, which stay."""
        with storage_errors(self.path):
            for path in sorted(self.path.iterdir(), reverse=True):  # the plan first: without it the rest means nothing
                if OWN_NAMES.fullmatch(path.name):
                    path.unlink()
        with contextlib.suppress(OSError):
            self.path.resolve().rmdir()
            if self.path.is_symlink():
                self.path.unlink()

    def complete(self, number: int, counts: TranslationCounts) -> None:
        """Write the manifest of a block whose translation is in place."""
        path = self.file(number)
        found = TranslatedBlock(number, self.job, self.blocks[number].lines, path.stat().st_size, sha256(path), counts)
        write_file(self.manifest(number), json_bytes(found.to_table()))


def _blocks(table: Table) -> list[Block]:
    """Read the columns of a plan."""
    found, first, offset = list[Block](), 0, 0
    for number, (lines, size, digest) in enumerate(zip(table["lines"], table["bytes"], table["sha256"], strict=True)):
        found.append(Block(number, first, int(lines), offset, int(size), str(digest)))
        first, offset = first + found[-1].lines, offset + found[-1].size
    return found


def folder_of(output: str) -> Path:
    """Return the folder of the blocks of an output."""
    return Path(f"{output}{SUFFIX}")


def open_folder(
    path: str,
    output: str,
    fingerprint: dict[str, Any],
    block_lines: int | None = None,
    on_wait: Callable[[bool], None] = lambda waiting: None,
) -> BlockFolder:
    """Open the folder of an output; the first process to come cuts the input and writes the plan.

    `on_wait` is called with True if another process is cutting the input, and with False when this one does.
    """
    folder = folder_of(output)
    if Path(output).is_dir():
        raise CannotCreate(f"{output}: is a folder; give the name of a file")
    size = Path(path).stat().st_size
    if not (folder / PLAN).exists():
        with create_parents(folder / PLAN, folder), _lock(folder, on_wait):
            if not (folder / PLAN).exists():
                on_wait(False)
                lines = default_block_lines(path) if block_lines is None else block_lines
                _write_plan(path, folder, {"size": size, "block_lines": lines, "fingerprint": fingerprint})
    found = BlockFolder(output)
    found.check(size, fingerprint, block_lines)
    return found


@contextlib.contextmanager
def _lock(folder: Path, on_wait: Callable[[bool], None]) -> Iterator[None]:
    """Hold the lock on a plan that is not written; wait for it."""
    with contextlib.ExitStack() as stack:
        for attempt in itertools.count():
            try:
                stack.enter_context(locked_file(folder / LOCK, folder, "", remove=True))
                break
            except Busy:
                if not attempt:
                    on_wait(True)
                time.sleep(POLL_SECONDS)
        yield


def _write_plan(path: str, folder: Path, table: Table) -> None:
    blocks = list(cut_blocks(path, table["block_lines"]))
    columns = {
        "lines": [block.lines for block in blocks],
        "bytes": [block.size for block in blocks],
        "sha256": [block.sha256 for block in blocks],
    }
    write_file(folder / PLAN, json_bytes({"kind": PLAN_KIND, **table, "blocks": columns}))
