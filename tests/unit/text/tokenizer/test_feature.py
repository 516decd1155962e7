"""Words with features: what is a feature, and how it is tokenised."""

from __future__ import annotations

import pytest

from transduce.text.tokenizer.feature import FeatureCounts, Features
from transduce.text.tokenizer.tokenizer import Tokenizer, TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer

LEMMAS = [f"{first}{second}{third}" for first in "bdkN" for second in "aeiou" for third in ("lb", "nd", "rt", "NDAT")]
LINES = [f"{lemma} {kind};{case};SG" for lemma in LEMMAS for kind in ("N", "ADJ") for case in ("DAT", "ACC")]


def trained(lines: list[str] = LINES) -> Tokenizer:
    return train_tokenizer("feature", lines, TokenizerConfig(kind="feature", vocab_size=4000, min_frequency=1))


def find_features(lines: list[str]) -> Features | None:
    counts = FeatureCounts()
    for line in lines:
        counts.add(line)
    return counts.result()


def test_features_are_found_with_their_separator() -> None:
    found = find_features(LINES)
    assert found is not None
    assert (found.separator, set(found.pieces)) == (";", {" N", " ADJ", ";DAT", ";ACC", ";SG"})


def test_a_feature_is_one_token_and_a_word_is_spelled() -> None:
    tokenizer = trained()
    assert tokenizer.kind == "feature"
    assert tokenizer.pieces(tokenizer.encode("Nalb N;DAT;SG")) == ["N", "a", "l", "b", "▁N", ";DAT", ";SG"]


@pytest.mark.parametrize("text", ["Kalb N;DAT;SG", "new V;PST", " two  spaces ;; N", "東京 N;DAT", "", "a;b;c", ";"])
def test_every_text_comes_back(text: str) -> None:
    tokenizer = trained()
    assert tokenizer.decode(tokenizer.encode(text)) == text
    again = Tokenizer.from_json(tokenizer.to_json(), "a test")
    assert (again.kind, again.encode(text)) == ("feature", tokenizer.encode(text))


def test_words_are_counted_as_in_the_text() -> None:
    tokenizer = trained()
    assert tokenizer.words(tokenizer.encode("Nalb N;DAT")) == [0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["a;b"] * 3,
        ["one, two and three; four"] * 100,
        [f"{number} {number * 7},{number * 3 % 1000:03}" for number in range(2000)],
        [f"http://site/{number}" for number in range(2000)],
    ],
    ids=["nothing", "features alone", "prose", "numbers", "addresses"],
)
def test_other_text_has_no_features(lines: list[str]) -> None:
    assert find_features(lines) is None


def test_text_without_features_is_spelled() -> None:
    tokenizer = trained(["some text", "more of it"])
    assert tokenizer.pieces(tokenizer.encode("some it")) == ["s", "o", "m", "e", "▁", "i", "t"]
