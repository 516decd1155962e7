"""Requests that name languages: which model they reach."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.unit.serving.fake_backend import TRANSLATOR, FakeBackend
from tests.unit.serving.test_http import Wire
from transduce.serving.http import RequestError
from transduce.serving.language_pairs import LanguagePairs
from transduce.serving.limits import Limits
from transduce.serving.service import Service

FRENCH = "Bonjour tout le monde, comment allez-vous ce matin ?"
SPANISH = "Buenos días a todos, ¿cómo están ustedes esta mañana?"
VARIANTS = ("pt_BR", "pt_PT")


def pairs(*models: tuple[tuple[str, ...], tuple[str, ...]]) -> LanguagePairs:
    """Models of these source and target languages, called 0, 1, …"""
    infos = [
        replace(TRANSLATOR, name=str(number), source_languages=sources, target_languages=targets)
        for number, (sources, targets) in enumerate(models)
    ]
    return LanguagePairs(Service([FakeBackend(info) for info in infos], Limits()), "source", "target")


def test_a_code_that_is_ambiguous_in_one_model_is_found_in_the_next() -> None:
    into = pairs((("en",), VARIANTS), (("en",), ("pt",)))
    assert into.find("en", "pt").backend.info.name == "1"
    assert into.find("en", "pt-BR").backend.info.name == "0"
    out_of = pairs((VARIANTS, ("en",)), (("pt",), ("en",)))
    assert out_of.find("pt", "en").backend.info.name == "1"


def test_sources_for_detection_are_those_of_models_that_have_the_target() -> None:
    assert pairs((("en",), VARIANTS), (("de",), ("pt",)))._sources_of("pt") == ["de"]


@pytest.mark.parametrize(
    ("models", "source", "target", "parameter", "words"),
    [
        ([(("en",), VARIANTS), (("en",), ("de",))], "en", "pt", "target", "choose from pt-BR, pt-PT"),
        ([(VARIANTS, ("en",)), (("pt",), ("de",))], "pt", "en", "source", "choose from pt-BR, pt-PT"),
        ([(("en",), VARIANTS), (("de",), ("pt",))], "fr", "pt", "source", "'fr' is not supported"),
        ([(VARIANTS, ("de",)), (("fr",), ("en",))], "pt", "en", "source", "choose from pt-BR, pt-PT"),
        ([(VARIANTS, ("de",)), (("pt",), ("fr",)), (("fr",), ("en",))], "pt", "en", "target", "no model translates"),
    ],
)
def test_ambiguity_is_the_error_only_where_no_model_matches(
    models: list[tuple[tuple[str, ...], tuple[str, ...]]], source: str, target: str, parameter: str, words: str
) -> None:
    with pytest.raises(RequestError, match=words) as raised:
        pairs(*models).find(source, target)
    assert (raised.value.status, raised.value.parameter) == (400, parameter)


def test_ambiguity_of_the_target_is_the_error_of_detection() -> None:
    with pytest.raises(RequestError, match="choose from pt-BR, pt-PT"):
        pairs((("en",), VARIANTS), (("de",), ("en",)))._sources_of("pt")


def test_texts_of_several_detected_languages_are_translated_at_the_same_time() -> None:
    async def scenario() -> None:
        known = pairs((("fr", "es"), ("en",)))
        backend = known.service.backends["0"]
        assert isinstance(backend, FakeBackend)
        backend.gate = asyncio.Event()
        task = asyncio.create_task(known.translate(Wire().request, [FRENCH, SPANISH, FRENCH], None, "en"))
        async with asyncio.timeout(10):
            while backend.running < 2:
                await asyncio.sleep(0.001)
        backend.gate.set()
        found = await task
        assert [one.text for one in found] == [FRENCH.upper(), SPANISH.upper(), FRENCH.upper()]
        assert [one.source for one in found] == ["fr", "es", "fr"]

    asyncio.run(scenario())
