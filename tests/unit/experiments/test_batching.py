"""Throughput against latency: the verdict follows the times."""

from __future__ import annotations

from transduce.experiments.batching import BatchingSetting, checks, measure
from transduce.experiments.decoding import DecodingSetting

SMALL = BatchingSetting(
    decoder=DecodingSetting(width=16, num_heads=2, num_layers=1, vocabulary=11), batches=(1, 8), contexts=(4, 8),
    steps=1, repeats=1,
)  # fmt: skip


def test_every_batch_size_is_measured() -> None:
    finding = measure(setting=SMALL)
    assert [row[:2] for row in finding.rows] == [(4, 1), (4, 8), (8, 1), (8, 8)]
    assert finding.rows[0][3] == finding.rows[0][5] == 1


def test_the_verdict_follows_the_latencies() -> None:
    free = {(context, rows): 1.0 for context in SMALL.contexts for rows in SMALL.batches}
    assert all(check.passed for check in checks(SMALL, free))
    proportional = {(context, rows): float(rows) for context, rows in free}
    assert [check.passed for check in checks(SMALL, proportional)] == [False, False, False, True]
