"""What efficient attention loses: the tasks, models that differ only in attention, and the verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from transduce.experiments.efficient_attention import (
    DEFAULT,
    IGNORED,
    KINDS,
    TASKS,
    Tagger,
    checks,
    measure,
    sample_batch,
)

SMALL = replace(DEFAULT, width=8, num_heads=2, length=16, reach=4, features=4, far=10, batch=2, updates=1)


@pytest.mark.parametrize(("task", "back"), [("near", 1), ("far", 10)])
def test_the_label_is_an_earlier_symbol(task: str, back: int) -> None:
    token_BN, label_BN = sample_batch(task, SMALL, 3, torch.Generator().manual_seed(1))
    assert label_BN[:, back:].tolist() == token_BN[:, :-back].tolist()
    assert set(label_BN[:, :back].flatten().tolist()) == {IGNORED}


def test_a_lookup_names_the_value_that_a_fact_states_for_its_key() -> None:
    token_BN, label_BN = sample_batch("lookup", SMALL, 3, torch.Generator().manual_seed(1))
    keys, symbols = SMALL.keys, SMALL.symbols
    for tokens, labels in zip(token_BN.tolist(), label_BN.tolist(), strict=True):
        facts = dict(divmod(token - symbols, symbols) for token in tokens[:keys])
        asked = [token - symbols - keys * symbols for token in tokens[keys:]]
        assert sorted(facts) == sorted(asked) == list(range(8))
        assert labels == [IGNORED] * keys + [facts[key] for key in asked]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_scores_every_position(kind: str) -> None:
    assert Tagger(kind, SMALL)(torch.zeros(2, 16, dtype=torch.long)).shape == (2, 16, SMALL.symbols)  # type: ignore[arg-type]


def test_every_kind_is_trained_on_every_task() -> None:
    finding = measure(setting=replace(SMALL, tested=2))
    assert [row[0] for row in finding.rows] == list(KINDS) and finding.columns == ("attention", *TASKS)


def test_the_verdict_follows_the_accuracies() -> None:
    found = {(kind, task): 1.0 for kind in KINDS for task in TASKS}
    assert all(check.passed for check in checks(found))
    found["window", "far"] = 0.2
    assert [check.passed for check in checks(found)] == [True, True, False, True, True]
