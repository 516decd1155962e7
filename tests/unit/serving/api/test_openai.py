from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest

from tests.unit.serving.api.hostile import HOSTILE
from tests.unit.serving.api.live import KEY, TRANSLATOR, Live, live, until
from tests.unit.serving.fake_backend import FakeBackend
from transduce.serving.api.openai import _best
from transduce.serving.api.openai_request import (
    UNSUPPORTED_CHAT,
    UNSUPPORTED_COMPLETION,
    ChatRequest,
    CompletionRequest,
)
from transduce.serving.job import Job, JobError, Result
from transduce.serving.limits import Limits

COMPLETION = {"model": "gpt", "prompt": "once upon a time"}
CHAT = {"model": "de-en", "messages": [{"role": "user", "content": "ein Hund"}]}
EMBEDDING = {"model": "bert", "input": "ein Hund"}


def complete(server: Live, **parameters: Any) -> Any:
    return server.post("/v1/completions", json={**COMPLETION, **parameters})


def chat(server: Live, **parameters: Any) -> Any:
    return server.post("/v1/chat/completions", json={**CHAT, **parameters})


def embed(server: Live, **parameters: Any) -> Any:
    return server.post("/v1/embeddings", json={**EMBEDDING, **parameters})


def events(response: Any) -> list[Any]:
    """The data of a stream; checks that nothing else is in it."""
    assert response.headers["content-type"].startswith("text/event-stream")
    blocks = response.content.decode().split("\n\n")
    assert blocks.pop() == ""
    assert all(block.startswith("data: ") for block in blocks)
    return [block if block == "data: [DONE]" else json.loads(block[6:]) for block in blocks]


def error_of(response: Any) -> tuple[int, str | None]:
    """The status and the parameter of an error, whose form is checked."""
    assert response.json().keys() == {"error"}
    assert response.json()["error"].keys() == {"message", "type", "param", "code"}
    return response.status_code, response.json()["error"]["param"]


def test_models_are_listed_and_described(server: Live) -> None:
    listed = server.get("/v1/models").json()
    assert [model["id"] for model in listed["data"]] == ["de-en", "nllb", "gpt", "bert"]
    assert server.get("/v1/models/gpt").json() == listed["data"][2]
    assert listed["data"][2].keys() == {"id", "object", "created", "owned_by"}
    missing = server.get("/v1/models/../etc/passwd%00")
    assert missing.status_code in (400, 404)
    assert server.get("/v1/models/none").json()["error"]["code"] == "model_not_found"


def test_a_completion_has_text_reason_and_usage(server: Live) -> None:
    answer = complete(server).json()
    choice = {"index": 0, "text": " and so on", "logprobs": None, "finish_reason": "stop"}
    assert (answer["object"], answer["model"], answer["choices"]) == ("text_completion", "gpt", [choice])
    assert answer["usage"] == {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7}
    assert server.job("gpt").search == {}


def test_a_text_that_was_cut_has_the_reason_length(server: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(job: Job) -> Result:
        found = FakeBackend(backend.info)._result(job)
        one = (found.get("translations") or found["continuations"])[0][0]
        one["ended"] = False
        return found

    for call, model in ((complete, "gpt"), (chat, "de-en")):
        backend = server.backends[model]
        monkeypatch.setattr(backend, "_result", cut)
        assert call(server).json()["choices"][0]["finish_reason"] == "length"
        assert events(call(server, stream=True))[-2]["choices"][0]["finish_reason"] == "length"


def test_completions_of_several_prompts_are_numbered_in_order(server: Live) -> None:
    answer = complete(server, prompt=["a", "b"], n=2, echo=True).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert [choice["text"][0] for choice in answer["choices"]] == ["a", "a", "b", "b"]


@pytest.mark.parametrize(
    ("parameters", "search"),
    [
        ({"max_tokens": 7}, {"max_length": 7}),
        ({"temperature": 0}, {"method": "greedy"}),
        ({"temperature": 0, "top_p": 0.5, "seed": 3}, {"method": "greedy"}),
        ({"top_p": 0}, {"method": "greedy"}),
        ({"temperature": 0.5}, {"method": "sample", "temperature": 0.5}),
        ({"temperature": 1, "top_p": 1}, {"method": "sample", "temperature": 1.0}),
        ({"top_p": 0.9, "seed": 3}, {"method": "sample", "top_p": 0.9, "seed": 3}),
        ({"n": 3}, {"method": "sample", "n_best": 3}),
        ({"best_of": 4, "n": 2}, {"method": "sample", "n_best": 4}),
        ({"presence_penalty": 0.5, "frequency_penalty": -1}, {"presence_penalty": 0.5, "frequency_penalty": -1.0}),
        ({"presence_penalty": 0, "frequency_penalty": None, "n": None, "stop": None, "stream": None}, {}),
    ],
)
def test_parameters_become_search_options(server: Live, parameters: dict[str, Any], search: dict[str, Any]) -> None:
    assert complete(server, **parameters).status_code == 200
    assert server.job("gpt").search == search


@pytest.mark.parametrize(
    ("parameters", "search"),
    [
        ({}, {}),
        ({"temperature": 0}, {"method": "beam"}),
        ({"temperature": 0, "n": 2}, {"method": "beam", "n_best": 2}),
        ({"n": 3, "seed": 1}, {"n_best": 3}),
        ({"temperature": 0.7, "seed": 1}, {"method": "sample", "temperature": 0.7, "seed": 1}),
        ({"max_tokens": 5}, {"max_length": 5}),
        ({"max_completion_tokens": 5, "max_tokens": 5}, {"max_length": 5}),
    ],
)
def test_a_translation_is_searched_unless_a_temperature_is_given(
    server: Live, parameters: dict[str, Any], search: dict[str, Any]
) -> None:
    assert chat(server, **parameters).status_code == 200
    assert server.job("de-en").search == search


def test_stop_is_a_text_or_a_list(server: Live) -> None:
    for stop, meant in (("\n", ["\n"]), (["a", "b"], ["a", "b"])):
        complete(server, stop=stop)
        assert server.job("gpt").stop == meant
        chat(server, stop=stop)
        assert server.job("de-en").stop == meant


def test_best_of_returns_the_highest_log_probability_per_token() -> None:
    short, long, bad = ({"log_probability": p, "tokens": n} for p, n in ((-2.0, 2), (-3.0, 6), (-9.0, 3)))
    assert _best([bad, short, long], 2, best_of=3) == [long, short]
    assert _best([bad, short], 1, best_of=None) == [bad]


def test_a_chat_translates_the_last_message(server: Live) -> None:
    answer = chat(server).json()
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "EIN HUND", "refusal": None}
    assert answer["usage"] == {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4}
    earlier = [{"role": "user", "content": "ein"}, {"role": "assistant", "content": "EIN", "refusal": None}]
    parts = {"role": "user", "content": [{"type": "text", "text": "zwei "}, {"type": "text", "text": "Hunde"}]}
    assert chat(server, messages=[*earlier, parts]).json()["choices"][0]["message"]["content"] == "ZWEI HUNDE"
    assert server.job("de-en").texts == ["zwei Hunde"]


def test_n_of_a_translation_is_its_n_best_list(server: Live) -> None:
    choices = chat(server, n=2).json()["choices"]
    assert [(one["index"], one["message"]["content"]) for one in choices] == [(0, "EIN HUND"), (1, "EIN HUND'")]


def test_a_chat_with_a_language_model_continues_one_message(server: Live) -> None:
    assert chat(server, model="gpt").json()["choices"][0]["message"]["content"] == " and so on"
    assert server.job("gpt").prompts == ["ein Hund"]
    assert error_of(chat(server, model="gpt", messages=CHAT["messages"] * 2)) == (400, "messages")


def test_a_chat_states_languages_where_the_model_has_several(server: Live) -> None:
    chat(server, model="nllb", source_language="es", target_language="zh-TW")
    assert (server.job("nllb").source_language, server.job("nllb").target_language) == ("spa_Latn", "zho_Hant")
    assert error_of(chat(server, target_language="fr")) == (400, "target_language")
    assert error_of(chat(server, model="gpt", target_language="fr")) == (400, "target_language")


@pytest.mark.parametrize(
    "messages",
    [
        [],
        "ein",
        [{"role": "system", "content": "be brief"}, {"role": "user", "content": "ein"}],
        [{"role": "developer", "content": "be brief"}, {"role": "user", "content": "ein"}],
        [{"role": "user", "content": "ein"}, {"role": "assistant", "content": "one"}],
        [{"role": "user"}],
        [{"role": "user", "content": 1}],
        [{"role": "wizard", "content": "ein"}],
        [{"role": "user", "content": "ein", "tool_calls": []}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}],
    ],
)
def test_messages_that_would_have_no_effect_are_rejected(server: Live, messages: Any) -> None:
    assert error_of(chat(server, messages=messages)) == (400, "messages")
    assert not server.jobs()


def test_vectors_come_as_numbers_or_base64(server: Live) -> None:
    numbers = embed(server, input=["a", "b"]).json()
    assert [one["embedding"] for one in numbers["data"]] == [[1.0, 2.0, 3.0]] * 2
    assert [one["index"] for one in numbers["data"]] == [0, 1]
    assert numbers["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
    encoded = embed(server, encoding_format="base64", dimensions=3, user="me").json()["data"][0]["embedding"]
    assert struct.unpack("<3f", base64.b64decode(encoded)) == (1.0, 2.0, 3.0)
    assert (server.job("bert").normalize, server.job("bert").pool) == (True, "mean")


def test_a_stream_of_a_completion_ends_with_its_reason_and_done(server: Live) -> None:
    found = events(complete(server, stream=True, echo=True))
    assert found[-1] == "data: [DONE]"
    chunks = found[:-1]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "once upon a time and so on"
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert all("usage" not in chunk for chunk in chunks)


def test_a_stream_of_a_chat_begins_with_the_role_and_ends_with_usage(server: Live) -> None:
    found = events(chat(server, stream=True, stream_options={"include_usage": True}))
    *chunks, last, done = found
    assert done == "data: [DONE]"
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "EIN HUND"
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert all(chunk["usage"] is None for chunk in chunks)
    assert (last["choices"], last["usage"]["total_tokens"]) == ([], 4)


def test_an_error_before_a_stream_has_its_status(server: Live) -> None:
    server.backends["gpt"].error = JobError("busy", "the queue is full", retry_after=2)
    response = complete(server, stream=True)
    assert (error_of(response), response.headers["retry-after"]) == ((429, None), "2")
    assert response.json()["error"]["code"] == "rate_limit_exceeded"


def test_an_error_within_a_stream_is_an_event_and_the_last(server: Live) -> None:
    server.backends["gpt"].error, server.backends["gpt"].error_after = JobError("failed", "the engine stopped"), 2
    *chunks, last = events(complete(server, stream=True))
    assert chunks and all("choices" in chunk for chunk in chunks)
    assert last["error"] == {"message": "the engine stopped", "type": "server_error", "param": None, "code": None}


def test_a_client_that_leaves_a_stream_cancels_its_job(server: Live) -> None:
    backend = server.backends["gpt"]
    backend.delay = 0.2
    try:
        response = server.post("/v1/completions", json={**COMPLETION, "stream": True}, stream=True)
        next(response.iter_lines())
        response.close()
        until(lambda: backend.running == 0)
        assert backend.cancelled == 1
    finally:
        backend.delay = 0.0


REJECTED_COMPLETION = {"logit_bias": {"50256": -100}, "metadata": {"a": "b"}, "logprobs": 0, "suffix": "end"}
REJECTED_CHAT = {
    "logit_bias": {"5": 1},
    "metadata": {"a": "b"},
    "audio": {"voice": "x", "format": "mp3"},
    "function_call": "auto",
    "functions": [{"name": "f"}],
    "logprobs": True,
    "modalities": ["text", "audio"],
    "moderation": {"model": "m"},
    "parallel_tool_calls": True,
    "prediction": {"type": "content", "content": "x"},
    "prompt_cache_key": "k",
    "prompt_cache_options": {"mode": "implicit"},
    "prompt_cache_retention": "24h",
    "reasoning_effort": "low",
    "response_format": {"type": "json_object"},
    "service_tier": "flex",
    "store": True,
    "tool_choice": "required",
    "tools": [{"type": "function"}],
    "top_logprobs": 2,
    "verbosity": "low",
    "web_search_options": {},
}


def test_every_unsupported_parameter_is_rejected_by_name_but_for_its_default(server: Live) -> None:
    for call, rejected, unsupported, config in (
        (complete, REJECTED_COMPLETION, UNSUPPORTED_COMPLETION, CompletionRequest),
        (chat, REJECTED_CHAT, UNSUPPORTED_CHAT, ChatRequest),
    ):
        server.forget()
        assert rejected.keys() == unsupported.keys()
        assert not unsupported.keys() & config.model_fields.keys()
        for name, value in rejected.items():
            assert error_of(call(server, **{name: value})) == (400, name)
        assert not server.jobs()
        for name, accepted in unsupported.items():
            for value in accepted:
                assert call(server, **{name: value}).status_code == 200, (name, value)


def test_all_parameters_of_the_client_are_known() -> None:
    from openai.types.chat.completion_create_params import CompletionCreateParamsBase as ChatParams
    from openai.types.completion_create_params import CompletionCreateParamsBase as CompletionParams

    for params, config, unsupported in (
        (CompletionParams, CompletionRequest, UNSUPPORTED_COMPLETION),
        (ChatParams, ChatRequest, UNSUPPORTED_CHAT),
    ):
        names = params.__required_keys__ | params.__optional_keys__
        assert names <= config.model_fields.keys() | unsupported.keys()


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"prompt": [1, 2]}, "prompt"),
        ({"prompt": [[1, 2]]}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["x"] * 129}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1025}, "max_tokens"),
        ({"max_tokens": 2**63}, "max_tokens"),
        ({"max_tokens": "1"}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"n": 17}, "n"),
        ({"n": 10**6}, "n"),
        ({"n": 2, "temperature": 0}, "n"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"best_of": 17}, "best_of"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "0"}, "temperature"),
        ({"top_p": 1.1}, "top_p"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"frequency_penalty": -3}, "frequency_penalty"),
        ({"stop": [""]}, "stop"),
        ({"stop": list("abcde")}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"stream": True, "n": 2}, "stream"),
        ({"stream": True, "best_of": 2}, "stream"),
        ({"stream": True, "prompt": ["a", "b"]}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"include_obfuscation": True}}, "stream_options"),
        ({"user": "x" * 513}, "user"),
        ({"echo": 1}, "echo"),
        ({"top_k": 5}, "top_k"),
        ({"model": "bert"}, "model"),
        ({"model": None}, "model"),
    ],
)
def test_invalid_parameters_are_rejected_by_name(server: Live, parameters: dict[str, Any], name: str) -> None:
    assert error_of(complete(server, **parameters)) == (400, name)
    assert not server.jobs()


def test_parameters_of_other_routes_are_rejected_by_name(server: Live) -> None:
    assert error_of(chat(server, max_tokens=1, max_completion_tokens=2)) == (400, "max_tokens")
    assert error_of(chat(server, best_of=2)) == (400, "best_of")
    assert error_of(chat(server, model="bert")) == (400, "model")
    assert error_of(embed(server, input=[[1, 2]])) == (400, "input")
    assert error_of(embed(server, encoding_format="int8")) == (400, "encoding_format")
    assert error_of(embed(server, model="gpt")) == (400, "model")
    assert not server.jobs()
    assert error_of(embed(server, dimensions=2)) == (400, "dimensions")


def test_an_unknown_model_is_not_found(server: Live) -> None:
    for call in (complete, chat, embed):
        response = call(server, model="gpt-4")
        assert error_of(response) == (404, "model")
        assert response.json()["error"]["code"] == "model_not_found"


def test_hostile_texts_are_plain_text(server: Live) -> None:
    for text in HOSTILE:
        assert complete(server, prompt=text).status_code == 200
        assert server.job("gpt").prompts == [text]
        message = [{"role": "user", "content": text}]
        assert chat(server, messages=message).json()["choices"][0]["message"]["content"] == text.upper()
        assert chat(server, messages=message, stream=True).status_code == 200
        assert embed(server, input=text).status_code == 200
    headers = {"content-type": "application/json"}
    for path in ("/v1/completions", "/v1/chat/completions", "/v1/embeddings"):
        response = server.post(path, data=b'{"model": "gpt", "prompt": "\\ud800"}', headers=headers)
        assert error_of(response)[0] == 400
        assert error_of(server.post(path, data={"model": "gpt"}))[0] == 415


def test_line_breaks_in_a_stream_are_kept(server: Live) -> None:
    text = "a\nb\r\n\u2028c"
    chunks = events(chat(server, messages=[{"role": "user", "content": text}], stream=True))[:-1]
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == text.upper()


def test_the_key_is_required_in_openais_form(keyed: Live) -> None:
    for call in (complete, chat, embed):
        response = call(keyed)
        assert error_of(response) == (401, None)
        assert response.json()["error"]["code"] == "invalid_api_key"
    assert keyed.get("/v1/models").status_code == 401
    assert keyed.get("/v1/models", headers={"authorization": f"Bearer {KEY}"}).status_code == 200
    assert not keyed.jobs()


def test_too_much_text_is_413() -> None:
    with live(TRANSLATOR, limits=Limits(max_characters=10)) as server:
        assert error_of(chat(server, messages=[{"role": "user", "content": "x" * 11}])) == (413, "messages")
