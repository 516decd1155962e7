"""Search options that are chosen on validation pairs, and where they are saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.training.example import Listener, recipe, trainer
from transduce.data.prepared import Prepared
from transduce.inference.load import load_translator
from transduce.inference.search.options import SearchOptions
from transduce.model_folder import describe_model
from transduce.run import train
from transduce.tasks.translation.evaluation import ValidationTranslations
from transduce.tasks.translation.search_tuning import TunedSearch, tune_search
from transduce.training.config import TrainingConfig
from transduce.training.workers import Workers

GIVEN = SearchOptions(beam_size=4)


def tuned(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: SearchOptions = GIVEN, **worth: float
) -> tuple[TunedSearch | None, list[SearchOptions]]:
    """Tune with scores that are sums: of what each value of an option is worth, as `length_penalty_1=0.2`."""
    tried = []

    def score(_: object, workers: Workers, options: SearchOptions, metric: str) -> float:
        tried.append(options)
        return sum(
            gain
            for name, gain in worth.items()
            if f"{getattr(options, name.rsplit('_', 1)[0]):g}" == name.rsplit("_", 1)[1]
        )

    monkeypatch.setattr(ValidationTranslations, "score", score)
    training = trainer(prepared, tmp_path)
    training.close()
    return tune_search(given, prepared, TrainingConfig(), training.train_step.workers, 14), tried


def test_each_option_is_chosen_by_its_score(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, tried = tuned(prepared, tmp_path, monkeypatch, length_penalty_1=0.2, beam_size_8=0.1)
    assert found is not None
    assert (found.options.length_penalty, found.options.length_normalization, found.options.beam_size) == (
        1.0,
        "power",
        8,
    )
    assert (found.before, found.after, found.metric) == (0.0, pytest.approx(0.3), "exact_match")
    assert tried[0] == GIVEN
    assert "length penalty 1 (power)" in str(found) and "beam size 8" in str(found)


def test_what_gains_nothing_is_left_as_it_is(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, tried = tuned(prepared, tmp_path, monkeypatch)
    assert found is not None and found.options == GIVEN
    assert len(tried) >= 7


def test_other_methods_are_not_tuned(prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tuned(prepared, tmp_path, monkeypatch, SearchOptions(method="greedy")) == (None, [])


@pytest.mark.parametrize("wanted", [True, False])
def test_the_model_has_the_options_that_were_best(
    wanted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def score(_: object, workers: Workers, options: SearchOptions, metric: str) -> float:
        return options.length_penalty

    monkeypatch.setattr(ValidationTranslations, "score", score)
    listener = Listener()
    changes: dict[str, Any] = {"updates": 2, "tune_search": wanted}
    run = train(recipe(training=changes), tmp_path / "run", reporter=listener)
    saved = describe_model(run).notes["search"]
    assert (saved["length_penalty"], saved["beam_size"]) == ((1.5, 2) if wanted else (0.6, 2))
    assert any("search chosen on 13 validation pairs" in warning for warning in listener.warnings) is wanted


def test_real_translations_are_scored(tmp_path: Path) -> None:
    run = train(recipe(training={"updates": 3, "tune_search": True}), tmp_path / "run")
    assert load_translator(run)("1 2 3") is not None
