"""Which engine a job counts on."""

from __future__ import annotations

import pytest

from tests.unit.copy_translator import copier
from transduce.inference.ctranslate2.engine import CTranslate2Engine
from transduce.inference.jobs.job import JobOptions, TranslationJob
from transduce.inference.segment import TranslationOptions


@pytest.mark.parametrize(
    ("constraints", "fast"),
    [
        ({}, True),
        ({"forbid": ["fox"]}, True),
        ({"keep": ["x+"]}, True),
        ({"terms": {"fox": "dog"}}, False),
        ({"stop_at": ["fox"]}, False),
    ],
    ids=str,
)
def test_what_pytorch_has_to_answer_is_not_expected_of_ctranslate2(
    constraints: dict[str, object], fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = copier("bpe")
    contents = translator.engine._contents
    monkeypatch.setattr(translator.engine, "_ctranslate2", CTranslate2Engine(contents))  # as if it supported this model
    options = translator.options(beam_size=2, stop_rule="beam_finished", length_normalization="power")
    translation = TranslationOptions(options, translator.constraints(**constraints))  # type: ignore[arg-type]
    assert TranslationJob(translator, JobOptions(translation)).uses_ctranslate2 == fast
    assert not TranslationJob(translator, JobOptions(translation, has_prefixes=True)).uses_ctranslate2
