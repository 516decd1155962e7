"""Files of lines that a model writes block by block, and that an interrupted command resumes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from transduce.errors import DataError
from transduce.inference.segment import one_line
from transduce.storage.atomic import WRITING
from transduce.storage.filesystem import storage_errors, sync

BLOCK = 512
"""Lines of input that are translated and written together."""

Block = Sequence[tuple[str, str]]
"""Pairs of lines."""


def write_blocks(
    output: Path,
    inputs: Iterable[tuple[str, str]],
    translate: Callable[[Block], Block],
    progress: Callable[[int], None],
) -> int:
    """Write the pairs that blocks of inputs become, as `source<TAB>target` lines; return how many.

    Blocks are appended to a hidden file, each with its end marked, so that a rerun continues after the last whole one.
    Inputs must be the same as before.
    """
    partial = output.with_name(f".{output.name}{WRITING}")
    iterator = iter(inputs)
    with storage_errors(output):
        done, written = _whole_blocks(partial)
        for _ in range(done):
            if not list(islice(iterator, BLOCK)):
                raise DataError(f"{partial}: has more blocks than its input; remove it to start again")
        with partial.open("ab") as file:
            while block := list(islice(iterator, BLOCK)):
                pairs = translate(block)
                text = "".join(f"{_cell(source)}\t{_cell(target)}\n" for source, target in pairs)
                file.write(f"{text}\n".encode())  # an empty line ends a block
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
                if line != b"\n":
                    source, _, target = line.partition(b"\t")
                    sources.write(source + b"\n")
                    targets.write(target)
        for path, place in zip(temporary, pairs, strict=True):
            sync(path)
            path.replace(place)
        partial.unlink()


def _whole_blocks(partial: Path) -> tuple[int, int]:
    """Cut a file after its last whole block; return its blocks and pairs."""
    if not partial.exists():
        return 0, 0
    blocks, pairs, lines, end, place = 0, 0, 0, 0, 0
    with partial.open("r+b") as file:
        for line in file:
            place += len(line)
            if line == b"\n":
                blocks, pairs, lines, end = blocks + 1, pairs + lines, 0, place
            else:
                lines += 1
        file.truncate(end)
    return blocks, pairs


def _cell(text: str) -> str:
    """Return a text without what separates lines and columns."""
    return one_line(text).replace("\t", " ")


def non_empty(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines that have text."""
    return (line for line in lines if line.strip())
