"""The benchmark of time to quality: its clock, and a smoke run of some contenders on a small made-up corpus."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from tests.documents.markdown import ROOT

BENCH = ROOT / "bench"
WORDS = {"dog": "Hund", "cat": "Katze", "sees": "sieht", "likes": "mag", "the": "das", "big": "große", "old": "alte"}


@pytest.fixture
def curves(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    import quality_curve  # type: ignore[import-not-found, unused-ignore]  # a program's module

    return quality_curve


def test_the_clock_starts_at_the_command_and_continues_after_a_stop(curves: ModuleType, tmp_path: Path) -> None:
    curve = curves.Curve(tmp_path, launched=time.time() - 10)
    curve.begin(0)
    curve.updated(1)
    curve.validated(1, bits=4.0)
    curve.updated(2)  # and is stopped here: only update 1 was saved
    later = curves.Curve(tmp_path, launched=time.time() - 1000)
    later.begin(1)
    later.updated(2)
    time.sleep(0.01)
    later.validated(2, bits=2.0)
    lines = curves.read(curve.path)
    assert [line["update"] for line in lines] == [1, 1, 2, 2]
    assert all(10 <= line["seconds"] < 15 for line in lines)
    assert [line["seconds"] for line in lines] == sorted(line["seconds"] for line in lines)
    found = curves.points(curve.path)
    assert curves.time_to(found, 4.0) < curves.time_to(found, 3.0)
    assert curves.time_to(found, 1.0) is None


def test_a_pause_does_not_count(curves: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wall, own = 100.0, 10.0
    monkeypatch.setattr(curves.time, "perf_counter", lambda: wall)
    monkeypatch.setattr(curves.time, "process_time", lambda: own)
    monkeypatch.setattr(curves.time, "time", lambda: 1000.0)
    curve = curves.Curve(tmp_path, launched=1000.0)
    curve.begin(0)
    wall, own = 102.0, 14.0
    curve.updated(1)
    wall, own = 162.0, 15.0  # stopped for a minute
    curve.updated(2)
    assert [line["seconds"] for line in curves.read(curve.path)] == [2.0, 3.0]


def test_a_score_has_the_bits_of_the_first_validation_that_reaches_it(curves: ModuleType, tmp_path: Path) -> None:
    curve = curves.Curve(tmp_path, launched=time.time())
    curve.begin(0)
    for update, (bits, bleu) in enumerate([(2.0, 20.0), (1.5, 31.0), (1.4, 30.5), (1.3, 35.0)], start=1):
        curve.validated(update, bits, bleu=bleu)
    assert curves.bits_at(curve.path, "bleu", {"30": 30.0, "35": 35.0, "38": 38.0}) == {"30": 1.5, "35": 1.3}


def test_a_line_that_was_cut_off_is_left_out(curves: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "curve.jsonl"
    path.write_text('{"update": 1, "seconds": 1.0, "bits": 3.0}\n{"update": 2, "sec')
    assert [point.update for point in curves.points(path)] == [1]


def write_corpus(folder: Path) -> None:
    """Sentences of seven words in the files of Multi30k."""
    chance = random.Random(1)
    folder.mkdir()
    for name, count in (("train", 1200), ("val", 100), ("test_2016_flickr", 10)):
        lines = [" ".join(chance.choices(list(WORDS), k=chance.randint(3, 8))) for _ in range(count)]
        translated = [" ".join(WORDS[word] for word in line.split()) for line in lines]
        for side, texts in (("en", lines), ("de", translated)):
            with gzip.open(folder / f"{name}.{side}.gz", "wt", encoding="utf-8") as file:
                file.writelines(f"{text}\n" for text in texts)


@pytest.mark.learning
def test_all_kinds_of_contenders_run_and_are_compared(tmp_path: Path) -> None:
    write_corpus(tmp_path / "multi30k")
    command = [sys.executable, str(BENCH / "time_to_quality.py"), "--quick", "--threads", "1", "--seeds", "1"]
    command += ["--data", str(tmp_path), "--work", str(tmp_path / "work")]
    command += ["--only", "ours", "torch_nn", "hf", "control", "control-adam"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    for _ in range(2):  # the second time, everything is reused
        began = time.monotonic()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=900)
        assert done.returncode == 0, done.stderr
        seconds = time.monotonic() - began
    ratios = json.loads(done.stdout.splitlines()[-1])
    assert set(ratios) == {"time_to_35", "time_to_38"}
    assert set(ratios["time_to_38"]) == {"torch_nn", "hf", "control"}
    assert all(ratio > 0 for found in ratios.values() for ratio in found.values())
    assert "optimizer ×" in done.stdout
    assert seconds < 30
