"""A language model in the studio: the numbers are those of the Python API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.unit.serving.studio.served import RunnerBackend, Served, events, shares
from tests.unit.serving.studio.test_translation_inspection import assert_close
from tests.unit.small_language_model import writer
from transduce.inference.generator import Generator
from transduce.serving.job import ModelInfo
from transduce.serving.runner import GeneratorRunner
from transduce.serving.scheduler import Capacity

PROMPT = "the cat sat"
SEARCH: dict[str, Any] = {"max_length": 5}


@pytest.fixture(scope="module")
def alone() -> Generator:
    return Generator(writer())


@pytest.fixture(scope="module")
def studio() -> Iterator[Served]:
    runner = GeneratorRunner(Generator(writer()), Capacity())
    info = ModelInfo("writer", "language_modeling", "torch", "float32", 1, inspection=runner.inspector.describe())
    served = Served([RunnerBackend(runner, info)])
    yield served
    served.close()


@pytest.fixture(scope="module")
def recorded(studio: Served) -> dict[str, Any]:
    return studio.record(PROMPT, search=SEARCH)


def test_a_prompt_has_the_next_tokens_of_the_api(alone: Generator, recorded: dict[str, Any]) -> None:
    maps = alone.attention(PROMPT, **SEARCH, top=8)
    assert recorded["subject"] == "prompt" and recorded["output"] == maps.translation
    assert tuple(recorded["read_pieces"]) == maps.source_pieces and recorded["generated"] == maps.generated
    assert len(recorded["steps"]) == len(recorded["read_pieces"]) == len(recorded["produced_pieces"]) + 1
    last = recorded["steps"][-1]
    assert last["probability"] is last["log_probability"] is last["rank"] is None
    for found, step in zip(recorded["steps"], maps.steps, strict=True):
        assert_close([one["probability"] for one in found["top"]], [one.probability for one in step.top])
        assert found["rank"] == step.rank
        assert_close(found["entropy"], step.entropy)


def test_views_are_those_of_the_api(studio: Served, alone: Generator, recorded: dict[str, Any]) -> None:
    answer = studio.client.get(f"/studio/api/passes/{recorded['id']}/attention/causal/2")
    weights = alone.attention(PROMPT, **SEARCH).maps["causal"][1]
    np.testing.assert_allclose(shares(answer.content, weights.shape), weights, rtol=0, atol=1e-5)
    neuron: dict[str, Any] = {"kind": "causal", "layer": 1, "head": 2, "row": 2}
    assert_close(studio.view(recorded, "neuron", **neuron), alone.neuron_view(PROMPT, **neuron, **SEARCH).to_json())
    lens, expected = studio.view(recorded, "lens", top=2), alone.logit_lens(PROMPT, top=2, **SEARCH).to_json()
    assert_close({**lens, "output": ""}, {**expected, "output": ""})
    found = studio.view(recorded, "attribution", position=2)
    assert_close(found, alone.attribute(PROMPT, 2, **SEARCH).to_json())
    off: dict[str, Any] = {"heads": [("causal", 1, 1)]}
    assert_close(studio.view(recorded, "intervention", **off), alone.ablate(PROMPT, **off, **SEARCH).to_json())
    assert_close(studio.post("head-summary", {"model": 0, "texts": [PROMPT]}), alone.head_summary([PROMPT]).to_json())


def test_a_forced_token_is_followed_by_what_the_model_writes_after_it(studio: Served, alone: Generator) -> None:
    recorded = studio.record(PROMPT, search=SEARCH)
    start = len(recorded["read_tokens"]) - recorded["generated"]
    other = next(one["token"] for one in recorded["steps"][start - 1]["top"][1:] if one["token"] != alone.tokenizer.end)
    forced = studio.record(PROMPT, search=SEARCH, prefix_tokens=[other])
    assert forced["read_tokens"][start] == other and forced["forced"] == 1
    text = alone.force(PROMPT, [other]).output
    assert forced["output"].startswith(text)
    found = studio.view(recorded, "continue", tokens=[other])
    assert found["pass"]["output"] == found["hypotheses"][0]["text"] == forced["output"]


def test_a_continuation_is_streamed(studio: Served, recorded: dict[str, Any]) -> None:
    answer = studio.client.post("/studio/api/translate", json={"model": 0, "text": PROMPT, "search": SEARCH})
    first, *pieces, kept, done = events(answer.text)
    assert first["segments"] == [{"text": PROMPT, "after": ""}]
    assert "".join(piece["text"] for piece in pieces) == kept["pass"]["output"] == done["text"] == recorded["output"]
    assert len(pieces) > 1


def test_what_a_language_model_has_not_is_rejected(studio: Served, recorded: dict[str, Any]) -> None:
    for name, value in (("terms", {"a": "b"}), ("force", ["a"]), ("prefix", "a"), ("source_language", "de")):
        found = studio.post("passes", {"model": 0, "text": PROMPT, name: value}, status=422)
        assert found["error"]["parameter"] == name
    assert "no view" in studio.post(f"passes/{recorded['id']}/beam-tree", {}, status=422)["error"]["message"]
