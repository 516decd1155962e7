from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from transduce.errors import TransduceError
from transduce.serving.detection import Detector
from transduce.serving.language import language_name, matching, short_codes
from transduce.text.language_names import NAMES, PREFERRED

NLLB = ("deu_Latn", "eng_Latn", "zho_Hans", "zho_Hant", "srp_Cyrl", "nob_Latn", "ace_Arab", "ace_Latn")
MBART = ("de_DE", "en_XX", "pt_XX", "zh_CN")


@pytest.mark.parametrize(
    ("wanted", "known", "found"),
    [
        ("de", NLLB, ["deu_Latn"]),
        ("DE", NLLB, ["deu_Latn"]),
        ("deu", ("de",), ["de"]),
        ("deu_Latn", NLLB, ["deu_Latn"]),
        ("EN-US", NLLB, ["eng_Latn"]),
        ("en-GB", ("en_US",), []),
        ("en_US", ("en_US", "en_GB"), ["en_US"]),
        ("en", ("en_US", "en_GB"), ["en_US", "en_GB"]),
        ("zh", NLLB, ["zho_Hans"]),
        ("ZH-HANT", NLLB, ["zho_Hant"]),
        ("zh-TW", NLLB, ["zho_Hant"]),
        ("zt", NLLB, ["zho_Hant"]),
        ("zt", ("zh",), []),
        ("zh", ("zho_Hant",), []),
        ("sr-Latn", NLLB, []),
        ("no", NLLB, ["nob_Latn"]),
        ("ace", NLLB, ["ace_Arab", "ace_Latn"]),
        ("pt-BR", MBART, ["pt_XX"]),
        ("de", MBART, ["de_DE"]),
        ("zh-Hans", MBART, ["zh_CN"]),
        ("", NLLB, []),
        ("-", NLLB, []),
        ("d" * 1_000_000, NLLB, []),
        ("zh-" * 10, NLLB, ["zho_Hans"]),
    ],
)
def test_a_clients_code_means_a_models_language(wanted: str, known: tuple[str, ...], found: list[str]) -> None:
    assert matching(wanted, known) == found


def test_short_codes_mean_what_they_stand_for() -> None:
    for known in (NLLB, MBART, ("pt_BR", "pt_PT", "pt"), ("en", "de"), ("srp_Latn",), ("x-klingon",)):
        codes = short_codes(known)
        assert len(set(codes.values())) == len(known)
        for code, short in codes.items():
            assert matching(short, known) == [code]
    assert short_codes(NLLB)["deu_Latn"] == "de"
    assert short_codes(NLLB)["zho_Hant"] == "zh-Hant"


def test_languages_have_english_names() -> None:
    assert language_name("de") == "German"
    assert language_name("deu_Latn") == "German (Latin)"
    assert language_name("EN-US") == "English (American)"
    assert language_name("zh-Hant") == "Chinese (Traditional)"
    assert language_name("qqq") == "qqq"
    assert language_name("UND") == "Not stated"


def test_the_table_of_codes_is_consistent() -> None:
    assert set(PREFERRED.values()) <= NAMES.keys()
    assert {code for code in NAMES if len(code) == 2} == {code for code in PREFERRED.values() if len(code) == 2} | {
        "tw"
    }
    assert all(name.strip() == name and name for name in NAMES.values())


def test_a_language_is_detected_among_a_few_in_the_callers_spelling() -> None:
    detector = Detector()
    best, other = detector.rank("Ein Mann geht mit seinem Hund durch den Wald.", ["eng_Latn", "deu_Latn"])
    assert best.language == "deu_Latn"
    assert best.confidence > 90
    assert best.confidence + other.confidence == pytest.approx(100, abs=0.2)
    assert detector.rank("Ein Mann geht mit seinem Hund durch den Wald.", ["fr"])[0] == ("fr", 100.0)


def test_a_few_words_are_less_certain_than_a_sentence() -> None:
    few, sentence = (
        Detector().rank(text, ["en", "de", "fr"])[0] for text in ("Hello world", "The man goes home with his dog.")
    )
    assert few.language == sentence.language == "en"
    assert few.confidence < 90 < sentence.confidence


def test_a_text_without_features_is_undecided() -> None:
    for text in ("", "\x00", "1", "\ud800"):
        assert sum(found.confidence for found in Detector().rank(text, ["en", "de"])) == pytest.approx(100, abs=0.2)


def test_languages_that_nobody_can_detect_are_an_error() -> None:
    with pytest.raises(TransduceError, match="state the source language"):
        Detector().rank("abc", ["qqa", "qqb"])


def test_a_missing_library_is_an_error_of_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    with pytest.raises(TransduceError, match="py3langid"):
        Detector().rank("abc", ["en", "de"])


def test_many_threads_detect_at_once() -> None:
    detector = Detector()
    texts = {"the dog and the cat are here": "en", "der Hund und die Katze sind da": "de", "el perro y el gato": "es"}
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda text: detector.rank(text, ["en", "de", "es"])[0].language, [*texts] * 50))
    assert found == [*texts.values()] * 50
