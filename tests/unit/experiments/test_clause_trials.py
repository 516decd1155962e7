"""Trainings of the long-clause study: sizes, lengths, accuracy by distance, gradients, results that are kept."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from transduce.experiments import clause_trials
from transduce.experiments.clause_text import AskedCountry, MarkedCountry
from transduce.experiments.clause_trials import (
    DEFAULT,
    MODELS,
    SIZES,
    ClauseSetting,
    ClauseTrial,
    accuracy,
    carry_out,
    config_of,
    gradient_norms,
    kept,
    training_batches,
)
from transduce.experiments.finding import silent
from transduce.models.catalog import build
from transduce.models.interface import AnyTransducer

TINY = ClauseSetting(
    model_dim=8, countries=3, distances=(1, 4, 7), trained=4, alone=(3,), rates=(0.02,), seeds=1, updates=3,
    updates_asked=2, updates_alone=2, lengths=2, rows=5, check_every=2, tested=23,
)  # fmt: skip


def built(model: str, seed: int = 1) -> AnyTransducer:
    return cast("AnyTransducer", build(config_of(model, TINY), SIZES, seed).eval())


def test_all_models_have_about_as_many_parameters() -> None:
    numbers = [
        sum(weight.numel() for weight in build(config_of(model, DEFAULT), SIZES).parameters()) for model in MODELS
    ]
    assert max(numbers) < 1.03 * min(numbers)


def test_lengths_of_an_update_are_spread_from_the_shortest_to_the_longest() -> None:
    generator, task = torch.Generator().manual_seed(3), MarkedCountry(5)
    drawn = [
        [int(batch.distances[0, 0]) for batch in training_batches(task, 1, 100, DEFAULT, generator)] for _ in range(100)
    ]
    assert all(sorted(lengths) == lengths for lengths in drawn)
    flat = [length for lengths in drawn for length in lengths]
    assert min(flat) == 1 and 95 <= max(flat) <= 100
    assert 0.4 < sum(length <= 10 for length in flat) / len(flat) < 0.6
    alone = training_batches(task, 7, 7, DEFAULT, generator)
    assert {int(batch.distances[0, 0]) for batch in alone} == {7}


def test_accuracy_by_distance_of_a_model_that_sees_a_few_words_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is right where the deciding word is at most five words back."""
    monkeypatch.setattr(clause_trials, "right_answers", lambda _, batch: batch.distances <= 5)
    nobody = cast("AnyTransducer", None)
    found = accuracy(nobody, MarkedCountry(5), (1, 4, 7, 20), DEFAULT, seed=1)
    assert found == {1: 1.0, 4: 1.0, 7: 0.0, 20: 0.0}
    found = accuracy(nobody, AskedCountry(5), (2, 5, 12, 40), DEFAULT, seed=1)
    assert found[2] == 1.0 and 1.0 > found[5] > 0.0 and found[12] == found[40] == 0.0  # 5 stands for 4 to 7


@pytest.mark.parametrize("model", MODELS)
def test_gradients_against_finite_differences(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Along the gradient itself, the loss changes at the rate of the gradient's norm."""
    network = built(model).double()
    batch = MarkedCountry(3).sample(4, 1, torch.Generator().manual_seed(5))
    task = cast("Any", type("One", (), {"sample": lambda *_: batch})())
    setting = ClauseSetting(model_dim=8, countries=3, distances=(4,))
    (norm,) = gradient_norms(network, task, setting, seed=1).values()

    shift = torch.zeros(1, 1, network.get_submodule("embedding").weight.shape[1], dtype=torch.float64)
    shift.requires_grad_()

    def moved(_: object, __: object, output: torch.Tensor) -> torch.Tensor:
        return torch.cat([output[:, :3], output[:, 3:4] + shift, output[:, 4:]], dim=1)

    network.get_submodule("embedding").register_forward_hook(moved)
    score, hidden = clause_trials.scores_of(network, batch)
    loss = torch.nn.functional.cross_entropy(score[0], batch.answers[0])
    at_word, at_hidden = torch.autograd.grad(loss, [shift, hidden])
    assert norm == pytest.approx((at_word.norm() / at_hidden.norm()).item(), rel=1e-9)
    with torch.no_grad():
        step = 1e-5 * at_word / at_word.norm()
        shift.add_(step)
        above = clause_trials.loss_of(network, batch)
        shift.sub_(2 * step)
        below = clause_trials.loss_of(network, batch)
    assert (above - below).item() / 2e-5 == pytest.approx(at_word.norm().item(), rel=1e-4)


def test_a_result_is_kept_and_belongs_to_its_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = ClauseTrial("LSTM", MarkedCountry.label, 0.02, 1)
    first = kept(trial, TINY, tmp_path, silent)
    assert list(first.accuracy) == list(first.gradient_before) == list(first.gradient_after) == [1, 4, 7]
    assert first == carry_out(trial, TINY, silent) and all(map(math.isfinite, first.gradient_after.values()))
    made: list[str] = []

    def carried_out(trial: ClauseTrial, *_: object) -> Any:
        made.append(trial.name)
        return first

    monkeypatch.setattr(clause_trials, "carry_out", carried_out)
    assert kept(trial, TINY, tmp_path, silent) == first and made == []
    (tmp_path / f"{trial.name}.json").write_text("{")
    kept(trial, TINY, tmp_path, silent)
    kept(trial, ClauseSetting(), tmp_path, silent)
    assert made == ["lstm-one_country-0.02-1"] * 2
