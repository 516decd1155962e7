"""What is learned from which text, with how many tokens, and in how many passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from transduce.errors import DataError, SettingsError
from transduce.text.tokenizer.special import KINDS, LOSSLESS, min_vocab_size
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer, train_tokenizers

PAIRS = [("low lower lowest", "tief tiefer am tiefsten"), ("new newer newest", "neu neuer am neuesten")] * 5
TEXTS = [side for pair in PAIRS for side in pair]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("vocab_size", [6, 7, 13, 259, 263, 307])
def test_no_tokenizer_is_larger_than_requested(kind, vocab_size):
    vocab_size = max(vocab_size, min_vocab_size(kind))
    tokenizer = train_tokenizer(kind, TEXTS, TokenizerConfig(kind=kind, vocab_size=vocab_size))
    assert min_vocab_size(kind) <= tokenizer.size <= vocab_size
    assert tokenizer.kind == kind


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ["a", ".", "東", "a b", "aa aa", "\x01"])
def test_the_smallest_corpora_are_enough(kind, text):
    if kind == "wordpiece" and text == "\x01":
        return  # BERT's cleaning takes control characters away: the next test
    tokenizer = train_tokenizer(kind, [text], TokenizerConfig(min_frequency=1))
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("texts", [[], [""], ["", "  ", "\t"]])
def test_a_corpus_without_text_is_an_error(kind, texts):
    with pytest.raises(DataError, match="no text to train a tokenizer on"):
        train_tokenizer(kind, texts, TokenizerConfig())


@pytest.mark.parametrize(("kind", "text"), [("word", "all words once"), ("wordpiece", "\x01")])
def test_a_vocabulary_of_nothing_is_an_error(kind, text):
    with pytest.raises(DataError, match="vocabulary is empty"):
        train_tokenizer(kind, [text], TokenizerConfig())


def test_an_unknown_kind_is_rejected_with_a_suggestion():
    with pytest.raises(SettingsError, match="'chracter'; did you mean 'character'"):
        train_tokenizer("chracter", TEXTS, TokenizerConfig())


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_in_the_corpus_comes_through(kind):
    def broken() -> Iterator[str]:
        raise DataError("train.de:17: not UTF-8")
        yield ""

    with pytest.raises(DataError, match=r"train\.de:17"):
        train_tokenizer(kind, broken(), TokenizerConfig())


def test_bpe_learns_the_merges_of_sennrich_by_hand():
    # "▁aa" × 5 and "▁ab" × 3: the pair (▁, a) occurs 8 times, then (▁a, a) 5, then (▁a, b) 3; (▁, c) only once.
    config = TokenizerConfig(vocab_size=503, min_frequency=2)
    tokenizer = train_tokenizer("bpe", ["aa aa aa aa aa ab ab ab c"], config)
    assert tokenizer.pieces(range(259, tokenizer.size)) == ["▁a", "▁aa", "▁ab"]
    assert tokenizer.pieces(tokenizer.encode("aab c")) == ["▁aa", "b", "▁", "c"]


def test_word_vocabulary_is_the_frequent_words_most_frequent_first():
    words = list("dccbbbaaaae")
    tokenizer = train_tokenizer("word", [" ".join(words)], TokenizerConfig(kind="word"))
    expected = [word for word, count in Counter(words).most_common() if count >= 2]
    assert tokenizer.pieces(range(4, tokenizer.size)) == expected == ["a", "b", "c"]
    capped = train_tokenizer("word", [" ".join(words)], TokenizerConfig(kind="word", vocab_size=6))
    assert capped.pieces(range(4, capped.size)) == ["a", "b"]


def test_character_vocabulary_keeps_the_most_frequent():
    tokenizer = train_tokenizer("character", ["zzz yy x", "zy"], TokenizerConfig(vocab_size=261))
    assert tokenizer.pieces([259, 260]) == ["z", "y"]
    assert tokenizer.decode(tokenizer.encode("x zy")) == "x zy"


@pytest.mark.parametrize("kind", ["bpe", "word", "character", "byte"])
def test_the_same_text_gives_the_same_file(kind):
    one, other = (train_tokenizer(kind, iter(TEXTS), TokenizerConfig()) for _ in range(2))
    assert one.to_json() == other.to_json()


@pytest.mark.parametrize("kind", KINDS)
def test_lower_case_is_lost_by_choice_only(kind):
    texts = ["Der Hund der Ärzte", "DER HUND DER ÄRZTE"] * 3
    lower = train_tokenizer(kind, texts, TokenizerConfig(lowercase=True))
    assert lower.decode(lower.encode("DER Hund")) == "der hund"
    assert lower.encode("Ärzte") == lower.encode("ärzte")
    if kind in LOSSLESS:
        assert not any(piece.isupper() for piece in lower.pieces(range(259, lower.size)))
    kept = train_tokenizer(kind, texts, TokenizerConfig())
    assert kept.decode(kept.encode("DER Hund Ärzte")) == "DER Hund Ärzte"


def test_a_joint_tokenizer_is_one_object_that_saw_both_sides_in_one_pass():
    passes = []

    def texts() -> Iterator[tuple[str, str]]:
        passes.append(1)
        return iter(PAIRS)

    source, target = train_tokenizers(TokenizerConfig(kind="word"), texts)
    assert source is target and len(passes) == 1
    assert source.count_unknown(source.encode("newest tiefsten")) == 0


def test_separate_tokenizers_each_see_their_side_only():
    config = TokenizerConfig(joint=False, kind="word", source_kind="character")
    source, target = train_tokenizers(config, lambda: iter(PAIRS))
    assert (source.kind, target.kind) == ("character", "word")
    assert set(source.pieces(range(259, source.size))) == set("▁lowernst")
    assert set(target.pieces(range(4, target.size))) == {"tief", "tiefer", "am", "tiefsten", "neu", "neuer", "neuesten"}


def test_training_reads_a_stream_and_keeps_none_of_it():
    alive, most = 0, 0

    class Text(str):
        def __new__(cls, value: str) -> Text:
            nonlocal alive, most
            alive += 1
            most = max(most, alive)
            return super().__new__(cls, value)

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    for kind in KINDS:
        train_tokenizer(kind, (Text(TEXTS[n % len(TEXTS)]) for n in range(10_007)), TokenizerConfig())
    assert alive == 0 and most < 2_000


def test_nothing_is_printed_while_training(capfd):
    for kind in KINDS:
        train_tokenizer(kind, TEXTS, TokenizerConfig())
    assert capfd.readouterr() == ("", "")
