from __future__ import annotations

import json

import pytest

from tests.unit.serving.api.hostile import HOSTILE
from tests.unit.serving.api.live import GENERATOR, KEY, TRANSLATOR, UNSTATED, Live, live
from transduce.serving.job import JobError
from transduce.serving.limits import Limits

ASKED = {"q": "ein Hund", "source": "de", "target": "en"}
LONG_FRENCH = "Bonjour tout le monde, comment allez-vous ce matin ?"
LONG_SPANISH = "Buenos días a todos, ¿cómo están ustedes esta mañana?"


def test_a_text_gives_a_text_and_a_list_gives_a_list(server: Live) -> None:
    assert server.post("/translate", json=ASKED).json() == {"translatedText": "EIN HUND"}
    several = server.post("/translate", json={**ASKED, "q": ["ein", "", "zwei"]})
    assert several.json() == {"translatedText": ["EIN", "", "ZWEI"]}


def test_json_a_form_and_the_query_string_are_the_same(server: Live) -> None:
    asked = {**ASKED, "format": "text", "alternatives": 2}
    for way in ({"json": asked}, {"data": asked}, {"params": asked}):
        response = server.post("/translate", **way)
        assert response.status_code == 200, response.text
        assert response.json() == {"translatedText": "EIN HUND", "alternatives": ["EIN HUND'", "EIN HUND''"]}
    assert [job.search for job in server.backends["de-en"].jobs] == [{"n_best": 3}] * 3


def test_fields_of_a_form_that_are_repeated_are_a_list(server: Live) -> None:
    response = server.post("/translate", data={**ASKED, "q": ["ein", "zwei"]})
    assert response.json() == {"translatedText": ["EIN", "ZWEI"]}


def test_the_model_is_chosen_by_its_languages(server: Live) -> None:
    server.post("/translate", json=ASKED)
    assert (server.job("de-en").source_language, server.job("de-en").target_language) == (None, None)
    server.post("/translate", json={**ASKED, "source": "es", "target": "zh-Hant"})
    assert (server.job("nllb").source_language, server.job("nllb").target_language) == ("spa_Latn", "zho_Hant")
    server.post("/translate", json={**ASKED, "source": "en", "target": "zt"})
    assert (server.job("nllb").source_language, server.job("nllb").target_language) == (None, "zho_Hant")


def test_auto_detects_the_language_of_each_text(server: Live) -> None:
    one = server.post("/translate", json={**ASKED, "q": LONG_SPANISH, "source": "auto", "target": "pt"}).json()
    assert one["detectedLanguage"]["language"] == "es"
    assert 50 < one["detectedLanguage"]["confidence"] <= 100
    texts = [LONG_FRENCH, LONG_SPANISH, "abc", LONG_FRENCH + "!"]
    several = server.post("/translate", json={"q": texts, "source": "auto", "target": "pt"}).json()
    assert several["translatedText"] == [text.upper() for text in texts]
    languages = [found["language"] for found in several["detectedLanguage"]]
    assert (languages[:2], languages[3]) == (["fr", "es"], "fr")


def test_auto_looks_only_among_languages_that_lead_to_the_target(server: Live) -> None:
    answer = server.post("/translate", json={**ASKED, "q": LONG_FRENCH, "source": "auto"}).json()
    assert answer["detectedLanguage"] == {"language": "de", "confidence": 100.0}


def test_detect_ranks_the_source_languages(server: Live) -> None:
    found = server.post("/detect", data={"q": LONG_FRENCH}).json()
    assert found[0]["language"] == "fr"
    assert {one["language"] for one in found} <= {"de", "fr", "en", "es"}
    assert [one["confidence"] for one in found] == sorted((one["confidence"] for one in found), reverse=True)
    assert sum(one["confidence"] for one in found) == pytest.approx(100, abs=0.5)


def test_languages_state_their_targets(server: Live) -> None:
    found = {one["code"]: one for one in server.get("/languages").json()}
    assert found["de"] == {"code": "de", "name": "German", "targets": ["en"]}
    assert found["es"]["targets"] == ["fr", "zh", "zh-Hant", "pt"]
    assert found["zh-Hant"] == {"code": "zh-Hant", "name": "Chinese (Traditional)", "targets": []}
    assert server.get("/languages", data={"api_key": "x"}).status_code == 200


def test_every_listed_pair_can_be_translated(server: Live) -> None:
    for language in server.get("/languages").json():
        for target in language["targets"]:
            asked = {"q": "ein", "source": language["code"], "target": target}
            assert server.post("/translate", json=asked).status_code == 200, asked


def test_frontend_settings_state_limits(server: Live, keyed: Live) -> None:
    settings = server.get("/frontend/settings").json()
    assert settings["charLimit"] == Limits().max_characters
    assert (settings["keyRequired"], settings["filesTranslation"], settings["suggestions"]) == (False, False, False)
    assert settings["language"]["target"] == {"code": "en", "name": "English"}
    assert keyed.get("/frontend/settings", params={"api_key": KEY}).json()["keyRequired"] is True


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"q": None}, "q"),
        ({"q": ""}, "q is empty"),
        ({"q": []}, "q is empty"),
        ({"q": [1]}, "q"),
        ({"q": 1}, "q"),
        ({"source": "xx"}, "source 'xx' is not supported; choose from de"),
        ({"source": ""}, "source"),
        ({"target": "xx"}, "target 'xx' is not supported; choose from en"),
        ({"target": "auto"}, "target"),
        ({"target": "x" * 10_000}, "target"),
        ({"source": "de", "target": "fr"}, "no model translates from 'de' into 'fr'"),
        ({"format": "html"}, "html"),
        ({"format": "pdf"}, "format"),
        ({"alternatives": -1}, "alternatives"),
        ({"alternatives": 16}, "alternatives"),
        ({"alternatives": 2**63}, "alternatives"),
        ({"alternatives": "1"}, "alternatives"),
        ({"alternatives": True}, "alternatives"),
        ({"alternatives": 1.5}, "alternatives"),
        ({"beam_size": 5}, "beam_size"),
        ({"secret": "x"}, "secret"),
        ({"q": ["x"] * 129}, "128"),
    ],
)
def test_what_cannot_be_done_is_rejected_with_400(server: Live, change: dict[str, object], words: str) -> None:
    response = server.post("/translate", json={**ASKED, **change})
    assert response.status_code == 400
    assert response.json().keys() == {"error"}
    assert words in response.json()["error"]
    assert not server.jobs()


def test_missing_parameters_are_named(server: Live) -> None:
    for name in ASKED:
        response = server.post("/translate", data={key: value for key, value in ASKED.items() if key != name})
        assert (response.status_code, name in response.json()["error"]) == (400, True)


def test_files_and_suggestions_are_not_offered(server: Live) -> None:
    for path in ("/translate_file", "/suggest", "/download_file/x"):
        assert server.post(path, data=ASKED).status_code == 404
    assert server.get("/translate").status_code == 405


def test_hostile_texts_are_plain_text(server: Live) -> None:
    for text in HOSTILE:
        for way in ({"json": {**ASKED, "q": text}}, {"data": {**ASKED, "q": text}}):
            assert server.post("/translate", **way).json() == {"translatedText": text.upper()}, text[:20]
            assert server.job("de-en").texts == [text]
        assert server.post("/translate", json={**ASKED, "q": text, "source": "auto", "target": "pt"}).status_code == 200
        assert server.post("/detect", json={"q": text}).status_code == 200


def test_malformed_bodies_are_rejected(server: Live) -> None:
    headers = {"content-type": "application/json"}
    surrogate = '{"q": "\\ud800", "source": "de", "target": "en"}'
    for body in (surrogate, "[]", "{", "\xff", json.dumps(ASKED)[:-1] + ', "q": "b"}', "[" * 1000):
        response = server.post("/translate", data=body.encode("latin-1"), headers=headers)
        assert (response.status_code, list(response.json())) == (400, ["error"]), body[:20]
    multipart = server.post("/translate", files={"q": "x"})
    assert multipart.status_code == 415
    assert server.post("/translate", data=b"q=%ff&source=de&target=en", headers={}).status_code in (400, 415)
    assert not server.jobs()


def test_too_much_text_is_413(server: Live) -> None:
    assert server.post("/translate", json={**ASKED, "q": "x" * 50_001}).status_code == 413
    assert server.post("/translate", json={**ASKED, "q": "x" * (1 << 20)}).status_code == 413
    assert not server.jobs()


def test_a_full_queue_is_429_with_retry_after(server: Live) -> None:
    server.backends["de-en"].error = JobError("busy", "the queue is full", retry_after=3)
    response = server.post("/translate", json=ASKED)
    assert (response.status_code, response.headers["retry-after"]) == (429, "3")
    assert response.json() == {"error": "the queue is full"}


def test_a_job_that_the_engine_rejects_is_400(server: Live) -> None:
    server.backends["de-en"].error = JobError("invalid", "beam_size is too large for this model")
    response = server.post("/translate", json=ASKED)
    assert (response.status_code, response.json()) == (400, {"error": "beam_size is too large for this model"})


def test_the_key_comes_as_a_field_or_in_a_header(keyed: Live) -> None:
    for way in ("json", "data", "params"):
        assert keyed.post("/translate", **{way: {**ASKED, "api_key": KEY}}).status_code == 200
    assert keyed.post("/translate", json=ASKED, headers={"authorization": f"Bearer {KEY}"}).status_code == 200
    assert keyed.get("/languages", data={"api_key": KEY}).status_code == 200
    assert {client.partition(":")[0] for client in keyed.backends["de-en"].clients} == {"key"}


def test_no_route_answers_without_the_key(keyed: Live) -> None:
    for key in ({}, {"api_key": "wrong"}, {"api_key": ""}, {"api_key": [KEY]}, {"api_key": 1}):
        for path in ("/translate", "/detect"):
            response = keyed.post(path, json={**ASKED, **key})
            assert (response.status_code, list(response.json())) == (403, ["error"])
    for path in ("/languages", "/frontend/settings"):
        assert keyed.get(path).status_code == 403
    assert not keyed.jobs()


def test_a_model_without_stated_languages_is_called_und() -> None:
    with live(UNSTATED) as server:
        und = {"q": "ein", "source": "und", "target": "und"}
        assert server.get("/languages").json() == [{"code": "und", "name": "Not stated", "targets": ["und"]}]
        assert server.post("/translate", json=und).json() == {"translatedText": "EIN"}
        answer = server.post("/translate", json={**und, "source": "auto"}).json()
        assert answer["detectedLanguage"] == {"confidence": 0.0, "language": "und"}
        for name in ("source", "target"):
            response = server.post("/translate", json={**und, name: "de"})
            assert (response.status_code, "'und'" in response.json()["error"]) == (400, True)
        assert server.post("/detect", json={"q": "ein"}).status_code == 400


def test_a_server_without_translation_models_says_so() -> None:
    with live(GENERATOR) as server:
        assert server.get("/languages").json() == []
        for source in ("de", "auto"):
            response = server.post("/translate", json={**ASKED, "source": source})
            assert (response.status_code, "translation" in response.json()["error"]) == (400, True)


def test_limits_of_the_server_are_used() -> None:
    with live(TRANSLATOR, limits=Limits(max_characters=10, max_texts=2, max_n_best=2)) as server:
        assert server.post("/translate", json={**ASKED, "q": "x" * 11}).status_code == 413
        assert server.post("/translate", json={**ASKED, "q": ["a"] * 3}).status_code == 400
        assert server.post("/translate", json={**ASKED, "q": "a", "alternatives": 2}).status_code == 400
        assert server.post("/translate", json={**ASKED, "q": "a", "alternatives": 1}).status_code == 200
