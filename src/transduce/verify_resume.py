"""Verifies on the user's own recipe that a killed and resumed run is the same as an uninterrupted one.

One short run is uninterrupted; another is killed after its first checkpoint, and resumed. All files of the last
checkpoint, and the journal, must then be the same, to the last bit.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from transduce.errors import TransduceError
from transduce.recipe import Recipe
from transduce.storage.layout import CHECKPOINT_KIND, DATA, JOURNAL, RECIPE
from transduce.storage.manifest import sha256, verify
from transduce.training.checkpoint import Checkpoints

UPDATES = 20
"""Updates of each run; there is a checkpoint in the middle."""


def verify_resume(recipe: Recipe, place: Path, prepared: Path | None = None, updates: int = UPDATES) -> Iterator[str]:
    """Train twice in a folder next to `place`, kill and resume one run, and compare; yield lines to print.

    `prepared` is a prepared corpus, used instead of preparing the recipe's. A difference is an error.
    """
    half = max(1, updates // 2)
    short = recipe.training.but(
        updates=2 * half,
        epochs=None,
        time_budget=None,
        validate_every=half,
        log_every=1,
        keep_last=2,
        average_checkpoints=0,
        patience=0,
        decode_examples=0,
        metric="loss",
    )
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".verify-", dir=place.parent) as name:
        folder = Path(name)
        (folder / RECIPE).write_text(replace(recipe, training=short).to_toml(), encoding="utf-8")
        yield f"training {2 * half} updates without interruption"
        fresh = ("--recipe", str(folder / RECIPE), "--output")
        given = () if prepared is None else ("--prepared", str(prepared))
        _finish(*fresh, str(folder / "whole"), *given)
        same = given or (
            "--prepared",
            str(folder / "whole" / DATA),
        )  # training some tokenizers is not repeatable
        with _training(*fresh, str(folder / "killed"), *same) as process:
            _kill(process, folder / "killed", half)
        yield f"trained again, killed after update {half}; resuming"
        _finish("--resume", str(folder / "killed"))
        yield from _compare(folder / "whole", folder / "killed", 2 * half)


@contextlib.contextmanager
def _training(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start a run in another process; it ends with this context, however that ends."""
    command = [sys.executable, "-m", "transduce", "train", *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
            process.wait()  # `Popen` itself does not when interrupted, and files would appear while we remove them


def _finish(*arguments: str) -> None:
    with _training(*arguments) as process:
        _, errors = process.communicate()
    if process.returncode:
        raise TransduceError(f"the trial run failed: {_last_line(errors, process.returncode)}")


def _kill(process: subprocess.Popen[str], run: Path, half: int) -> None:
    """Kill a run at its first journal line after the checkpoint in the middle."""
    journal, checkpoint = run / JOURNAL, Checkpoints(run).path(half)
    lines = 0
    killed = False
    while process.poll() is None:
        now = journal.read_bytes().count(b"\n") if checkpoint.exists() else 0
        if lines and now > lines:
            process.kill()
            killed = True
            break
        lines = lines or now
        time.sleep(0.002)
    _, errors = process.communicate()
    if not killed or process.returncode == 0:
        ended = "it ended before it could be killed"
        reason = _last_line(errors, process.returncode) if process.returncode else ended
        raise TransduceError(f"the trial run could not be killed: {reason}; try again")


def _last_line(errors: str, code: int) -> str:
    """The last line of a process's standard error; one that the system killed prints nothing."""
    *_, last = ["", *errors.strip().splitlines()]
    return last.removeprefix("error: ") or f"it ended with code {code} and no message; was there enough memory?"


def _compare(whole: Path, killed: Path, update: int) -> Iterator[str]:
    pairs = [(run, Checkpoints(run).path(update)) for run in (whole, killed)]
    names = {name for _, checkpoint in pairs for name in verify(checkpoint, CHECKPOINT_KIND)["files"]}
    for name in sorted(names):
        first, second = (sha256(checkpoint / name) for _, checkpoint in pairs)
        if first != second:
            raise TransduceError(f"{name} differs after resuming ({first[:16]} and {second[:16]}); please report this")
        yield f"{name}: the same, SHA-256 {first[:16]}…"
    if (whole / JOURNAL).read_bytes() != (killed / JOURNAL).read_bytes():
        raise TransduceError("journal.jsonl differs after resuming; please report this")
    yield "journal.jsonl: the same, byte for byte"
