"""Learning rates and warm-up: the grid and the verdict."""

from __future__ import annotations

from dataclasses import replace

from transduce.experiments.warmup import CONVOLUTION, DEFAULT, POST, PRE, checks, learned_share, measure

SMALL = replace(DEFAULT, rates=(0.001,), width=8, num_layers=1, length=3, batch=2, updates=2, warmup=1, tested=2)


def test_every_model_is_trained_with_and_without_warm_up() -> None:
    finding = measure(setting=SMALL)
    assert [row[:2] for row in finding.rows] == [
        (name, warm) for name in (POST, PRE, CONVOLUTION) for warm in ("no", "yes")
    ]


def test_the_verdict_follows_the_runs_that_learn() -> None:
    needs = {(POST, False): 0.2, (POST, True): 1.0, (PRE, False): 1.0, (PRE, True): 1.0}
    found = {(*kind, 0.01): [value] for kind, value in needs.items()}
    found |= {(CONVOLUTION, warm, 0.01): [1.0, 0.5] for warm in (False, True)}
    assert learned_share(found, CONVOLUTION, True) == 0.5
    assert [check.passed for check in checks(found)] == [True, True, True, False, True]
