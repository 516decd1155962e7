"""Model folders of format 2 load forever, and give the output that was recorded when they were saved."""

from __future__ import annotations

from pathlib import Path

import pytest

import transduce
from transduce.inference.generator import Generator
from transduce.inference.text_encoder import TextEncoder
from transduce.inference.translator import Translator
from transduce.model_folder import describe_model
from transduce.storage.atomic import read_json

STORED = Path(__file__).parent / "stored"


@pytest.mark.parametrize("task", ["translation", "language_modeling", "text_encoding"])
def test_a_stored_folder_states_format_and_task(task: str) -> None:
    table = read_json(STORED / task / "config.json")
    assert (table["format"], table["task"]) == (2, task)
    assert table.keys() == {"format", "task", "model", "settings", "vocabulary", "notes"}
    assert describe_model(STORED / task).notes == table["notes"]


def test_a_stored_translation_model_translates_as_it_did() -> None:
    translator = transduce.load(STORED / "translation")
    assert isinstance(translator, Translator)
    assert (translator.defaults.beam_size, translator.notes["source_language"]) == (3, "en")
    first, second = translator.translate(["d a"], n_best=2)[0]
    assert (first.text, second.text) == ("a d a d", "a d e d")
    assert (first.score, second.score) == pytest.approx((-2.90268, -3.08720), abs=1e-3)


def test_a_stored_language_model_continues_as_it_did() -> None:
    generator = transduce.load(STORED / "language_modeling")
    assert isinstance(generator, Generator)
    assert generator.generate(["red green", "two three red"]) == [" blue one two three red green"] * 2


def test_a_stored_text_encoder_predicts_as_it_did() -> None:
    encoder = transduce.load(STORED / "text_encoding")
    assert isinstance(encoder, TextEncoder)
    found = encoder.predict(["red one green two", "one two three red"])
    assert [prediction.label for prediction in found] == ["colour", "number"]
    assert [prediction.probability for prediction in found] == pytest.approx([0.79098, 0.82411], abs=1e-3)
