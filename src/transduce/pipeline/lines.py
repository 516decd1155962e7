"""Files of lines that a model writes block by block, and that an interrupted command resumes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from transduce.config import Table
from transduce.errors import CannotCreate
from transduce.inference.segment import one_line
from transduce.storage.atomic import WRITING, json_bytes
from transduce.storage.filesystem import storage_errors, sync

BLOCK = 512
"""Lines of input that are translated and written together."""

Block = Sequence[tuple[str, str]]
"""Pairs of lines."""

_END = b"\t\t"
"""Begins the line after a block, as no pair does. A hash of the job and of its inputs so far follows."""


def write_blocks(
    output: Path,
    inputs: Iterable[tuple[str, str]],
    translate: Callable[[Block], Block],
    progress: Callable[[int], None],
    job: Table,
) -> int:
    """Write the pairs that blocks of inputs become, as `source<TAB>target` lines; return how many.

    Blocks are appended to a hidden file, each with its end marked, so that a rerun continues after the last whole one.
    `job` is all that the pairs depend on besides the inputs: a rerun with another job or other inputs is an error.
    """
    partial = output.with_name(f".{output.name}{WRITING}")
    iterator, digest = iter(inputs), hashlib.sha256(json_bytes(job))
    with storage_errors(output):
        done, written, before = _whole_blocks(partial)
        for _ in range(done):
            digest.update(json_bytes({"block": list(islice(iterator, BLOCK))}))
        if done and digest.hexdigest().encode() != before:
            raise CannotCreate(
                f"{partial}: was started with another model, another input or other options; give the same as before, "
                "or delete it to start over"
            )
        with partial.open("ab") as file:
            while block := list(islice(iterator, BLOCK)):
                pairs = translate(block)
                digest.update(json_bytes({"block": block}))
                text = "".join(f"{_cell(source)}\t{_cell(target)}\n" for source, target in pairs)
                file.write(text.encode() + _END + digest.hexdigest().encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
                done, written = done + 1, written + len(pairs)
                progress(done * BLOCK)
    return written


def finish_blocks(output: Path, pairs: tuple[Path, Path]) -> None:
    """Split what `write_blocks` wrote into two files of lines, both complete or absent."""
    partial = output.with_name(f".{output.name}{WRITING}")
    with storage_errors(output):
        temporary = [path.with_name(f".{path.name}{WRITING}") for path in pairs]
        with temporary[0].open("wb") as sources, temporary[1].open("wb") as targets, partial.open("rb") as file:
            for line in file:
                if not line.startswith(_END):
                    source, _, target = line.partition(b"\t")
                    sources.write(source + b"\n")
                    targets.write(target)
        for path, place in zip(temporary, pairs, strict=True):
            sync(path)
            path.replace(place)
        partial.unlink()


def discard_blocks(output: Path) -> None:
    """Delete what `write_blocks` wrote."""
    output.with_name(f".{output.name}{WRITING}").unlink(missing_ok=True)


def _whole_blocks(partial: Path) -> tuple[int, int, bytes]:
    """Cut a file after its last whole block; return its blocks, its pairs and the last hash."""
    if not partial.exists():
        return 0, 0, b""
    blocks, pairs, lines, end, place, digest = 0, 0, 0, 0, 0, b""
    with partial.open("r+b") as file:
        for line in file:
            place += len(line)
            if not line.startswith(_END):
                lines += 1
            elif line.endswith(b"\n"):
                blocks, pairs, lines, end, digest = blocks + 1, pairs + lines, 0, place, line[len(_END) : -1]
        file.truncate(end)
    return blocks, pairs, digest


def _cell(text: str) -> str:
    """Return a text without what separates lines and columns."""
    return one_line(text).replace("\t", " ")


def non_empty(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines that have text."""
    return (line for line in lines if line.strip())
