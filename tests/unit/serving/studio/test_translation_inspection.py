"""Every number of the studio is the one that the Python API gives for the same model, by the routes themselves."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from tests.unit.inference.random_translator import OTHER, TEXT, random_rnn, random_translator
from tests.unit.serving.api.hostile import HOSTILE
from tests.unit.serving.studio.served import RunnerBackend, Served, events, shares
from transduce.inference.translator import Translator
from transduce.serving.job import ModelInfo
from transduce.serving.runner import TranslatorRunner
from transduce.serving.scheduler import Capacity
from transduce.text.constraint import Constraints

SEARCH: dict[str, Any] = {"beam_size": 3, "max_length": 11}


def served_translator(translator: Translator) -> Served:
    runner = TranslatorRunner(translator, Capacity())
    info = ModelInfo("random", "translation", "torch", "float32", 1, inspection=runner.inspector.describe())
    return Served([RunnerBackend(runner, info)])


@pytest.fixture(scope="module")
def alone() -> Translator:
    return random_translator()


@pytest.fixture(scope="module")
def studio() -> Iterator[Served]:
    served = served_translator(random_translator())
    yield served
    served.close()


@pytest.fixture(scope="module")
def recorded(studio: Served) -> dict[str, Any]:
    return studio.record(TEXT, search=SEARCH)


def assert_close(found: Any, expected: Any, where: str = "") -> None:
    """Equal JSON values; numbers to 1e-5."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for name, value in expected.items():
            assert_close(found[name], value, f"{where}.{name}")
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), where
        for place, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_close(one, other, f"{where}[{place}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-5), where
    else:
        assert found == expected, where


def test_a_pass_has_the_probabilities_of_the_api(alone: Translator, recorded: dict[str, Any]) -> None:
    maps = alone.attention(TEXT, top=8, **SEARCH)
    assert recorded["output"] == maps.translation
    assert tuple(recorded["source_pieces"]) == maps.source_pieces
    assert (recorded["read_pieces"][0], *recorded["produced_pieces"]) == maps.target_pieces
    assert [tuple(link) for link in recorded["links"]] == list(maps.links)
    assert len(recorded["steps"]) == len(maps.steps) == len(recorded["produced_pieces"])
    for found, step in zip(recorded["steps"], maps.steps, strict=True):
        assert step.chosen is not None
        assert (found["token"], found["rank"]) == (step.chosen.token, step.rank)
        assert_close(found["probability"], step.chosen.probability)
        assert_close(found["log_probability"], float(np.log(step.chosen.probability)))
        assert_close(found["entropy"], step.entropy)
        assert_close([(one["token"], one["probability"]) for one in found["top"]],
                     [(one.token, one.probability) for one in step.top])  # fmt: skip
    (best, *_) = alone.continue_from(TEXT, (), **SEARCH)
    assert_close([recorded["score"], recorded["log_probability"]], [best.score, best.log_probability])


def test_the_words_of_a_pass_are_those_of_its_texts(recorded: dict[str, Any]) -> None:
    assert len(recorded["source_words"]) == len(recorded["source_pieces"])
    assert {word for word in recorded["source_words"] if word is not None} == set(range(len(TEXT.split())))
    assert len(recorded["produced_words"]) == len(recorded["produced_pieces"])


def test_attention_is_that_of_the_api(studio: Served, alone: Translator, recorded: dict[str, Any]) -> None:
    maps = alone.attention(TEXT, **SEARCH)
    assert recorded["attention"].keys() == maps.maps.keys()
    for kind, weights in maps.maps.items():
        described = recorded["attention"][kind]
        assert (described["layers"], described["heads"]) == weights.shape[:2]
        assert (tuple(described["rows"]), tuple(described["columns"])) == (maps.rows(kind), maps.columns(kind))
        for layer in range(1, len(weights) + 1):
            for _ in range(2):  # the second comes from the cache
                answer = studio.client.get(f"/studio/api/passes/{recorded['id']}/attention/{kind}/{layer}")
                assert answer.headers["content-type"] == "application/octet-stream"
                shape = tuple(map(int, answer.headers["x-shape"].split(",")))
                found = shares(answer.content, shape)
                expected = weights[layer - 1]
                assert shape == expected.shape
                np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_attention_is_computed_once(studio: Served) -> None:
    recorded, jobs = studio.record(TEXT, search=SEARCH), studio.backends[0].jobs
    for kind, layer, new in (("cross", 1, 1), ("cross", 1, 0), ("cross", 2, 1)):
        before = len(jobs)
        studio.client.get(f"/studio/api/passes/{recorded['id']}/attention/{kind}/{layer}")
        assert len(jobs) - before == new


def test_views_that_replay_are_those_of_the_api(studio: Served, alone: Translator, recorded: dict[str, Any]) -> None:
    neuron: dict[str, Any] = {"kind": "cross", "layer": 3, "head": 2, "row": 1}
    assert_close(studio.view(recorded, "neuron", **neuron), alone.neuron_view(TEXT, **neuron, **SEARCH).to_json())
    assert_close(studio.view(recorded, "lens", top=3), alone.logit_lens(TEXT, top=3, **SEARCH).to_json())
    for asked in ({"position": 1}, {"position": 1, "instead_of": 5}, {"position": 0, "method": "value_zeroing"}):
        expected = alone.attribute(TEXT, **asked, **SEARCH).to_json()
        assert_close(studio.view(recorded, "attribution", **asked), expected)


def test_views_that_search_are_those_of_the_api(studio: Served, alone: Translator, recorded: dict[str, Any]) -> None:
    tree = alone.beam_tree(TEXT, **SEARCH)
    assert_close(studio.view(recorded, "beam-tree"), tree.to_json())
    wider = {"beam_size": 4, "length_penalty": 0.2}
    assert_close(studio.view(recorded, "beam-tree", **wider), alone.beam_tree(TEXT, **{**SEARCH, **wider}).to_json())
    branch = list(tree.tokens(tree.pruned()[0].id))
    expected = alone.beam_tree(TEXT, prefix=branch, **SEARCH).to_json()
    assert_close(studio.view(recorded, "beam-tree", prefix_tokens=branch), expected)
    off: dict[str, Any] = {"heads": [("cross", 2, 1)], "attention": [("encoder", 1)], "feed_forward": [("decoder", 3)]}
    off |= {"words": [1], "tokens": [0]}
    assert_close(studio.view(recorded, "intervention", **off), alone.ablate(TEXT, **off, **SEARCH).to_json())
    for where in ("memory", ["encoder", 1], ["cross", 2, 3]):
        place: Any = where if isinstance(where, str) else tuple(where)
        expected = alone.patch(TEXT, OTHER, place, **SEARCH).to_json()
        assert_close(studio.view(recorded, "patch", other=OTHER, where=where), expected)


def test_a_pruned_branch_continues_as_in_the_api(studio: Served, alone: Translator, recorded: dict[str, Any]) -> None:
    tree = alone.beam_tree(TEXT, **SEARCH)
    branch = list(tree.tokens(tree.pruned()[0].id))
    found = studio.view(recorded, "continue", tokens=branch, n_best=3)
    expected = alone.continue_from(TEXT, branch, **{**SEARCH, "n_best": 3})
    assert_close(found["hypotheses"], [one.to_json() for one in expected])
    forced = found["pass"]
    assert forced["produced_tokens"][: len(branch)] == branch and forced["forced"] == len(branch)
    assert forced["output"] == expected[0].text
    lens = alone.logit_lens(TEXT, top=2, prefix=branch, **SEARCH).to_json()
    assert_close(studio.view(forced, "lens", top=2), lens)
    again = studio.record(TEXT, search=SEARCH, prefix_tokens=branch)
    assert_close(again["steps"], forced["steps"])


def test_embeddings_are_what_the_encoder_reads(studio: Served, alone: Translator, recorded: dict[str, Any]) -> None:
    found = studio.view(recorded, "embeddings")
    model: Any = alone.model
    tokens = torch.tensor(recorded["source_tokens"])
    vectors = model.source_embedding(tokens).detach().numpy()
    positions = model.source_positions.first(len(tokens)).numpy()

    def array(given: dict[str, Any]) -> Any:
        return np.frombuffer(base64.b64decode(given["float32"]), "<f4").reshape(given["shape"])

    np.testing.assert_allclose(array(found["source"]["vectors"]), vectors, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(array(found["positions"]), positions, atol=1e-5)
    np.testing.assert_allclose(array(found["similarity"]), positions @ positions.T, rtol=1e-5)


def test_the_head_summary_is_that_of_the_api(studio: Served, alone: Translator) -> None:
    found = studio.post("head-summary", {"model": 0, "texts": [TEXT, OTHER]})
    assert_close(found, alone.head_summary([TEXT, OTHER]).to_json())
    assert "give some texts" in studio.post("head-summary", {"model": 0}, status=422)["error"]["message"]


def test_constraints_reach_the_search_and_all_views(studio: Served, alone: Translator) -> None:
    word = alone.translate([TEXT], **SEARCH)[0].split()[0]
    forbidden = studio.record(TEXT, search=SEARCH, forbid=[word])
    assert word not in forbidden["output"].split()
    forced = studio.record(TEXT, search=SEARCH, force=["fox"])
    assert "fox" in forced["output"].split() and forced["missing"] == []
    expected = alone.beam_tree(TEXT, constraints=Constraints(require=["fox"]), **SEARCH)
    assert_close(studio.view(forced, "beam-tree"), expected.to_json())
    begun = studio.record(TEXT, search=SEARCH, prefix="ten tree,")
    assert begun["output"].startswith("ten tree,") and begun["forced"] == 2


def test_a_sample_is_repeated_by_its_seed(studio: Served) -> None:
    recorded = studio.record(TEXT, search={"method": "sample", "max_length": 7})
    found = studio.view(recorded, "intervention", words=[0])
    assert found["original"]["tokens"] == recorded["produced_tokens"]
    seeded = {"method": "sample", "max_length": 7, "seed": recorded["seed"]}
    assert studio.record(TEXT, search=seeded)["output"] == recorded["output"]


def test_a_text_of_several_lines_is_streamed_sentence_by_sentence(studio: Served, alone: Translator) -> None:
    text = f"  {TEXT}\n\n\t{OTHER}  \n"
    answer = studio.client.post("/studio/api/translate", json={"model": 0, "text": text, "search": SEARCH})
    assert answer.headers["content-type"].startswith("text/event-stream")
    first, *rest = events(answer.text)
    assert first["event"] == "segments"
    joined = first["before"] + "".join(one["text"] + one["after"] for one in first["segments"])
    assert joined == text
    passes = [event["pass"] for event in rest if event["event"] == "pass"]
    assert [one["source"] for one in passes] == [TEXT, OTHER]
    assert [one["output"] for one in passes] == alone.translate([TEXT, OTHER], **SEARCH)
    for number, one in enumerate(passes):
        pieces = [event["text"] for event in rest if event["event"] == "piece" and event["segment"] == number]
        assert "".join(pieces) == one["output"]
        assert_close(studio.record(one["source"], search=SEARCH)["steps"], one["steps"])
    assert rest[-1]["event"] == "done"
    assert rest[-1]["text"].split() == [word for one in passes for word in one["output"].split()]


def test_an_error_of_a_stream_is_an_error_of_the_request(studio: Served) -> None:
    body = {"model": 0, "text": f"{TEXT}\n{OTHER}", "force": ["fox"]}
    answer = studio.client.post("/studio/api/translate", json=body)
    assert answer.status_code == 422 and "one sentence" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("view", "parameters", "message"),
    [
        ("neuron", {"kind": "cross", "layer": 9, "head": 1}, "no layer 9"),
        ("neuron", {"kind": "causal", "layer": 1, "head": 1}, "causal"),
        ("neuron", {"kind": "cross", "layer": 1, "head": 1, "row": 500}, "no row 500"),
        ("attribution", {"position": 900}, "no position 900"),
        ("attribution", {"instead_of": 9_999_999}, "no token 9999999"),
        ("beam-tree", {"prefix_tokens": [9_999_999]}, "9999999"),
        ("continue", {"tokens": [2]}, "end token"),
        ("intervention", {}, "nothing to switch off"),
        ("intervention", {"words": [77]}, "no word 77"),
        ("patch", {"other": "one", "words": [4]}, "no word 4"),
    ],
)
def test_what_a_model_has_not_is_explained(
    studio: Served, recorded: dict[str, Any], view: str, parameters: dict[str, Any], message: str
) -> None:
    found = studio.post(f"passes/{recorded['id']}/{view}", parameters, status=422)
    assert message in found["error"]["message"]


def test_hostile_texts_are_shown_or_rejected(studio: Served) -> None:
    for text in HOSTILE:
        for body in ({"text": text}, {"text": TEXT, "forbid": [text]}, {"text": TEXT, "prefix": text}):
            answer = studio.client.post("/studio/api/passes", json={"model": 0, "search": {"max_length": 5}, **body})
            assert answer.status_code in (200, 422), (body, answer.text)
        answer = studio.client.post(
            "/studio/api/translate", json={"model": 0, "text": text, "search": {"beam_size": 1}}
        )
        assert answer.status_code in (200, 422)
        if answer.status_code == 200:
            first, *_, last = events(answer.text)
            joined = first["before"] + "".join(one["text"] + one["after"] for one in first["segments"])
            assert last["event"] == "done" and (joined == text or len(text) > 1000)  # one that is cut is decoded anew


def test_a_text_that_is_too_long_is_rejected_before_it_is_replayed(studio: Served) -> None:
    found = studio.post("passes", {"model": 0, "text": TEXT, "prefix_tokens": [5] * 1024}, status=422)
    assert "1,024" in found["error"]["message"]


def test_a_recurrent_model_shows_what_it_has() -> None:
    studio = served_translator(random_rnn())
    views = studio.get("models")["models"][0]["views"]
    assert {"attention", "beam-tree"} <= set(views) and not {"neuron", "lens", "patch"} & set(views)
    recorded = studio.record("the lazy dog", search=SEARCH)
    assert recorded["attention"]["cross"]["layers"] == recorded["attention"]["cross"]["heads"] == 1
    answer = studio.client.get(f"/studio/api/passes/{recorded['id']}/attention/cross/1")
    maps = random_rnn().attention("the lazy dog", **SEARCH).maps["cross"]
    np.testing.assert_allclose(shares(answer.content, maps.shape[1:]), maps[0], rtol=0, atol=1e-5)
    studio.close()
