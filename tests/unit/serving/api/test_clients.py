"""The clients that people have already, as they are published, against a running server."""

from __future__ import annotations

import json
import subprocess
import urllib.error
from collections.abc import Iterator
from typing import Any

import deepl
import jsonschema
import openai
import pytest
from deep_translator import DeeplTranslator, LibreTranslator
from deep_translator.constants import BASE_URLS
from deep_translator.exceptions import AuthorizationException, ServerException
from libretranslatepy import LibreTranslateAPI

from tests.unit.serving.api.live import KEY, Live
from transduce.serving.job import Job, JobError, Result

MESSAGES: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "ein Hund"}]


@pytest.fixture
def client(keyed: Live) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{keyed.url}/v1", api_key=KEY, max_retries=0) as found:
        yield found


@pytest.fixture
def translator(keyed: Live, monkeypatch: pytest.MonkeyPatch) -> Iterator[deepl.DeepLClient]:
    monkeypatch.setattr(deepl.http_client, "max_network_retries", 1)
    found = deepl.DeepLClient(KEY, server_url=keyed.url, send_platform_info=False)
    yield found
    found.close()


def busy_once(live: Live, model: str) -> list[Job]:
    """Let a model reject its first job; returns the jobs that it was given."""
    backend = live.backends[model]
    answered = type(backend).run

    async def run(job: Job, client: str, timeout: float) -> Result:
        if len(backend.jobs) == 0:
            backend.jobs.append(job)
            raise JobError("busy", "the queue is full", retry_after=1)
        return await answered(backend, job, client, timeout)

    backend.run = run  # type: ignore[method-assign]
    return backend.jobs


@pytest.fixture
def busy(keyed: Live) -> Iterator[Live]:
    for model in ("de-en", "gpt"):
        busy_once(keyed, model)
    yield keyed
    for model in ("de-en", "gpt"):
        del keyed.backends[model].run


# --- openai


def test_openai_lists_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["de-en", "nllb", "gpt", "bert"]
    assert client.models.retrieve("gpt").owned_by == "transduce"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("none")
    assert caught.value.code == "model_not_found"


def test_openai_completes(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="gpt", prompt="once", max_tokens=5, n=2, temperature=0.5, stop=["\n"])
    assert [choice.text for choice in answer.choices] == [" and so on"] * 2
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None and answer.usage.total_tokens == 7


def test_openai_streams_a_completion(client: openai.OpenAI) -> None:
    options: openai.types.chat.ChatCompletionStreamOptionsParam = {"include_usage": True}
    with client.completions.create(model="gpt", prompt="once", stream=True, stream_options=options) as stream:
        chunks = list(stream)
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == " and so on"
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 3


def test_openai_chats(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="de-en", messages=MESSAGES, temperature=0, user="me")
    assert answer.choices[0].message.content == "EIN HUND"
    assert answer.choices[0].message.role == "assistant"
    several = client.chat.completions.create(
        model="nllb", messages=MESSAGES, n=2, extra_body={"target_language": "fr", "source_language": "es"}
    )
    assert [choice.message.content for choice in several.choices] == ["EIN HUND", "EIN HUND'"]


def test_openai_continues_a_chat_with_its_own_answer(client: openai.OpenAI) -> None:
    first = client.chat.completions.create(model="de-en", messages=MESSAGES).choices[0].message
    history = [*MESSAGES, first.model_dump(exclude_unset=True), {"role": "user", "content": "zwei"}]
    answer = client.chat.completions.create(model="de-en", messages=history)  # type: ignore[arg-type]
    assert answer.choices[0].message.content == "ZWEI"


def test_openai_streams_a_chat(client: openai.OpenAI) -> None:
    with client.chat.completions.create(model="de-en", messages=MESSAGES, stream=True) as stream:
        chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "EIN HUND"
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_openai_helper_of_streams_collects_the_answer(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model="de-en", messages=MESSAGES) as stream:
        stream.until_done()
        assert stream.get_final_completion().choices[0].message.content == "EIN HUND"


def test_openai_reads_vectors_in_both_formats(client: openai.OpenAI) -> None:
    as_default = client.embeddings.create(model="bert", input=["a", "b"])  # base64 on the wire
    as_numbers = client.embeddings.create(model="bert", input="a", encoding_format="float")
    assert [one.embedding for one in as_default.data] == [[1.0, 2.0, 3.0]] * 2
    assert as_numbers.data[0].embedding == [1.0, 2.0, 3.0]
    assert as_numbers.usage.prompt_tokens == 7


def test_openai_raises_the_exception_of_each_error(client: openai.OpenAI, keyed: Live) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="gpt", prompt="once", logit_bias={"5": 1})
    assert caught.value.param == "logit_bias"
    with pytest.raises(openai.BadRequestError, match="instructions"):
        client.chat.completions.create(model="de-en", messages=[{"role": "system", "content": "x"}, *MESSAGES])
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="none", input="a")
    for error, expected in (
        (JobError("busy", "the queue is full"), openai.RateLimitError),
        (JobError("unavailable", "the engine is starting"), openai.InternalServerError),
        (JobError("invalid", "the prompt is too long"), openai.BadRequestError),
    ):
        keyed.backends["gpt"].error = error
        with pytest.raises(expected, match=str(error)):
            client.completions.create(model="gpt", prompt="once")
    with (
        openai.OpenAI(base_url=f"{keyed.url}/v1", api_key="wrong") as stranger,
        pytest.raises(openai.AuthenticationError) as refused,
    ):
        stranger.models.list()
    assert refused.value.code == "invalid_api_key"


def test_openai_raises_an_error_in_the_middle_of_a_stream(client: openai.OpenAI, keyed: Live) -> None:
    keyed.backends["gpt"].error, keyed.backends["gpt"].error_after = JobError("failed", "the engine stopped"), 2
    pieces = []
    with (
        client.completions.create(model="gpt", prompt="once", stream=True) as stream,
        pytest.raises(openai.APIError, match="the engine stopped"),
    ):
        pieces.extend(chunk.choices[0].text for chunk in stream)
    assert "".join(pieces).strip() in " and so on"
    assert pieces


def test_openai_tries_again_after_retry_after_and_succeeds(busy: Live) -> None:
    with openai.OpenAI(base_url=f"{busy.url}/v1", api_key=KEY, max_retries=1) as patient:
        answer = patient.completions.create(model="gpt", prompt="once")
    assert answer.choices[0].text == " and so on"
    assert len(busy.backends["gpt"].jobs) == 2


# --- libretranslatepy


def test_libretranslatepy_translates_detects_and_lists(keyed: Live) -> None:
    api = LibreTranslateAPI(keyed.url, KEY)
    assert api.translate("ein Hund & mehr", "de", "en") == "EIN HUND & MEHR"
    assert api.translate("Buenos días a todos", "auto", "pt") == "BUENOS DÍAS A TODOS"
    assert api.detect("Buenos días a todos mis amigos")[0]["language"] == "es"
    assert {"code": "de", "name": "German", "targets": ["en"]} in api.languages()


def test_libretranslatepy_sees_errors_as_http_errors(keyed: Live) -> None:
    for api, languages, status in (
        (LibreTranslateAPI(keyed.url, "wrong"), ("de", "en"), 403),
        (LibreTranslateAPI(keyed.url), ("de", "en"), 403),
        (LibreTranslateAPI(keyed.url, KEY), ("de", "xx"), 400),
    ):
        with pytest.raises(urllib.error.HTTPError) as caught:
            api.translate("ein", *languages)
        with caught.value as response:
            assert (response.code, list(json.load(response))) == (status, ["error"])


# --- deepl


def test_deepl_translates_one_text_and_a_list(translator: deepl.DeepLClient) -> None:
    one = translator.translate_text("ein Hund", target_lang="EN-US")
    assert isinstance(one, deepl.TextResult)
    assert (one.text, one.detected_source_lang, one.billed_characters) == ("EIN HUND", "DE", 8)
    several = translator.translate_text(
        ["ein", "zwei"],
        source_lang="DE",
        target_lang="EN-GB",
        split_sentences=deepl.SplitSentences.OFF,
        preserve_formatting=True,
        formality=deepl.Formality.PREFER_LESS,
    )
    assert [str(text) for text in several] == ["EIN", "ZWEI"]  # type: ignore[union-attr]


def test_deepl_lists_languages_and_usage(translator: deepl.DeepLClient) -> None:
    assert [language.code for language in translator.get_source_languages()] == ["DE", "FR", "EN", "ES"]
    targets = {language.code: language for language in translator.get_target_languages()}
    assert {"EN-US", "EN-GB", "PT-BR", "ZH"} <= targets.keys()
    assert targets["EN-US"].supports_formality is False
    before = translator.get_usage()
    translator.translate_text("drei", target_lang="EN-US")
    after = translator.get_usage()
    assert before.character.count is not None and after.character.count == before.character.count + 4
    assert after.character.valid and not after.any_limit_reached


def test_deepl_raises_the_exception_of_each_error(translator: deepl.DeepLClient, keyed: Live) -> None:
    with pytest.raises(deepl.DeepLException, match="target_lang 'XX' is not supported") as caught:
        translator.translate_text("ein", target_lang="XX")
    assert caught.value.http_status_code == 400
    with pytest.raises(deepl.DeepLException, match="formality"):
        translator.translate_text("ein", target_lang="EN-US", formality="more")
    with pytest.raises(deepl.DeepLException, match="tag_handling"):
        translator.translate_text("<p>ein</p>", target_lang="EN-US", tag_handling="html")
    with pytest.raises(deepl.DeepLException):
        translator.get_glossary_languages()
    stranger = deepl.DeepLClient("wrong", server_url=keyed.url)
    with pytest.raises(deepl.AuthorizationException, match="key"):
        stranger.translate_text("ein", target_lang="EN-US")
    stranger.close()
    keyed.backends["de-en"].error = JobError("busy", "the queue is full", retry_after=1)
    with pytest.raises(deepl.TooManyRequestsException, match="the queue is full"):
        translator.translate_text("ein", target_lang="EN-US")


def test_deepl_tries_again_and_succeeds(busy: Live, translator: deepl.DeepLClient) -> None:
    assert str(translator.translate_text("ein", target_lang="EN-US")) == "EIN"
    assert len(busy.backends["de-en"].jobs) == 2


# --- deep-translator


def test_deep_translator_speaks_libretranslate(keyed: Live) -> None:
    found = LibreTranslator(source="de", target="en", api_key=KEY, custom_url=f"{keyed.url}/")
    assert found.translate("ein Hund") == "EIN HUND"
    assert found.translate_batch(["ein", "zwei"]) == ["EIN", "ZWEI"]
    by_name = LibreTranslator(source="auto", target="Portuguese", api_key=KEY, custom_url=f"{keyed.url}/")
    assert by_name.translate("Buenos días") == "BUENOS DÍAS"
    with pytest.raises(AuthorizationException):
        LibreTranslator(source="de", target="en", api_key="wrong", custom_url=f"{keyed.url}/").translate("ein")
    with pytest.raises(ServerException):
        LibreTranslator(source="de", target="fr", api_key=KEY, custom_url=f"{keyed.url}/").translate("ein")


def test_deep_translator_speaks_deepl(keyed: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BASE_URLS, "DEEPL_FREE", f"{keyed.url}/{{version}}/")  # it has no parameter for the address
    assert DeeplTranslator(source="de", target="en", api_key=KEY).translate("ein Hund") == "EIN HUND"
    with pytest.raises(AuthorizationException):
        DeeplTranslator(source="de", target="en", api_key="wrong").translate("ein Hund")


# --- curl


def curl(*arguments: str) -> tuple[int, str]:
    """The status and the body of a request."""
    done = subprocess.run(
        ["curl", "--silent", "--max-time", "10", "--write-out", "\n%{http_code}", *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    body, _, status = done.stdout.rpartition("\n")
    return int(status), body


def test_curl_calls_every_api(server: Live) -> None:
    form = ("-d", "q=ein Hund", "-d", "source=de", "-d", "target=en")
    assert curl(f"{server.url}/translate", *form) == (200, '{"translatedText":"EIN HUND"}')
    status, body = curl(f"{server.url}/v2/translate", "-d", "text=ein", "-d", "text=zwei", "-d", "target_lang=EN")
    assert (status, [one["text"] for one in json.loads(body)["translations"]]) == (200, ["EIN", "ZWEI"])
    asked = json.dumps({"model": "de-en", "messages": MESSAGES})
    status, body = curl(f"{server.url}/v1/chat/completions", "--json", asked)
    assert (status, json.loads(body)["choices"][0]["message"]["content"]) == (200, "EIN HUND")
    assert curl(f"{server.url}/v1/chat/completions", "-d", asked)[0] == 415  # curl's default is a form


def test_curl_sees_a_stream_piece_by_piece(server: Live) -> None:
    asked = json.dumps({"model": "de-en", "messages": MESSAGES, "stream": True})
    status, body = curl("--no-buffer", f"{server.url}/v1/chat/completions", "--json", asked)
    assert status == 200
    assert [line for line in body.splitlines() if line][-1] == "data: [DONE]"


# --- the OpenAPI document


def test_answers_have_the_form_that_the_openapi_document_states(server: Live) -> None:
    document = server.get("/openapi.json").json()
    for path in ("/translate", "/detect", "/v2/translate", "/v1/completions", "/v1/chat/completions", "/v1/embeddings"):
        described = document["paths"][path]["post"]
        body = described["requestBody"]["content"]["application/json"]
        check(document, body["schema"], body["example"])
        check(document, answer_of(described), server.post(path, json=body["example"]).json())
    for path in ("/languages", "/v2/languages", "/v2/usage", "/v1/models"):
        check(document, answer_of(document["paths"][path]["get"]), server.get(path).json())
    check(document, answer_of(document["paths"]["/v1/models/{model}"]["get"]), server.get("/v1/models/gpt").json())
    several = server.post("/translate", json={"q": ["a", "b"], "source": "auto", "target": "pt", "alternatives": 1})
    check(document, answer_of(document["paths"]["/translate"]["post"]), several.json())


def answer_of(described: dict[str, Any]) -> Any:
    return described["responses"]["200"]["content"]["application/json"]["schema"]


def check(document: dict[str, Any], schema: dict[str, Any], value: Any) -> None:
    jsonschema.validate(value, {**schema, "components": document["components"]})
