"""What the attention view is given: weights, names and next-token distributions."""

from __future__ import annotations

import base64
import json
import re
import zlib
from typing import Any

import numpy as np
import pytest

from tests.unit.inspection.example import STEPS, hostile_maps
from transduce.inspection import attention_page as view
from transduce.inspection.maps import AttentionMaps
from transduce.inspection.replay import Candidate, DecodingStep


@pytest.fixture(scope="module")
def maps() -> AttentionMaps:
    return hostile_maps()


def saved(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">([^<]*)</script>', page)
    assert found is not None
    content: dict[str, Any] = json.loads(found[1])
    return content


def weights_in(kind: dict[str, Any]) -> np.ndarray:
    layers = []
    for array in kind["arrays"]:
        assert array["deflated"] and array["shape"] == [kind["heads"], len(kind["rows"]), len(kind["columns"])]
        name, stored = ("shares16", "<u2") if "shares16" in array else ("roots8", "u1")
        values = np.frombuffer(zlib.decompress(base64.b64decode(array[name])), dtype=stored).astype(np.float32)
        layers.append((values / 65520 if name == "shares16" else (values / 255) ** 2).reshape(array["shape"]))
    assert len(layers) == kind["layers"]
    return np.stack(layers)


def test_weights_survive_the_journey(maps: AttentionMaps) -> None:
    kinds = saved(maps.to_html())["data"]["kinds"]
    assert list(kinds) == list(maps.maps)
    for kind, given in maps.maps.items():
        np.testing.assert_allclose(weights_in(kinds[kind]), given, rtol=0, atol=8e-6)


def test_many_weights_are_sent_shorter_and_small_ones_do_not_vanish() -> None:
    length = 587
    even = np.full((2, 3, length, length), 1 / length, dtype=np.float32)
    names = tuple(map(str, range(length)))
    kind = view.content(AttentionMaps({"encoder": even}, names))["kinds"]["encoder"]
    assert "roots8" in kind["arrays"][0]
    np.testing.assert_allclose(weights_in(kind), even, rtol=0.1)


def test_very_many_weights_lose_the_smallest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "MAX_WEIGHTS", 3)
    small = np.array([[[[0.999, 0.001], [0.5, 0.5]]]], dtype=np.float32)
    content = view.content(AttentionMaps({"encoder": small}, ("a", "b")))
    assert content["least"] == view.LEAST and weights_in(content["kinds"]["encoder"])[0, 0, 0, 1] == 0.0


def test_each_step_has_the_token_that_followed_even_when_it_was_not_likely(maps: AttentionMaps) -> None:
    steps = view.content(maps)["steps"]
    assert len(steps) == STEPS and any(step["rank"] > 4 for step in steps)
    for shown, step in zip(steps, maps.steps, strict=True):
        assert step.chosen is not None
        assert (shown["token"], shown["probability"]) == (step.chosen.token, step.chosen.probability)
        assert len(shown["top"]) == 4


def test_a_recurrent_models_page_shows_its_one_map() -> None:
    one = np.array([[[[0.25, 0.75]]]], dtype=np.float32)
    content = saved(AttentionMaps({"cross": one}, ("a", "</s>"), ("<s>", "b")).to_html())["data"]
    assert list(content["kinds"]) == ["cross"] and content["steps"] == []
    np.testing.assert_allclose(weights_in(content["kinds"]["cross"]), one)


def test_a_page_holds_several_prompts_and_what_follows_each_token() -> None:
    chosen = Candidate(7, "</script>", 0.25, 1.5)
    other = Candidate(5, "b", 0.5, 2.25)
    steps = (DecodingStep(0, chosen, 2, (other,), 1.5), DecodingStep(1, None, None, (other,), 0.75))
    even = np.array([[[[1.0, 0.0], [0.5, 0.5]]]], dtype=np.float32)
    maps = AttentionMaps({"causal": even}, ("a", "</script>"), steps=steps, generated=1, subject="prompt")
    bare = AttentionMaps({}, ("a", "</script>"), steps=steps, subject="prompt")
    first, second = saved(view.attention_page([maps, bare]))["data"]["texts"]
    assert first["generated"] == 1 and second["kinds"] == {} and second["steps"] == first["steps"]
    assert second["pieces"] == ["a", "</script>"]
    assert first["steps"][0]["piece"] == "</script>" and first["steps"][1]["probability"] is None
    assert first["steps"][0]["top"] == [{"token": 5, "piece": "b", "probability": 0.5}]
    np.testing.assert_allclose(weights_in(first["kinds"]["causal"]), even)
