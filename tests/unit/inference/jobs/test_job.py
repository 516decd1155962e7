"""Which engine a job counts on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.copy_translator import copier
from transduce.inference.ctranslate2.engine import CTranslate2Engine
from transduce.inference.jobs.job import JobOptions, TranslationJob
from transduce.text.constraint import Constraints


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
def test_lines_that_need_pytorch_are_not_counted_on_ctranslate2(
    constraints: dict[str, object], fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = copier("bpe")
    contents = translator.engine._contents
    monkeypatch.setattr(translator.engine, "_ctranslate2", CTranslate2Engine(contents))  # as if it supported this model
    search = {"beam_size": 2, "stop_rule": "beam_finished", "length_normalization": "power"}
    options = JobOptions(search=search, constraints=Constraints(**constraints))  # type: ignore[arg-type]
    assert TranslationJob(translator, options, options.resolve(translator)).uses_ctranslate2 == fast
    prefixed = replace(options, constraints=replace(options.constraints, prefixes="the"))
    assert not TranslationJob(translator, prefixed, prefixed.resolve(translator)).uses_ctranslate2
