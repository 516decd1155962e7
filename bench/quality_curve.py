"""The learning curve of one contender of bench/time_to_quality.py: elapsed time at every update, loss at validations.

Lines are written as they happen, so that a stopped run continues its clock where it was. A pause, in which the process
was stopped and got no processor, does not count. What other programs took of the machine meanwhile is recorded.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAUSE_SECONDS, PAUSE_SHARE = 5.0, 0.1
"""An update that takes longer than this, and gets less than this share of one processor, was paused."""


def machine_seconds() -> float | None:
    """Processor seconds that all programs of this machine have taken; None where the system does not tell."""
    try:
        fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]
    except OSError:
        return None
    user, nice, system, _, _, interrupts, soft, stolen = map(int, fields)
    return (user + nice + system + interrupts + soft + stolen) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Point:
    """One validation."""

    update: int
    seconds: float
    bits: float
    """Bits per byte of the target."""


class Curve:
    """Appends to `curve.jsonl` of a contender's folder."""

    def __init__(self, folder: Path, launched: float) -> None:
        """`launched` is when the command was given, as `time.time()`."""
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "curve.jsonl"
        self.seconds = self.processor = self.others = 0.0
        self._launched = launched
        self._wall, self._own, self._all = time.perf_counter(), time.process_time(), machine_seconds()

    def begin(self, update: int) -> None:
        """Start the clock of a run that begins after `update`: at its launch, or where it stopped.

        Lines after that update are dropped, because they will be measured again.
        """
        kept = [line for line in read(self.path) if line["update"] <= update]
        text = "".join(json.dumps(line) + "\n" for line in kept)
        temporary = self.path.with_suffix(".new")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(self.path)
        if update and kept:
            self.seconds, self.processor = kept[-1]["seconds"], kept[-1]["processor"]
            self.others = kept[-1]["others"]
            self._wall, self._own, self._all = time.perf_counter(), time.process_time(), machine_seconds()
        else:
            self._wall -= max(0.0, time.time() - self._launched - (time.perf_counter() - self._wall))
            self._own = 0.0

    def updated(self, update: int) -> None:
        """Record that an update was made."""
        self._tick()
        self._write(update)

    def validated(self, update: int, bits: float, **scores: float) -> None:
        """Record a validation, which counts as time too."""
        self._tick()
        self._write(update, bits=round(bits, 5), **scores)
        print(f"update {update:,}: {bits:.4f} bits per byte after {self.seconds:.0f} s", flush=True)

    def _tick(self) -> None:
        wall, own, everybody = time.perf_counter(), time.process_time(), machine_seconds()
        passed, used = wall - self._wall, own - self._own
        self.processor += used
        self.seconds += used if passed > PAUSE_SECONDS and used < PAUSE_SHARE * passed else passed
        if everybody is not None and self._all is not None:
            self.others += max(0.0, everybody - self._all - used)
        self._wall, self._own, self._all = wall, own, everybody

    def _write(self, update: int, **found: float) -> None:
        times = {"seconds": self.seconds, "processor": self.processor, "others": self.others}
        line = {"update": update, **{name: round(value, 3) for name, value in times.items()}, **found}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def read(path: Path) -> list[dict[str, Any]]:
    """Read a curve; a last line that was cut off is left out."""
    if not path.is_file():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found


def points(path: Path) -> list[Point]:
    """The validations of a curve."""
    return [Point(line["update"], line["seconds"], line["bits"]) for line in read(path) if "bits" in line]


def time_to(curve: list[Point], level: float) -> float | None:
    """Seconds until the first validation at or below a level; None if it was not reached."""
    return next((point.seconds for point in curve if point.bits <= level), None)


def bits_at(path: Path, metric: str, scores: dict[str, float]) -> dict[str, float]:
    """Bits at the first validation that reaches each score; those that none reaches are left out."""
    found = {}
    for name, score in scores.items():
        reached = [line["bits"] for line in read(path) if line.get(metric, 0.0) >= score]
        if reached:
            found[name] = reached[0]
    return found


def share_of_others(path: Path, threads: int) -> float:
    """Processor time of other programs as a part of what `threads` threads could have had."""
    lines = read(path)
    return lines[-1]["others"] / max(1e-9, threads * lines[-1]["seconds"]) if lines else 0.0
