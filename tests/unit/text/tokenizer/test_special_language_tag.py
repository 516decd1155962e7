"""Languages that a model can be asked for: their tags, and what goes before a text."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from transduce.errors import ModelFolderError, SettingsError
from transduce.text.language import Languages
from transduce.text.tokenizer.extension import add_language_tags
from transduce.text.tokenizer.special import KINDS, LanguagePrefix, LanguageTags
from transduce.text.tokenizer.tokenizer import Tokenizer, TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer

TEXT = "the quick brown fox says >>de<< and jumps over the lazy dog"


@functools.cache
def tagged(kind: str, later: bool = False) -> Tokenizer:
    """With tags from the beginning, or added to a tokenizer that had none."""
    config = TokenizerConfig(kind=kind, vocab_size=400, min_frequency=1)
    languages = ("de", "pt-BR")
    if later:
        return add_language_tags(train_tokenizer(kind, [TEXT], config), languages)
    return train_tokenizer(kind, [TEXT], config, languages)


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_text_cannot_spell_a_tag_and_a_tag_is_not_text(kind: str, later: bool) -> None:
    tokenizer = tagged(kind, later)
    assert set(tokenizer.tags) == {"de", "pt-BR"}
    read = tokenizer.encode(TEXT + " >>pt-BR<<")
    assert not set(read) & set(tokenizer.tags.values())
    led = [tokenizer.tags["de"], *tokenizer.encode(TEXT)]
    assert tokenizer.decode(led) == tokenizer.decode(led[1:])
    assert tokenizer.pieces(led)[0] == ">>de<<"
    assert tokenizer.words(led) == [None, *tokenizer.words(led[1:])]
    again = Tokenizer.from_json(tokenizer.to_json(), "it")
    assert (again.tags, again.encode(TEXT), again.vocabulary) == (tokenizer.tags, led[1:], tokenizer.vocabulary)


@pytest.mark.parametrize("kind", KINDS)
def test_tags_added_later_change_nothing_else(kind: str) -> None:
    config = TokenizerConfig(kind=kind, vocab_size=400, min_frequency=1)
    plain = train_tokenizer(kind, [TEXT], config)
    with_some = add_language_tags(plain, ["de"])
    assert with_some.vocabulary == [*plain.vocabulary, ">>de<<"] and with_some.encode(TEXT) == plain.encode(TEXT)


def test_a_vocabulary_without_room_for_the_tags_is_rejected() -> None:
    config = TokenizerConfig(kind="bpe", vocab_size=260)
    with pytest.raises(SettingsError, match="too small for the tags of 2 languages"):
        train_tokenizer("bpe", [TEXT], config, ["de", "fr"])


def test_what_goes_where() -> None:
    marian = LanguageTags(target_tokens={"de": 7, "fr": 8})
    assert marian.prefix("fr") == LanguagePrefix([8], []) and marian.lengths == (1, 0)
    m2m = LanguageTags(place="target", target_tokens={"de": 7, "fr": 8}, source_tokens={"en": 9, "de": 7})
    assert m2m.prefix("fr", "en") == LanguagePrefix([9], [8]) and m2m.lengths == (1, 1)
    both = LanguageTags(target_tokens={"de": 7}, source_tokens={"en": 9})
    assert both.prefix(None, None) == LanguagePrefix([9, 7], []) and both.lengths == (2, 0)


@pytest.mark.parametrize(
    ("target_language", "source_language", "message"),
    [
        (None, "en", r"translates into several languages: choose one \(--target-language de, .*; available: de, fr$"),
        ("it", "en", "does not translate into 'it'; available: de, fr$"),
        ("de", None, r"translates from several languages: choose one \(--source-language de, .*; available: de, en$"),
        ("de", "it", "does not translate from 'it'; available: de, en$"),
    ],
)
def test_a_missing_or_unknown_language_is_one_sentence_with_those_there_are(
    target_language: str | None, source_language: str | None, message: str
) -> None:
    tags = LanguageTags(place="target", target_tokens={"de": 7, "fr": 8}, source_tokens={"en": 9, "de": 7})
    with pytest.raises(SettingsError, match=message):
        tags.prefix(target_language, source_language)


def test_notes_say_it_and_other_notes_do_not() -> None:
    known = tagged("byte")
    asked = Languages({"tags": {"target_tokens": {"de": 7, "fr": 8}}}, known, known)
    asked.select("fr")
    assert asked.prefix() == LanguagePrefix([8], []) and asked.prefix("de") == LanguagePrefix([7], [])
    reported = Languages(
        {
            "tags": {"place": "target", "target_tokens": {"de": 7}, "source_tokens": {"en": 9, "fr": 8}},
            "source_language": "en",
        },
        known,
        known,
    )
    assert reported.prefix() == LanguagePrefix([9], [7]) and reported.prefix(source_language="fr") == LanguagePrefix(
        [8], [7]
    )
    plain = Languages({"source_language": "de", "target_language": "en"}, known, known)
    assert plain.prefix() == plain.prefix("en") == LanguagePrefix([], [])
    with pytest.raises(SettingsError, match=r"into 'fr'.*from de into en"):
        plain.select("fr")


@pytest.mark.parametrize(
    "tags",
    [
        "de",
        {"target_tokens": {}},
        {"target_tokens": {"de": -1}},
        {"target_tokens": {"de": "7"}},
        {"place": "middle", "target_tokens": {"de": 1}},
        {"off": 1},
        {"target_tokens": {"a": 999}},
    ],
)
def test_damaged_notes_are_rejected(tags: Any) -> None:
    with pytest.raises(ModelFolderError, match="the note 'tags'"):
        Languages({"tags": tags}, tagged("byte"), tagged("byte"))
