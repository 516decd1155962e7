"""Prefill, decode and the cache: what is timed, and the verdict."""

from __future__ import annotations

import pytest
import torch

from transduce.experiments.decoding import Decode, DecodingSetting, DecodingTimes, checks, decoder, measure, texts

SMALL = DecodingSetting(width=16, num_heads=2, num_layers=1, vocabulary=11, contexts=(16, 32, 64), steps=2, repeats=1)


def test_every_context_has_times_and_the_cache_has_its_size() -> None:
    finding = measure(setting=SMALL)
    assert [row[0] for row in finding.rows] == [16, 32, 64]
    assert all(float(cell) > 0 for row in finding.rows for cell in row)
    same, *_ = finding.checks
    assert same.passed
    assert [float(row[7]) for row in finding.rows] == pytest.approx([2, 4, 8], rel=0.2)  # 2 × 16 × 4 bytes a token


def test_a_timing_continues_the_text() -> None:
    with torch.no_grad():
        work = Decode(decoder(SMALL, 1), texts(SMALL, 3, 5, 1), 2)
        before = work.token_B
        work()
    assert work.token_B.shape == before.shape == (3,)


@pytest.mark.parametrize("growth", [1.0, 1.5])
def test_the_verdict_follows_the_times(growth: float) -> None:
    found = {
        context: DecodingTimes(
            0.001 * context, 0.01 * growth ** (context / 64), 0.02 * context, context**2, 128 * context
        )
        for context in SMALL.contexts
    }
    same, faster, less, constant, prompt, size, square, text = (check.passed for check in checks(SMALL, found, 1e-6))
    assert same and faster and less and prompt and size and square
    assert not text  # linear here
    assert constant == (growth == 1.0)
