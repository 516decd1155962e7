"""Trials: trained once, resumed, never confused with others, their operations counted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from transduce.errors import ModelFolderError
from transduce.experiments import trials as module
from transduce.experiments.finding import Conditions
from transduce.experiments.study_corpus import generate_corpus
from transduce.experiments.trials import RESULT, Trial, TrialResult, Trials, mean_flops
from transduce.inspection.cost import observe, training_flops
from transduce.models.catalog import build, read_model_table
from transduce.models.interface import Transducer
from transduce.training.interruption import Interrupted
from transduce.training.reporter import Step

MODEL = {"name": "transformer", "model_dim": 8, "num_heads": 2, "ffn_dim": 16, "num_layers": 1}
TRAINING = {
    "batch_tokens": 64,
    "updates": 6,
    "learning_rate": 0.01,
    "schedule": "constant",
    "warmup": 0,
    "validate_every": 3,
    "decode_examples": 2,
}
TRIAL = Trial("small", MODEL, TRAINING)
TOKENIZER = {"kind": "bpe", "vocab_size": 300, "joint": True}


def start(folder: Path, **conditions: object) -> Trials:
    given = replace(Conditions(folder=folder), **conditions)  # type: ignore[arg-type]
    return Trials(generate_corpus(folder, train=40, held_out=5), TOKENIZER, given)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Trials:
    return start(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def whole(study: Trials) -> TrialResult:
    return study.result(TRIAL)


def test_a_trial_is_measured_once(study: Trials, whole: TrialResult, monkeypatch: pytest.MonkeyPatch) -> None:
    assert whole.updates == 6 and len(whole.translations) == 5 and whole.perplexity > 1 and whole.seconds > 0
    assert [update for update, _ in whole.curve] == [3, 6]
    monkeypatch.setattr(module, "train", None)
    assert start(study.folder).result(TRIAL) == whole


def test_another_setting_or_seed_is_another_trial(study: Trials, whole: TrialResult) -> None:
    other = Trial("small", {**MODEL, "ffn_dim": 24}, {**TRAINING, "updates": 3}).with_seed(2)
    wider = study.result(other)
    assert wider.updates == 3 and wider.parameters > whole.parameters
    assert study._recipe(TRIAL.with_seed(2)) != study._recipe(TRIAL)
    assert len(list(study.folder.glob(f"small-*/{RESULT}"))) == 2


def test_an_interrupted_trial_ends_with_the_same_result(
    tmp_path: Path, whole: TrialResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stop(module._Clock):
        def step(self, step: Step) -> None:
            super().step(step)
            if step.update == 4:
                raise Interrupted(15, 4)

    with monkeypatch.context() as patch:
        patch.setattr(module, "_Clock", Stop)
        with pytest.raises(Interrupted, match="same command"):
            start(tmp_path).result(TRIAL)
    resumed = start(tmp_path).result(TRIAL)
    assert replace(resumed, seconds=0.0) == replace(whole, seconds=0.0)


def test_a_damaged_result_is_one_sentence(study: Trials, whole: TrialResult) -> None:
    kept = next(path for path in study.folder.glob(f"small-*/{RESULT}") if json.loads(path.read_text())["updates"] == 6)
    before = kept.read_text()
    for damage in ("{", json.dumps({"flops": 1.0})):
        kept.write_text(damage)
        with pytest.raises(ModelFolderError, match="delete it"):
            study.result(TRIAL)
    kept.write_text(before)


def test_counted_operations_are_those_of_all_pairs(study: Trials) -> None:
    store = study.prepared.train
    lengths = list(zip(store.source_lengths[:] + 1, store.target_lengths[:] + 1, strict=True))
    for table in (MODEL, {"preset": "bahdanau", "embedding_dim": 12, "hidden_dim": 10}):
        config = read_model_table(table, "test")
        with torch.device("meta"):
            model = build(config, study.sizes)
        assert isinstance(model, Transducer)
        if table is MODEL:
            every = np.mean([training_flops(model, int(source), int(target)) for source, target in lengths])
            assert mean_flops(config, study.sizes, store) == pytest.approx(every, rel=0.02)
        seen = observe(model, 7, 5)
        assert training_flops(model, 7, 5) == 3 * (seen.encode_flops + seen.forward_flops)


def test_the_score_of_seeds_is_their_mean(study: Trials, whole: TrialResult) -> None:
    references = [reference for [reference] in study.evaluated.references]
    perfect, wrong = (replace(whole, translations=tuple(lines)) for lines in (references, ["x"] * len(references)))
    assert study._scores([perfect])[0] == pytest.approx(100)
    found = study._interval([perfect, wrong])
    assert found.score == pytest.approx(np.mean(study._scores([perfect, wrong])))
    assert found.low <= found.score <= found.high
