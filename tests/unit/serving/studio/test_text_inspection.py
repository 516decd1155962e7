"""A text encoder in the studio: attention and predictions are those of the Python API."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.unit.serving.studio.served import STORED, Served, events, of_folder, shares
from tests.unit.serving.studio.test_translation_inspection import assert_close
from transduce.inference.load import load_text_encoder
from transduce.inference.text_encoder import as_json

TEXT = "one two three"


@pytest.fixture(scope="module")
def studio() -> Iterator[Served]:
    served = Served([of_folder(STORED / "text_encoding", "encoder")])
    yield served
    served.close()


def test_a_text_has_the_attention_and_the_prediction_of_the_api(studio: Served) -> None:
    alone = load_text_encoder(STORED / "text_encoding")
    maps, recorded = alone.attention(TEXT), studio.record(TEXT)
    assert recorded["subject"] == "text" and tuple(recorded["source_pieces"]) == maps.source_pieces
    assert recorded["output"] == maps.translation
    if alone.head != "none":
        assert_close(recorded["prediction"], as_json(alone.predict([TEXT])[0]))
    for layer, weights in enumerate(maps.maps["encoder"], start=1):
        answer = studio.client.get(f"/studio/api/passes/{recorded['id']}/attention/encoder/{layer}")
        assert answer.headers["x-shape"] == ",".join(map(str, weights.shape))
        np.testing.assert_allclose(shares(answer.content, weights.shape), weights, rtol=0, atol=1e-5)
    first, kept, done = events(studio.client.post("/studio/api/translate", json={"model": 0, "text": TEXT}).text)
    assert (first["event"], kept["pass"]["output"], done["text"]) == (
        "segments",
        recorded["output"],
        recorded["output"],
    )


def test_what_a_text_encoder_has_not_is_rejected(studio: Served) -> None:
    recorded = studio.record(TEXT)
    found = studio.post(f"passes/{recorded['id']}/lens", {}, status=422)
    assert "text encoder" in found["error"]["message"]
    answer = studio.client.get(f"/studio/api/passes/{recorded['id']}/attention/cross/1")
    assert answer.status_code == 422 and "cross" in answer.json()["error"]["message"]
    assert studio.post("passes", {"model": 0, "text": TEXT, "search": {"beam_size": 2}}, status=422)


def test_the_tokens_of_a_text_are_those_of_its_pieces(studio: Served) -> None:
    tokenizer, recorded = load_text_encoder(STORED / "text_encoding").tokenizer, studio.record(TEXT)
    assert recorded["source_tokens"]
    assert list(tokenizer.pieces(recorded["source_tokens"])) == recorded["source_pieces"]
