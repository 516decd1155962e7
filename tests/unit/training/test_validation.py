"""What a validation says, against scoring and translating the pairs one by one."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import sacrebleu
import torch

from tests.unit.training.example import TABLES, small_model
from transduce.data.prepared import Prepared
from transduce.inference.scoring import score_targets
from transduce.inference.search.options import Request, SearchOptions
from transduce.inference.torch_engine import TorchEngine
from transduce.tasks.catalog import task_for
from transduce.tasks.translation.evaluation import GreedyTranslations
from transduce.training.config import TrainingConfig
from transduce.training.reporter import Validation
from transduce.training.validation import Validator
from transduce.training.workers import Workers


def validator(prepared: Prepared, **changes: object) -> Validator:
    assert prepared.validation is not None
    config = TrainingConfig(**TABLES["training"]).but(**changes)
    task, workers = task_for(prepared.data), Workers(small_model(prepared), 1)
    return task.validator(prepared, prepared.validation, config, workers)


def judged(loss: float, **scores: float) -> Validation:
    return Validation(update=1, loss=loss, perplexity=math.exp(loss), accuracy=0.5, scores=scores, samples=())


def test_loss_perplexity_and_accuracy_are_those_of_scoring_every_pair(prepared: Prepared) -> None:
    validating = validator(prepared, label_smoothing=0.3)
    found = validating.validate(update=29)
    store, tokenizer = validating.split, prepared.target_tokenizer
    validating.workers.models[0].eval()
    scored = [
        score_targets(
            validating.workers.models[0],
            [store.source(row).tolist()],
            [store.target(row).tolist()],
            tokenizer.specials,
            tokenizer.specials,
        )[0]
        for row in range(len(store))
    ]
    tokens = sum(len(target.hits) for target in scored)
    loss = -sum(target.log_probability for target in scored) / tokens
    assert found.update == 29
    assert found.loss == pytest.approx(loss, rel=1e-5)
    assert found.perplexity == pytest.approx(math.exp(loss), rel=1e-4)
    assert found.accuracy == pytest.approx(sum(sum(target.hits) for target in scored) / tokens)


def test_the_first_pairs_are_translated_greedily_and_scored(prepared: Prepared) -> None:
    validating = validator(prepared, decode_examples=7, metric="bleu")
    found = validating.validate(update=1)
    store, tokenizer = validating.split, prepared.target_tokenizer
    requests = [Request(row, store.source(row).tolist(), SearchOptions(method="greedy")) for row in range(7)]
    engine = TorchEngine(validating.workers.models[0], tokenizer.specials, tokenizer.specials)
    translations = [tokenizer.decode(hypotheses[0].tokens) for hypotheses in engine.translate(requests)]
    references = [store.text(row)[1] for row in range(7)]
    assert found.scores.keys() == {"bleu", "exact_match"}
    assert found.scores["bleu"] == pytest.approx(sacrebleu.corpus_bleu(translations, [references]).score)
    assert found.scores["exact_match"] == sum(map(str.__eq__, translations, references)) / 7
    assert [sample.translation for sample in found.samples] == translations[:3]
    assert [(sample.source, sample.reference) for sample in found.samples] == [store.text(row) for row in range(3)]
    assert any(signature.startswith("BLEU|nrefs:1|case:mixed") for signature in found.signatures)


@pytest.mark.parametrize(
    ("metric", "names"),
    [
        ("loss", {"exact_match", "bleu"}),
        ("chrf", {"chrf", "exact_match", "bleu"}),
        ("exact_match", {"exact_match", "bleu"}),
        ("word_error_rate", {"word_error_rate", "exact_match", "bleu"}),
    ],
)
def test_the_metric_that_chooses_is_among_the_scores(prepared: Prepared, metric: str, names: set[str]) -> None:
    assert validator(prepared, metric=metric).validate(1).scores.keys() == names


def test_nothing_is_translated_where_nothing_is_wanted(prepared: Prepared) -> None:
    found = validator(prepared, decode_examples=0).validate(1)
    assert (found.scores, found.samples) == ({}, ())


def test_more_translations_than_there_are_pairs_are_all_of_them(prepared: Prepared) -> None:
    assert prepared.validation is not None
    config = TrainingConfig(**TABLES["training"]).but(decode_examples=1000)
    assert len(GreedyTranslations(prepared, prepared.validation, config).rows) == len(prepared.validation)
    validator(prepared, decode_examples=1000).validate(1)


def test_validating_twice_says_the_same_and_changes_nothing(prepared: Prepared) -> None:
    validating = validator(prepared)
    validating.workers.models[0].train()
    before = {name: tensor.clone() for name, tensor in validating.workers.models[0].state_dict().items()}
    state = torch.get_rng_state()
    assert validating.validate(1) == validating.validate(1)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(tensor, before[name]) for name, tensor in validating.workers.models[0].state_dict().items())


@pytest.mark.parametrize(
    ("metric", "new", "best", "better"),
    [
        ("loss", judged(1.5), None, True),
        ("loss", judged(1.5), 1.6, True),
        ("loss", judged(1.5), 1.5, False),
        ("loss", judged(1.5), 1.4, False),
        ("loss", judged(1.5), math.nan, True),
        ("loss", judged(math.nan), 1.5, False),
        ("bleu", judged(9.9, bleu=21.0), 20.9, True),
        ("bleu", judged(0.1, bleu=21.0), 21.1, False),
        ("word_error_rate", judged(9.9, word_error_rate=0.3), 0.4, True),
        ("word_error_rate", judged(0.1, word_error_rate=0.5), 0.4, False),
    ],
    ids=str,
)
def test_better_is_lower_loss_or_error_and_higher_bleu(
    prepared: Prepared, metric: str, new: Validation, best: float | None, better: bool
) -> None:
    found, score = validator(prepared, metric=metric).better(replace(new), best)
    assert found is better
    assert score == pytest.approx(new.loss if metric == "loss" else new.scores[metric], nan_ok=True)


@pytest.mark.parametrize("metric", ["exact_match", "word_error_rate"])
@pytest.mark.parametrize(("loss", "better"), [(1.4, True), (1.5, False), (1.6, False), (math.nan, False)])
def test_the_loss_decides_between_equal_scores(prepared: Prepared, metric: str, loss: float, better: bool) -> None:
    """Where nothing is right yet, a model that learns is no reason to stop."""
    validating = validator(prepared, metric=metric)
    assert validating.better(judged(loss, **{metric: 0.0}), 0.0, 1.5) == (better, 0.0)
    assert validating.better(judged(loss, **{metric: 0.0}), 0.0) == (False, 0.0)
