"""The card says what the model is, what it learnt from, how good it is, and how that was measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.training.example import TABLES, small_model
from transduce.data.prepared import Prepared
from transduce.model_folder import ModelFolder
from transduce.models.transformer import Transformer
from transduce.tasks.catalog import task_for
from transduce.training.config import TrainingConfig
from transduce.training.finish import model_card
from transduce.training.reporter import Validation

FINGERPRINT = {"data": "d" * 64, "recipe": "e" * 64}


def contents(prepared: Prepared, **notes: object) -> ModelFolder:
    model = small_model(prepared)
    assert isinstance(model, Transformer)
    return ModelFolder(model, model.config, prepared.source_tokenizer, prepared.target_tokenizer, notes)


def validation() -> Validation:
    return Validation(
        update=17,
        loss=1.5,
        perplexity=4.4817,
        accuracy=0.625,
        scores={"bleu": 12.34, "exact_match": 0.25},
        samples=(),
        signatures=("BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.5.1 = 12.34",),
    )


def card(prepared: Prepared, updates: list[int], final: Validation | None, **notes: object) -> str:
    made, training = contents(prepared, **notes), TrainingConfig(**TABLES["training"])
    text = task_for(prepared.data).card(made, prepared)
    return model_card(made, text, prepared, training, updates, final, FINGERPRINT)


def test_the_card_says_what_the_model_is_and_what_it_learnt_from(prepared: Prepared) -> None:
    text = card(prepared, [17], validation(), source_language="de", target_language="en")
    made = contents(prepared)
    parameters = sum(parameter.numel() for parameter in made.model.parameters())
    assert text.startswith("---\nlibrary_name: transduce\n")
    assert "language: [de, en]" in text
    assert "# transformer, de → en" in text
    assert f"{parameters:,} parameters; {prepared.source_tokenizer.size} source" in text
    assert f"{len(prepared.train):,} pairs" in text
    assert "these weights are the checkpoint of update 17" in text
    assert f"`{FINGERPRINT['data']}`" in text
    assert f"`{FINGERPRINT['recipe']}`" in text
    for line in prepared.report.lines():
        assert line in text


def test_scores_stand_with_what_they_were_measured_on_and_how(prepared: Prepared) -> None:
    text = card(prepared, [17], validation())
    assert "| perplexity per token | 4.482 | all validation pairs |" in text
    assert "| token accuracy | 62.50 %" in text
    assert "| bleu | 12.34 | greedy, first 5 validation pairs |" in text
    assert "| exact_match | 25.00 % | greedy" in text
    assert "BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.5.1" in text


def test_without_validation_pairs_there_are_no_scores(prepared: Prepared) -> None:
    assert "## Scores" not in card(prepared, [17], None)


def test_an_average_names_its_checkpoints(prepared: Prepared) -> None:
    assert "the average of the checkpoints of updates 1,000, 2,000, 3,000" in card(prepared, [1000, 2000, 3000], None)


def test_languages_may_be_unknown(prepared: Prepared) -> None:
    text = card(prepared, [17], None)
    assert "language: []" in text
    assert "# transformer, source → target" in text


def test_the_card_does_not_depend_on_where_the_run_stands(prepared: Prepared, tmp_path: Path) -> None:
    """Else two runs of one recipe would have different model folders."""
    elsewhere = replace(prepared, folder=tmp_path)
    assert card(prepared, [17], validation()) == card(elsewhere, [17], validation())
    assert str(prepared.folder) not in card(prepared, [17], validation())


@pytest.mark.parametrize("pairs", [2, 1000])
def test_no_more_pairs_are_reported_as_decoded_than_there_are(prepared: Prepared, pairs: int) -> None:
    config = TrainingConfig(**TABLES["training"]).but(decode_examples=pairs)
    made = contents(prepared)
    parts = task_for(prepared.data).card(made, prepared)
    text = model_card(made, parts, prepared, config, [17], validation(), FINGERPRINT)
    assert prepared.validation is not None
    assert f"greedy, first {min(pairs, len(prepared.validation)):,} validation pairs" in text
