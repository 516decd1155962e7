"""Merge the blocks of a translation into its output, after checking that each is there, once, and undamaged."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path
from typing import NamedTuple

from transduce.errors import DataError, MissingInput
from transduce.inference.jobs.block_folder import BlockFolder, TranslatedBlock, folder_of
from transduce.inference.segment import TranslationCounts
from transduce.storage.atomic import atomic_file

CHUNK = 2**22
"""Bytes that are copied at a time."""
SHOWN = 5
"""Missing blocks that an error lists."""


class Merged(NamedTuple):
    """What was merged."""

    blocks: int
    lines: int
    counts: TranslationCounts


def merge(output: str, remove: bool = False) -> Merged:
    """Write the output; with `remove`, delete the folder of blocks afterwards."""
    if Path(output).is_file() and not folder_of(output).exists():
        raise MissingInput(f"{folder_of(output)}: does not exist, but {output} does; it was merged and removed before")
    folder = BlockFolder(output)
    translated = _complete(folder)
    with atomic_file(Path(output)) as temporary, temporary.open("wb") as file:
        if not translated and output.endswith(".gz"):
            file.write(gzip.compress(b"", mtime=0))
        for number, found in enumerate(translated):
            digest = hashlib.sha256()
            with folder.file(number).open("rb") as block:
                while chunk := block.read(CHUNK):
                    digest.update(chunk)
                    file.write(chunk)
            if digest.hexdigest() != found.sha256:
                path = folder.file(number)
                raise DataError(
                    f"{path}: is damaged (its SHA-256 differs); delete {folder.manifest(number)} and run its shard "
                    "again"
                )
    counts = folder.counts(range(len(translated)))
    if remove:
        folder.remove()
    return Merged(len(translated), sum(found.lines for found in translated), counts)


def _complete(folder: BlockFolder) -> list[TranslatedBlock]:
    """Return the manifests of all blocks; a missing block is an error, and so is one too many."""
    found = [folder.read(block.number) for block in folder.blocks]
    missing = [number for number, one in enumerate(found) if one is None]
    if missing:
        listed = ", ".join(map(str, missing[:SHOWN])) + (", …" if len(missing) > SHOWN else "")
        raise DataError(
            f"{folder.path}: {len(missing):,} of {len(found):,} blocks are missing ({listed}; the first has "
            f"{folder.blocks[missing[0]].span}); run the shards again, which skip what is complete"
        )
    known = {folder.file(number).name for number in range(len(found))}
    extra = [path for path in sorted(folder.path.iterdir()) if re.fullmatch(r"\d{6,}(\.gz)?", path.name)]
    if unknown := [path for path in extra if path.name not in known]:
        raise DataError(f"{unknown[0]}: is a block that {folder.path}/plan.json does not list; move it away")
    return [one for one in found if one is not None]
