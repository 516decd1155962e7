"""Trainings of the long-clause study: sizes, distances, accuracy, gradients, results that are kept."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from transduce.experiments import clause_trials
from transduce.experiments.clause_text import sample_sentences
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
    validation_batches,
)
from transduce.experiments.finding import silent
from transduce.models.catalog import build
from transduce.models.interface import AnyTransducer

TINY = ClauseSetting(
    model_dim=8,
    countries=3,
    distances=(1, 4, 7),
    trained=4,
    alone=(4,),
    rates=(0.02,),
    seeds=1,
    lengths=2,
    rows=10,
    updates=3,
    updates_alone=2,
    check_every=2,
    tested=23,
)


def test_all_models_have_about_as_many_parameters() -> None:
    numbers = [
        sum(weight.numel() for weight in build(config_of(model, DEFAULT), SIZES).parameters()) for model in MODELS
    ]
    assert max(numbers) < 1.03 * min(numbers)


def test_distances_of_the_mix_are_spread_evenly_over_the_logarithm() -> None:
    generator, mix = torch.Generator().manual_seed(3), ClauseTrial("LSTM", 0.1, 1)
    setting = replace(DEFAULT, rows=4)
    drawn = [[batch.distance for batch in training_batches(mix, setting, generator)] for _ in range(200)]
    assert all(sorted(distances) == distances for distances in drawn)
    flat = [distance for distances in drawn for distance in distances]
    assert min(flat) == 1 and 95 <= max(flat) <= 100
    assert 0.4 < sum(distance <= 10 for distance in flat) / len(flat) < 0.6
    assert [batch.distance for batch in validation_batches(mix, DEFAULT)] == [6, 25, 50, 100]
    alone = replace(mix, alone=7)
    batches = [*training_batches(alone, DEFAULT, generator), *validation_batches(alone, DEFAULT)]
    assert [(batch.distance, len(batch.tokens)) for batch in batches] == [(7, 64), (7, 100)]


def test_accuracy_by_distance_of_a_model_that_sees_five_words_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clause_trials, "right_answers", lambda _, batch: float(batch.distance <= 5))
    assert accuracy(cast("AnyTransducer", None), (1, 5, 7), DEFAULT, seed=1) == {1: 1.0, 5: 1.0, 7: 0.0}


@pytest.mark.parametrize("model", MODELS)
def test_gradients_against_finite_differences(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Along the gradient itself, the loss changes at the rate of the gradient's norm."""
    network = cast("AnyTransducer", build(config_of(model, TINY), SIZES, 1).double().eval())
    batch = sample_sentences(4, 1, 3, torch.Generator().manual_seed(5))
    monkeypatch.setattr(clause_trials, "sample_sentences", lambda *_: batch)
    norm = gradient_norms(network, TINY, seed=1)[4]

    embedding = network.get_submodule("embedding")
    shift = torch.zeros(embedding.weight.shape[1], dtype=torch.float64, requires_grad=True)
    embedding.register_forward_hook(
        lambda _, __, output: torch.cat([output[:, :3], output[:, 3:4] + shift, output[:, 4:]], dim=1)
    )
    score, hidden = clause_trials.scores_of(network, batch)
    loss = torch.nn.functional.cross_entropy(score, batch.answers)
    at_word, at_hidden = torch.autograd.grad(loss, [shift, hidden])
    assert norm == pytest.approx((at_word.norm() / at_hidden.norm()).item(), rel=1e-9)
    with torch.no_grad():
        step = 1e-5 * at_word / at_word.norm()
        shift.add_(step)
        above = clause_trials.loss_of(network, batch)
        shift.sub_(2 * step)
        below = clause_trials.loss_of(network, batch)
    assert (above - below).item() / 2e-5 == pytest.approx(at_word.norm().item(), rel=1e-4)


def test_training_ends_when_validation_is_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clause_trials, "right_answers", lambda *_: 1.0)
    result = carry_out(ClauseTrial("RNN", 0.02, 1, alone=4), replace(TINY, updates_alone=9), silent)
    assert (result.updates, result.validation, result.accuracy) == (2, 1.0, {4: 1.0})


def test_a_result_is_kept_and_belongs_to_its_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = ClauseTrial("LSTM", 0.02, 1)
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
    assert made == ["lstm-mix-0.02-1"] * 2
