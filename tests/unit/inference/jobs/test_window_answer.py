"""Which engine a bulk translation counts on."""

from __future__ import annotations

import pytest

from tests.unit.copier import copier
from transduce.inference.jobs.window import Answering


@pytest.mark.parametrize(
    ("wishes", "fast"),
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
    wishes: dict[str, object], fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = copier("bpe")
    monkeypatch.setattr(translator.engine, "_quantization", "float32")  # as if it could express this model
    options = translator.options(beam_size=2, stop_rule="beam_finished", length_normalization="power")
    constraints = translator.constraints(**wishes)  # type: ignore[arg-type]
    assert Answering(translator, options, constraints).fast == fast
    assert not Answering(translator, options, constraints, prefixed=True).fast
