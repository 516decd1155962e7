from __future__ import annotations

import pytest

from tests.unit.serving.api.hostile import HOSTILE
from tests.unit.serving.api.live import KEY, UNSTATED, Live, live
from transduce.serving.api.deepl import UNSUPPORTED, DeepLRequest
from transduce.serving.job import JobError

ASKED = {"text": ["ein Hund"], "source_lang": "DE", "target_lang": "EN-US"}
LONG_FRENCH = "Bonjour tout le monde, comment allez-vous ce matin ?"
LONG_SPANISH = "Buenos días a todos, ¿cómo están ustedes esta mañana?"


def test_each_text_has_a_translation_its_language_and_its_characters(server: Live) -> None:
    response = server.post("/v2/translate", json={**ASKED, "text": ["ein Hund", "", "zwei"]})
    assert response.json() == {
        "translations": [
            {"detected_source_language": "DE", "text": text.upper(), "billed_characters": len(text)}
            for text in ("ein Hund", "", "zwei")
        ]
    }


def test_json_a_form_and_the_query_string_are_the_same(server: Live) -> None:
    asked = {**ASKED, "text": ["ein", "zwei"], "split_sentences": "0"}
    form = {**asked, "show_billed_characters": "1", "preserve_formatting": "false", "outline_detection": "1"}
    responses = [
        server.post("/v2/translate", json={**asked, "show_billed_characters": True, "preserve_formatting": True}),
        server.post("/v2/translate", data=form),
        server.get("/v2/translate", params=form),
    ]
    for response in responses:
        assert [one["text"] for one in response.json()["translations"]] == ["EIN", "ZWEI"]
    assert [job.split for job in server.backends["de-en"].jobs] == [False] * 3


def test_one_text_of_a_form_is_a_list_of_one(server: Live) -> None:
    response = server.post("/v2/translate", data={"text": "ein", "target_lang": "en-gb"})
    assert len(response.json()["translations"]) == 1
    assert server.job("de-en").split is True


def test_the_source_language_is_detected_for_each_text(server: Live) -> None:
    asked = {"text": [LONG_FRENCH, LONG_SPANISH], "target_lang": "PT-BR"}
    found = server.post("/v2/translate", json=asked).json()["translations"]
    assert [one["detected_source_language"] for one in found] == ["FR", "ES"]
    assert [one["text"] for one in found] == [LONG_FRENCH.upper(), LONG_SPANISH.upper()]
    assert [job.source_language for job in server.backends["nllb"].jobs] == ["fra_Latn", "spa_Latn"]


def test_deepls_codes_mean_the_models_languages(server: Live) -> None:
    for code, meant in (
        ("ZH", "zho_Hans"),
        ("ZH-HANS", "zho_Hans"),
        ("ZH-HANT", "zho_Hant"),
        ("PT-BR", "por_Latn"),
        ("PT-PT", "por_Latn"),
        ("fr", "fra_Latn"),
    ):
        assert server.post("/v2/translate", json={**ASKED, "source_lang": "EN", "target_lang": code}).status_code == 200
        assert server.job("nllb").target_language == meant


def test_languages_can_all_be_used(server: Live) -> None:
    sources, targets = server.get("/v2/languages").json(), server.get("/v2/languages?type=target").json()
    assert sources[0] == {"language": "DE", "name": "German"}
    assert {one["language"] for one in targets} == {"EN-GB", "EN-US", "FR", "ZH", "ZH-HANT", "PT-BR", "PT-PT"}
    assert {"language": "EN-US", "name": "English (American)", "supports_formality": False} in targets
    for target in targets:
        assert server.post("/v2/translate", json={"text": ["a"], "target_lang": target["language"]}).status_code == 200
    for way in ({"params": {"type": "target"}}, {"data": {"type": "target"}}):
        assert server.get("/v2/languages", **way).json() == targets
        assert server.post("/v2/languages", **way).json() == targets
    assert server.get("/v2/languages?type=other").status_code == 400


def test_usage_counts_characters_of_each_key(keyed: Live) -> None:
    headers = {"authorization": f"DeepL-Auth-Key {KEY}"}
    before = keyed.get("/v2/usage", headers=headers).json()
    assert keyed.post("/v2/translate", json=ASKED, headers=headers).status_code == 200
    after = keyed.get("/v2/usage", headers=headers).json()
    assert after["character_count"] == before["character_count"] + len("ein Hund")
    assert after["character_limit"] > after["character_count"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"text": []}, "text"),
        ({"text": [1]}, "text"),
        ({"text": None}, "text"),
        ({"text": ["x"] * 129}, "128"),
        ({"target_lang": "XX"}, "target_lang 'XX' is not supported; choose from en"),
        ({"target_lang": "FR"}, "no model translates from 'DE' into 'FR'"),
        ({"source_lang": "XX"}, "source_lang 'XX' is not supported"),
        ({"source_lang": "EN", "target_lang": "KS"}, "target_lang"),
        ({"split_sentences": "nonewlines"}, "nonewlines"),
        ({"split_sentences": "2"}, "split_sentences"),
        ({"preserve_formatting": "yes"}, "preserve_formatting"),
        ({"show_billed_characters": 1}, "show_billed_characters"),
        ({"beam_size": 2}, "beam_size"),
    ],
)
def test_what_cannot_be_done_is_rejected_with_400(server: Live, change: dict[str, object], words: str) -> None:
    response = server.post("/v2/translate", json={**ASKED, **change})
    assert response.status_code == 400
    assert response.json().keys() == {"message"}
    assert words in response.json()["message"]
    assert not server.jobs()


REJECTED = {
    "context": "a story",
    "custom_instructions": ["be brief"],
    "enable_beta_languages": True,
    "formality": "more",
    "glossary_id": "g",
    "glossary_ids": ["g"],
    "ignore_tags": ["x"],
    "model_type": "quality_optimized",
    "non_splitting_tags": ["x"],
    "outline_detection": False,
    "splitting_tags": ["x"],
    "style_id": "s",
    "tag_handling": "html",
    "tag_handling_version": "v2",
    "translation_memory_id": "t",
    "translation_memory_threshold": 75,
}


def test_every_unsupported_parameter_is_rejected_by_name_but_for_its_default(server: Live) -> None:
    assert REJECTED.keys() == UNSUPPORTED.keys()
    assert not UNSUPPORTED.keys() & DeepLRequest.model_fields.keys()
    for name, value in REJECTED.items():
        response = server.post("/v2/translate", json={**ASKED, name: value})
        assert (response.status_code, name in response.json()["message"]) == (400, True), name
        assert not server.jobs()
    for name, accepted in UNSUPPORTED.items():
        for value in accepted:
            assert server.post("/v2/translate", json={**ASKED, name: value}).status_code == 200, (name, value)


def test_true_is_not_one_among_the_defaults(server: Live) -> None:
    assert server.post("/v2/translate", json={**ASKED, "outline_detection": 1}).status_code == 400
    assert server.post("/v2/translate", json={**ASKED, "enable_beta_languages": 0}).status_code == 400


def test_hostile_texts_are_plain_text(server: Live) -> None:
    for text in HOSTILE:
        for way in ({"json": {**ASKED, "text": [text]}}, {"data": {**ASKED, "text": text}}):
            assert server.post("/v2/translate", **way).json()["translations"][0]["text"] == text.upper()
            assert server.job("de-en").texts == [text]
    surrogate = b'{"text": ["\\ud800"], "target_lang": "EN"}'
    response = server.post("/v2/translate", data=surrogate, headers={"content-type": "application/json"})
    assert (response.status_code, list(response.json())) == (400, ["message"])
    assert server.post("/v2/translate", json={**ASKED, "text": ["x" * (1 << 20)]}).status_code == 413


def test_errors_of_the_engine_have_deepls_form(server: Live) -> None:
    for reason, status, retry in (("busy", 429, "7"), ("unavailable", 503, "7"), ("failed", 500, None)):
        server.backends["de-en"].error = JobError(reason, "it did not work", 7 if retry else None)  # type: ignore[arg-type]
        response = server.post("/v2/translate", json=ASKED)
        assert (response.status_code, response.json()) == (status, {"message": "it did not work"})
        assert response.headers.get("retry-after") == retry


def test_the_key_comes_in_the_header_or_as_auth_key(keyed: Live) -> None:
    header = {"authorization": f"DeepL-Auth-Key {KEY}"}
    assert keyed.post("/v2/translate", json=ASKED, headers=header).status_code == 200
    assert keyed.post("/v2/translate", data={**ASKED, "auth_key": KEY}).status_code == 200
    assert keyed.get("/v2/translate", params={**ASKED, "auth_key": KEY}).status_code == 200
    for wrong in ({}, {"auth_key": "wrong"}, {"auth_key": [KEY]}):
        response = keyed.post("/v2/translate", json={**ASKED, **wrong})
        assert (response.status_code, list(response.json())) == (403, ["message"])
    for path in ("/v2/languages", "/v2/usage", "/v2/translate"):
        assert keyed.get(path, headers={"authorization": "DeepL-Auth-Key wrong"}).status_code == 403
    assert len(keyed.jobs()) == 3


def test_a_page_of_another_origin_cannot_start_work(server: Live) -> None:
    for site in ("cross-site", "same-site"):
        response = server.get("/v2/translate", params=ASKED, headers={"sec-fetch-site": site})
        assert response.status_code == 403
    assert not server.jobs()


def test_a_model_without_stated_languages_is_called_und() -> None:
    with live(UNSTATED) as server:
        assert server.get("/v2/languages").json() == [{"language": "UND", "name": "Not stated"}]
        answer = server.post("/v2/translate", json={"text": ["ein"], "target_lang": "UND"}).json()
        assert answer["translations"][0]["detected_source_language"] == "UND"
        assert server.post("/v2/translate", json=ASKED).status_code == 400
