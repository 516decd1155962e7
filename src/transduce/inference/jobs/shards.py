"""A shard: the blocks that one process of many translates.

Shard i of n has every n-th block. What is complete is skipped, whoever translated it, so the same command may run again
after an interruption, and with another n.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transduce.errors import Busy, SettingsError
from transduce.inference.ctranslate2.engine import Parallelism
from transduce.inference.jobs.block_folder import BlockFolder
from transduce.inference.jobs.blocks import BlockReader
from transduce.inference.jobs.job import Observer, TranslationJob, run_job
from transduce.inference.jobs.output import open_partial

MAX_SHARDS = 100_000


@dataclass(frozen=True)
class Shard:
    """Shard `index` of `count`, counted from 1."""

    index: int
    count: int

    def numbers(self, blocks: int) -> range:
        """Return the blocks of this shard, of so many."""
        return range(self.index - 1, blocks, self.count)


def read_shard(text: str, environment: Mapping[str, str]) -> Shard:
    """Read 3/20, or auto/20 in a Slurm job array or an indexed Kubernetes job."""
    found = re.fullmatch(r"([0-9]{1,9}|auto)/([0-9]{1,9})", text)
    if found is None:
        raise SettingsError(f"--shard {text}: must be a number and a total, such as 3/20, or auto/20")
    count = int(found[2])
    if not 1 <= count <= MAX_SHARDS:
        raise SettingsError(f"--shard {text}: the number of shards must be between 1 and {MAX_SHARDS:,}")
    index = _index(text, count, environment) if found[1] == "auto" else int(found[1])
    if not 1 <= index <= count:
        raise SettingsError(f"--shard {text}: there is no shard {index} of {count}; shards are counted from 1")
    return Shard(index, count)


def _index(text: str, count: int, environment: Mapping[str, str]) -> int:
    """Return the number of this process, from 1, as its scheduler gives it.

    A Slurm array may begin anywhere and have steps; one with fewer tasks than shards is a part of a job, of which
    the numbers say nothing.
    """
    if "SLURM_ARRAY_TASK_ID" in environment:
        task, first, step, tasks = (
            _number(text, environment, f"SLURM_ARRAY_TASK_{name}", default)
            for name, default in (("ID", None), ("MIN", None), ("STEP", 1), ("COUNT", None))
        )
        if tasks != count:
            raise SettingsError(
                f"--shard {text}: the Slurm array has {tasks} tasks, not {count}; submit --array=1-{count}, or give "
                f"the number itself, such as --shard 3/{count}"
            )
        return (task - first) // max(1, step) + 1
    if "JOB_COMPLETION_INDEX" in environment:  # an indexed Kubernetes job counts from 0
        index = _number(text, environment, "JOB_COMPLETION_INDEX", None) + 1
        if index > count:
            raise SettingsError(
                f"--shard {text}: JOB_COMPLETION_INDEX is {index - 1}, counted from 0, but there are {count} shards; "
                "make them as many as the completions of the job"
            )
        return index
    raise SettingsError(
        f"--shard {text}: neither SLURM_ARRAY_TASK_ID nor JOB_COMPLETION_INDEX is set; outside an array give the "
        f"number itself, such as --shard 1/{count}"
    )


def _number(text: str, environment: Mapping[str, str], name: str, default: int | None) -> int:
    value = environment.get(name, "" if default is None else str(default))
    if not re.fullmatch(r"[0-9]{1,9}", value):
        raise SettingsError(f"--shard {text}: {name} is {value!r}, not a number; give the number itself, as in 3/20")
    return int(value)


class LineObserver:
    """Reports blocks as one job, of which so many lines are done, not bytes of a file."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._lines, self._begun = 0, False

    def resumed(self, segments: int) -> None:
        self._lines += segments

    def calibrated(self, parallelism: Parallelism, ctranslate2: bool) -> None:
        self._observer.calibrated(parallelism, ctranslate2)

    def started(self, read: int) -> None:
        if not self._begun:
            self._observer.started(self._lines)
        self._begun = True

    def wrote(self, lines: int, read: int) -> None:
        self._lines += lines
        self._observer.wrote(lines, self._lines)


class BlockTranslator:
    """Translates blocks with one job; the parallelism is found in the first and kept."""

    def __init__(self, job: TranslationJob, folder: BlockFolder) -> None:
        self._job, self._folder = job, folder
        self._reader = BlockReader(job.options.document)
        self._parallelism: Parallelism | None = None

    def close(self) -> None:
        """Close the input."""
        self._reader.close()

    def translate(self, numbers: Sequence[int], observer: Observer) -> list[int]:
        """Translate those of these blocks that are not complete; return those that other processes are translating."""
        busy: list[int] = []
        for number in numbers:
            if self._folder.is_complete(number):
                continue
            try:
                self._translate(number, observer)
            except Busy:
                busy.append(number)
        return busy

    def _translate(self, number: int, observer: Observer) -> None:
        block, folder = self._folder.blocks[number], self._folder
        with open_partial(str(folder.file(number)), {**folder.fingerprint, "block": block.sha256}) as part:
            run_job(
                self._job, self._reader.source(block), part, observer, self._job.options.document, self._parallelism
            )
            self._parallelism = part.done.parallelism
            counts = part.done.counts
        folder.complete(number, counts)


def translate_shard(translator: BlockTranslator, folder: BlockFolder, shard: Shard, observer: Observer) -> None:
    """Translate the blocks of a shard; when all others are done, those of another process are an error."""
    busy = translator.translate(shard.numbers(len(folder.blocks)), observer)
    left = [number for number in busy if not folder.is_complete(number)]
    if left:
        raise Busy(
            f"{folder.path}: another process is translating {len(left)} blocks of shard {shard.index}/{shard.count}; "
            "wait for it to end, then run this again"
        )
