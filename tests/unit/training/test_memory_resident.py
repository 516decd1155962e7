"""The memory of this process, against what it is made to hold."""

from __future__ import annotations

import json
import mmap
import resource
import sys
from pathlib import Path

import pytest

from tests.unit.training.example import run, trainer
from transduce.data.prepared import Prepared
from transduce.training import memory as resident
from transduce.training.memory import resident_bytes


def test_memory_grows_by_what_is_held() -> None:
    before = resident_bytes()
    with mmap.mmap(-1, 211 * 2**20) as held:  # of the system itself: the allocator may have kept memory of other tests
        for place in range(0, len(held), mmap.PAGESIZE):
            held[place] = 1
        assert 190 * 2**20 < resident_bytes() - before < 230 * 2**20


def test_it_is_no_more_than_the_systems_peak_and_without_proc_it_is_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    now = resident_bytes()
    unit = 1 if sys.platform == "darwin" else 1024
    assert 0 < now <= resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit * 1.05
    monkeypatch.setattr(resident, "_STATM", Path("/nowhere/statm"))
    assert resident_bytes() == resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def test_the_times_of_a_run_say_how_much_memory_it_held(prepared: Prepared, tmp_path: Path) -> None:
    training = trainer(prepared, tmp_path, updates=5, log_every=2, validate_every=5)
    run(training)
    lines = [json.loads(line) for line in (tmp_path / "timing.jsonl").read_text().splitlines()]
    held = [line["memory"] for line in lines if line["event"] == "update"]
    assert len(held) == 2 and all(2**20 < memory < 2**40 for memory in held)
