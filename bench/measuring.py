"""Shared by the benchmarks: train or resume a run, require a corpus, measure the time and memory of a command."""

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


def train_or_resume(recipe: Callable[[], Recipe], folder: Path, reporter: Reporter | None = None) -> Path:
    """Train a new run, resume a stopped one, or reuse a finished one; the recipe is read for a new run only."""
    if not (folder / "model").exists():
        began, resume = time.perf_counter(), (folder / "recipe.toml").exists()
        train(resume_recipe(folder) if resume else recipe(), folder, resume=resume, reporter=reporter)
        print(f"{folder.name}: {time.perf_counter() - began:.0f} s", flush=True)
    return folder


def require_files(folder: Path, *names: str) -> None:
    """Exit with one sentence if a file of a corpus is missing."""
    for name in names:
        if not (folder / name).is_file():
            raise SystemExit(f"{folder / name}: not found; CONTRIBUTING.md lists the corpora of the benchmarks")


def measure_command(command: list[str], until: Callable[[], bool] = lambda: False) -> dict[str, float]:
    """Run a command; return its peak resident memory and its wall time, or the time until `until()` is true."""
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
        raise SystemExit(f"{' '.join(command)}: exited with {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024
    return {
        "seconds": round(seconds or 0.0, 2),
        "processor_seconds": round(usage.ru_utime + usage.ru_stime, 2),
        "peak_bytes": usage.ru_maxrss * unit,
    }
