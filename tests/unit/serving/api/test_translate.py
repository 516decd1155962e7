"""transduce's own API."""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.serving.fake_backend import TRANSLATOR, FakeBackend
from tests.unit.serving.front import Front
from transduce.serving.api.translate import find_translator
from transduce.serving.http import RequestError
from transduce.serving.job import EmbedJob, GenerateJob, JobError, PredictJob, TranslateJob
from transduce.serving.limits import Limits
from transduce.serving.service import Service


@pytest.fixture
def front() -> Front:
    return Front(
        limits=Limits(max_texts=4, max_characters=100, max_terms=3, max_beam_size=8, max_n_best=6, max_length=50)
    )


def post(front: Front, path: str = "/v1/translate", **body: Any) -> Any:
    response = front.client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def rejected(front: Front, path: str = "/v1/translate", status: int = 422, **body: Any) -> dict[str, Any]:
    response = front.client.post(path, json=body)
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert "\n" not in error["message"]
    return error


def test_one_text_and_several_are_translated(front: Front) -> None:
    one = post(front, text="ein Hund")
    assert one == {
        "model": "de-en",
        "translations": [{"text": "EIN HUND", "score": -0.25, "ended": True, "missing_terms": []}],
        "usage": {"input_tokens": 2, "output_tokens": 2},
    }
    several = post(front, text=["a", "b c"])
    assert [found["text"] for found in several["translations"]] == ["A", "B C"]


def test_all_parameters_reach_the_model(front: Front) -> None:
    post(
        front, text=["a"], model="de-en", source_language="DE", target_language="en-US", beam_size=5, n_best=2,
        length_penalty=1, max_length=20, no_repeat_ngram_size=3, glossary={"a": "b"}, forbid=["x"], prefix="The",
        placeholders=True, stop=["."], split=False, alignment=True, seed=None,
    )  # fmt: skip
    assert front.translator.jobs == [
        TranslateJob(
            texts=["a"],
            search={"beam_size": 5, "n_best": 2, "length_penalty": 1.0, "max_length": 20, "no_repeat_ngram_size": 3},
            terms={"a": "b"}, forbid=["x"], prefix="The", placeholders=True, stop=["."], split=False, align=True,
        )
    ]  # fmt: skip


def test_what_is_not_given_is_left_to_the_model(front: Front) -> None:
    post(front, text="a")
    assert front.translator.jobs == [TranslateJob(texts=["a"])]


def test_alternatives_and_alignment_come_where_they_are_requested(front: Front) -> None:
    (found,) = post(front, text="a b", n_best=3, alignment=True)["translations"]
    assert (found["text"], [one["text"] for one in found["alternatives"]]) == ("A B", ["A B'", "A B''"])
    assert found["alignment"] == [[0, 0], [1, 1]]


@pytest.mark.parametrize(
    "hostile", ["", " ", "\x00", "</s><pad>", ">>de<<", "\u202eabc", "<script>", "\x1b[31m", "a" * 100]
)
def test_any_text_is_only_text(front: Front, hostile: str) -> None:
    assert post(front, text=hostile)["translations"][0]["text"] == hostile.upper()


@pytest.mark.parametrize(
    ("parameter", "values"),
    [
        ("beam_size", [9, 10**6, 2**63, -1, 0, 1e308, "1", True, [1], {}]),
        ("n_best", [7, 10**6, 2**63, -1, 0, 1.5, "1", True]),
        ("max_length", [51, 10**6, 2**63, -1, 0, "1", True]),
        ("min_length", [51, 2**63, -1, "1", True]),
        ("max_extra", [51, 2**63, -1]),
        ("length_penalty", [-1, 11, 1e308, "1", True, []]),
        ("no_repeat_ngram_size", [-1, 1001, 2**63, 0.5]),
        ("repetition_penalty", [0, -1, 101]),
        ("method", ["magic", 1, None.__class__.__name__, True]),
        ("seed", [-1, 2**63, 0.5, "1", True]),
        ("temperature", [0, -1, 101, "1", True]),
        ("top_k", [-1, 2**63, 0.5]),
        ("top_p", [0, 1.01, -1]),
        ("text", [5, True, {}, [], [5], [None], ["a"] * 5, [["a"]]]),
        ("model", ["", 5, "x" * 201]),
        ("source_language", ["fr", "", 5, "x" * 201]),
        ("target_language", ["de", 5]),
        ("prefix", ["", "  ", 5, ["a"]]),
        ("glossary", [{"": "a"}, {"a": ""}, {"a": 5}, [["a", "b"]], "a", {str(n): "a" for n in range(4)}]),
        ("forbid", [[""], [5], "word", ["a"] * 4]),
        ("stop", [[""], "word", ["a"] * 4]),
        ("placeholders", [1, "true", "yes"]),
        ("split", [0, "false"]),
        ("alignment", ["true"]),
        ("stream", [1, "true"]),
        ("keep", [["(a+)+$"]]),
        ("beam_sizes", [4]),
    ],
)
def test_a_value_beyond_its_limits_is_rejected_by_name(front: Front, parameter: str, values: list[Any]) -> None:
    for value in values:
        error = rejected(front, **{"text": "a", parameter: value})
        assert error["parameter"] == parameter, value
    assert front.translator.jobs == []


def test_too_many_characters_are_too_large(front: Front) -> None:
    assert rejected(front, status=413, text="a" * 101)["parameter"] == "text"
    assert rejected(front, status=413, text=["a" * 60, "a" * 60])["parameter"] == "text"
    assert rejected(front, status=413, text="a", forbid=["a" * 101])["parameter"] == "forbid"


@pytest.mark.parametrize(
    ("body", "parameter"),
    [
        ({"method": "beam", "temperature": 0.5}, "temperature"),
        ({"method": "beam", "temperature": 1.0}, "temperature"),
        ({"method": "greedy", "seed": 3}, "seed"),
        ({"beam_size": 4, "top_k": 5}, "beam_size"),
        ({"method": "greedy", "beam_size": 4}, "beam_size"),
        ({"method": "sample", "stop_rule": "exact"}, "stop_rule"),
        ({"method": "greedy", "n_best": 2}, "n_best"),
        ({"beam_size": 2, "n_best": 3}, "n_best"),
        ({"diversity_penalty": 0.5}, "diversity_penalty"),
        ({"diversity_penalty": 0.7}, "diversity_penalty"),
        ({"beam_size": 4, "beam_groups": 3}, "beam_groups"),
        ({"min_length": 9, "max_length": 5}, "min_length"),
        ({"max_length": 9, "max_extra": 5}, "max_extra"),
        ({"method": "sample", "glossary": {"a": "b"}}, "glossary"),
        ({"stream": True, "n_best": 2}, "stream"),
        ({"stream": True, "text": ["a", "b"]}, "stream"),
    ],
)
def test_a_parameter_that_would_be_ignored_is_rejected(front: Front, body: dict[str, Any], parameter: str) -> None:
    assert rejected(front, **{"text": "a", **body})["parameter"] == parameter
    assert front.translator.jobs == []


def test_sampling_options_choose_sampling(front: Front) -> None:
    post(front, text="a", temperature=0.5, seed=1, n_best=6)
    assert front.translator.jobs[0].search == {"temperature": 0.5, "seed": 1, "n_best": 6}
    post(front, text="a", beam_groups=3, diversity_penalty=0.7)


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in text.split("\n\n") if line]


def test_a_stream_has_pieces_and_then_the_whole_answer(front: Front) -> None:
    response = front.client.post("/v1/translate", json={"text": "ein ü\u2028Hund", "stream": True})
    *pieces, last = events(response.text)
    assert "".join(piece["text"] for piece in pieces) == "EIN Ü\u2028HUND"
    assert last.pop("done") is True
    assert last == post(front, text="ein ü\u2028Hund")


def test_an_error_in_mid_stream_is_an_event(front: Front) -> None:
    front.translator.error = JobError("deadline", "it took too long")
    front.translator.error_after = 1
    response = front.client.post("/v1/translate", json={"text": "a b c", "stream": True})
    assert events(response.text) == [
        {"text": "A"},
        {"error": {"status": 504, "message": "it took too long", "parameter": None}},
    ]


def test_the_model_is_chosen_by_name_or_by_its_languages() -> None:
    named = {
        name: FakeBackend(
            replace(TRANSLATOR, name=name, source_languages=sources, target_languages=targets, default_source=None)
        )
        for name, sources, targets in (
            ("unknown", (), ()),
            ("de-en", ("de",), ("en",)),
            ("many", ("deu_Latn", "fra_Latn"), ("zho_Hans", "zho_Hant", "eng_Latn")),
        )
    }
    service = Service(list(named.values()), Limits())

    def found(model: str | None, source: str | None, target: str | None) -> tuple[str, str | None, str | None]:
        backend, languages = find_translator(service, model, source, target)
        return (backend.info.name, *languages)

    assert found(None, None, None) == ("unknown", None, None)
    assert found(None, "DE", "en-GB") == ("de-en", "de", None), "English is its default"
    assert found(None, "fr", "en") == ("many", "fra_Latn", "eng_Latn")
    assert found("many", "de", "zh-Hant") == ("many", "deu_Latn", "zho_Hant")
    for model, source, parameter in (("unknown", "de", "source_language"), ("de-en", "fr", "source_language")):
        with pytest.raises(RequestError) as raised:
            found(model, source, None)
        assert raised.value.parameter == parameter


def test_a_model_that_does_not_exist_or_does_something_else_is_named(front: Front) -> None:
    for model in ("nope", "gpt"):
        assert model in rejected(front, text="a", model=model)["message"]


def test_a_language_model_continues_prompts(front: Front) -> None:
    found = post(front, "/v1/generate", prompt=["a b", "c"], temperature=0.5, max_length=7, stop=["."])
    assert [one["text"] for one in found["continuations"]] == [" and so on"] * 2
    assert found["usage"] == {"input_tokens": 3, "output_tokens": 6}
    search = {"temperature": 0.5, "max_length": 7}
    assert front.generator.jobs == [GenerateJob(prompts=["a b", "c"], search=search, stop=["."])]
    response = front.client.post("/v1/generate", json={"prompt": "a", "stream": True})
    assert "".join(event.get("text", "") for event in events(response.text)) == " and so on"


@pytest.mark.parametrize(
    ("body", "parameter"),
    [
        ({"glossary": {"a": "b"}}, "glossary"),
        ({"target_language": "de"}, "target_language"),
        ({"coverage_penalty": 0.2}, "coverage_penalty"),
        ({"max_extra": 5}, "max_extra"),
        ({"method": "greedy", "temperature": 0.5}, "temperature"),
        ({"n_best": 7}, "n_best"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", "b"], "stream": True}, "stream"),
    ],
)
def test_a_language_model_rejects_what_it_would_ignore(front: Front, body: dict[str, Any], parameter: str) -> None:
    assert rejected(front, "/v1/generate", **{"prompt": "a", **body})["parameter"] == parameter


def test_a_text_encoder_predicts_for_texts_and_pairs(front: Front) -> None:
    found = post(front, "/v1/predict", text=["a", ["b", "c"]])
    assert found["predictions"] == [{"label": "good", "probability": 0.75}] * 2
    assert front.encoder.jobs == [PredictJob(texts=["a", ["b", "c"]])]
    for text in ([["a"]], [["a", "b", "c"]], [[]], ["a"] * 5, [], 5):
        assert rejected(front, "/v1/predict", text=text)["parameter"] == "text"
    assert rejected(front, "/v1/predict", status=413, text=[["a" * 60, "b" * 60]])["parameter"] == "text"
    assert rejected(front, "/v1/predict", text="a", beam_size=4)["parameter"] == "beam_size"


def test_vectors_are_numbers_or_base64(front: Front) -> None:
    found = post(front, "/v1/embed", text="a", pool="first", normalize=True)
    assert (found["embeddings"], found["dimensions"]) == ([[1.0, 2.0, 3.0]], 3)
    assert front.encoder.jobs == [EmbedJob(texts=["a"], pool="first", normalize=True)]
    (packed,) = post(front, "/v1/embed", text="a", encoding="base64")["embeddings"]
    assert struct.unpack("<3f", base64.b64decode(packed)) == (1.0, 2.0, 3.0)
