"""What several benches do: carry out a run, and watch what a command takes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from transduce.recipe import Recipe, resume_recipe
from transduce.run import train
from transduce.training.reporter import Reporter


def carried_out(recipe: Callable[[], Recipe], folder: Path, reporter: Reporter | None = None) -> Path:
    """Train, go on with a run that was stopped, or take one that is finished; the recipe is asked for to begin with."""
    if not (folder / "model").exists():
        began, resume = time.perf_counter(), (folder / "recipe.toml").exists()
        train(resume_recipe(folder) if resume else recipe(), folder, resume=resume, reporter=reporter)
        print(f"{folder.name}: {time.perf_counter() - began:.0f} s", flush=True)
    return folder


def refuse_missing(folder: Path, *names: str) -> None:
    """End with one sentence where a corpus is not there."""
    for name in names:
        if not (folder / name).is_file():
            raise SystemExit(f"{folder / name}: is not there; CONTRIBUTING.md says which corpora are measured on")


def measured(command: list[str], until: Callable[[], bool] = lambda: False) -> dict[str, float]:
    """Run a command; return its peak of resident memory and its time, or the time until something has happened."""
    began, seconds = time.monotonic(), None
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=sys.stderr)
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if seconds is None and (pid or until()):
            seconds = time.monotonic() - began
        if pid:
            break
        time.sleep(0.02)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: ended with {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024
    return {
        "seconds": round(seconds or 0.0, 2),
        "processor_seconds": round(usage.ru_utime + usage.ru_stime, 2),
        "peak_bytes": usage.ru_maxrss * unit,
    }
