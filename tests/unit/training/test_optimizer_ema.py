"""The running average of the weights, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.unit.training.example import Listener, run, small_model, trainer
from transduce.data.prepared import Prepared
from transduce.model_folder import load_weights, weights_of
from transduce.training.finish import put_final_weights
from transduce.training.optimizer import Ema


def test_the_average_follows_the_weights_by_hand(prepared: Prepared) -> None:
    model = small_model(prepared)
    ema = Ema(model, decay=0.5)
    name = next(iter(ema.weights))
    expected = ema.weights[name].clone()
    for update in range(1, 9):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(float(update))
        ema.update(update)
        decay = min(0.5, (1 + update) / (10 + update))
        expected = decay * expected + (1 - decay) * update
        torch.testing.assert_close(ema.weights[name], expected)


def test_inside_the_model_is_its_average_and_outside_it_is_itself(prepared: Prepared) -> None:
    model = small_model(prepared)
    ema = Ema(model, decay=0.9)
    for weight in ema.weights.values():
        weight.fill_(7.0)
    before = {name: weight.clone() for name, weight in weights_of(model).items()}
    with pytest.raises(KeyError), ema.in_place():
        assert all(bool((weight == 7.0).all()) for weight in weights_of(model).values())
        raise KeyError
    assert all(torch.equal(weight, before[name]) for name, weight in weights_of(model).items())


def test_what_is_validated_and_kept_is_the_average(prepared: Prepared, tmp_path: Path) -> None:
    training = trainer(prepared, tmp_path, ema_decay=0.8, updates=10)
    recorded = run(training)
    assert training.manager.ema is not None
    updates, _ = put_final_weights(training, Listener())
    kept = load_weights(training.checkpoints.path(updates[0]) / "average.safetensors")
    assert all(torch.equal(weight, kept[name]) for name, weight in weights_of(training.model).items())
    plain = load_weights(training.checkpoints.path(updates[0]) / "model.safetensors")
    assert not all(torch.equal(kept[name], plain[name]) for name in kept)
    assert training.validator is not None
    best = next(validation for validation in recorded.validations if validation.update == updates[0])
    assert training.validator.validate(updates[0]).loss == pytest.approx(best.loss, rel=1e-6)
