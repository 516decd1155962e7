"""Label smoothing: the data, scores, and the verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest

from transduce.experiments import label_smoothing
from transduce.experiments.label_smoothing import DEFAULT, SmoothingResult, checks, measure, read

SMALL = replace(DEFAULT, width=8, num_layers=1, words=20, tested=3, batch=2, updates=2, tries=1)
WORDS = {f"{first}{second}": [f"{first.upper()} {second.upper()}"] for first in "abcdefghij" for second in "klmnopqrst"}


@pytest.fixture(autouse=True)
def small_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    real = label_smoothing.split
    monkeypatch.setattr(label_smoothing, "pronunciations", lambda: WORDS)
    monkeypatch.setattr(label_smoothing, "split", lambda words: real(words, validation=5, test=10))


def test_held_out_words_are_not_trained_on() -> None:
    data = read(SMALL)
    assert len(data.train.spellings) == 20 and len(data.held_out.spellings) == 3 and data.phonemes == 20
    assert not {*map(tuple, data.train.spellings)} & {*map(tuple, data.held_out.spellings)}


def test_both_values_are_measured() -> None:
    finding = measure(setting=SMALL)
    assert [row[0] for row in finding.rows] == [0.0, 0.1]


def test_the_verdict_follows_the_figures() -> None:
    without = [SmoothingResult(1.5, 60, 0.40, 0.95), SmoothingResult(1.5, 60, 0.42, 0.95)]
    smoothed = [SmoothingResult(1.6, 61, 0.43, 0.80), SmoothingResult(1.6, 61, 0.45, 0.80)]
    assert all(check.passed for check in checks({0.0: without, 0.1: smoothed}))
    assert not any(check.passed for check in checks({0.0: smoothed, 0.1: without}))
