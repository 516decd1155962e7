"""Several languages in one model: a token that says into which language, and where it stands.

A model's notes (`config.json` of its folder) hold a table `tags`, whoever made the folder:

    "tags": {
        "place": "source",              where the token of the wanted language stands: "source", before the text that
                                        is read, or "target", as the first token that is written
        "of": {"de": 3, "fr": 4},       the target languages, and their tokens (of the source's
                                        vocabulary for place "source", of the target's for "target")
        "source_tokens": {"en": 5}          tokens that say in which language the text is, put before it; left out where
    }                                   a model needs none

Where a folder has this note, its tokenizers are used without languages of their own (`bare`): whatever stands before
a text stands there by the note. Ours put `>>de<<` before the source, as Marian does. M2M100 and NLLB have their token
of the source's language before the source and that of the wanted one at the beginning of the target. Johnson et al.
2017 is where this comes from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self

import pydantic

from transduce.config import Config
from transduce.errors import ModelFolderError, SettingsError

NAME = r"[A-Za-z][A-Za-z0-9_-]{0,31}"
"""What a language may be called: `de`, `pt-BR`, `zh_Hans`, `deu_Latn`."""

_PIECE = re.compile(f"^>>({NAME})<<$")

Language = Annotated[str, pydantic.Field(pattern=f"^{NAME}$")]


def tag_piece(language: str) -> str:
    """Return how a vocabulary of ours spells the tag of a language."""
    return f">>{language}<<"


def tagged_language(piece: str) -> str | None:
    """Return the language whose tag a special piece is."""
    found = _PIECE.match(piece)
    return None if found is None else found[1]


class LanguagePrefix(NamedTuple):
    """Tokens that go before a text."""

    source: list[int]
    """Before what is read."""
    target: list[int]
    """Before what is written: the answer begins with them."""


NO_PREFIX = LanguagePrefix([], [])


class LanguageTags(Config):
    """The languages of a model, and how to ask for one of them."""

    place: Literal["source", "target"] = "source"
    """Where the token of the wanted language stands: before the source, or at the beginning of the target."""
    target_tokens: dict[str, Annotated[int, pydantic.Field(ge=0)]]
    """Token of each target language."""
    source_tokens: dict[str, Annotated[int, pydantic.Field(ge=0)]] = pydantic.Field(default_factory=dict)
    """Token of each language that a text can be in, put before it; empty for models that need no such thing."""

    @classmethod
    def from_notes(cls, notes: Mapping[str, Any], where: str, sizes: tuple[int, int]) -> Self | None:
        """Read the languages of a model from the notes of its folder; None where it knows of none.

        `sizes` are those of the vocabularies of source and target.
        """
        table = notes.get("tags")
        if table is None:
            return None
        try:
            tags = cls.from_table(table, f"{where}: the note 'tags'")
        except SettingsError as error:
            raise ModelFolderError(f"{error}; copy the folder again") from None
        wanted = sizes[tags.place == "target"]
        if max(tags.target_tokens.values()) >= wanted or max(tags.source_tokens.values(), default=0) >= sizes[0]:
            raise ModelFolderError(f"{where}: the note 'tags' names tokens that the vocabulary lacks; copy it again")
        return tags

    @pydantic.model_validator(mode="after")
    def _possible(self) -> Self:
        if not self.target_tokens:
            raise ValueError("target_tokens names no language")
        return self

    @property
    def languages(self) -> list[str]:
        """The target languages, in alphabetical order."""
        return sorted(self.target_tokens)

    @property
    def lengths(self) -> tuple[int, int]:
        """How many tokens go before every source, and before every target."""
        return bool(self.source_tokens) + (self.place == "source"), int(self.place == "target")

    def prefix(self, to: str | None, of: str | None = None) -> LanguagePrefix:
        """Return what goes before a text to be translated into `to`, which is in the language `of`."""
        wanted = [self.target_tokens[_known(to, self.target_tokens, "into", "--target-language", "target_language")]]
        source = (
            [self.source_tokens[_known(of, self.source_tokens, "from", "--source-language", "source_language")]]
            if self.source_tokens
            else []
        )
        return LanguagePrefix([*source, *wanted], []) if self.place == "source" else LanguagePrefix(source, wanted)


def _known(language: str | None, known: Iterable[str], way: str, option: str, setting: str) -> str:
    """Return a language that is known, or say which are."""
    names = sorted(known)
    if language is None and len(names) == 1:
        return names[0]
    if language is None:
        raise SettingsError(
            f"the model translates {way} several languages: say which ({option} {names[0]}, or {setting} of "
            f"a corpus); there is {listed(names)}"
        )
    if language not in names:
        raise SettingsError(f"the model does not translate {way} '{language}'; there is {listed(names)}")
    return language


def listed(names: Sequence[str], most: int = 20) -> str:
    """Return names in a row; of very many, the first few and how many more."""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")
