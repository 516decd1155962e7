"""Languages of a model: read from the notes of its folder, or from the tokenizer that it was imported with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from transduce.errors import SettingsError
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.imported import ImportedTokenizer
from transduce.text.tokenizer.special import NO_PREFIX, LanguagePrefix, LanguageTags

_TAG_MARKS = (("__", "__"), (">>", "<<"))
"""What surrounds a language's name in M2M100's and Marian's vocabularies; NLLB writes `deu_Latn` without marks."""


class ModelLanguages(NamedTuple):
    """The languages of a model, and its default source and target language."""

    tags: LanguageTags | None
    source: str | None
    target: str | None


def model_languages(notes: Mapping[str, Any], source: AnyTokenizer, target: AnyTokenizer, where: str) -> ModelLanguages:
    """Read the languages of a model folder from its note `tags`, or else from an imported tokenizer."""
    pair = (notes.get("source_language"), notes.get("target_language"))
    source_language, target_language = (name if isinstance(name, str) else None for name in pair)
    tags = LanguageTags.from_notes(notes, where, (source.size, target.size))
    if tags is not None:
        return ModelLanguages(tags, source_language, None)
    if not isinstance(source, ImportedTokenizer) or not source.tags:
        return ModelLanguages(None, source_language, target_language)
    tokens = {_language_name(piece): token for piece, token in source.tags.items()}
    names = {token: name for name, token in tokens.items()}
    in_source = next((names[token] for token in source.config.prefix if token in names), None)
    if source.config.family == "marian":
        return ModelLanguages(LanguageTags(target_tokens=tokens), source_language, in_source)
    in_target = next((names[token] for token in target.target_prefix if token in names), None)
    return ModelLanguages(
        LanguageTags(place="target", target_tokens=tokens, source_tokens=tokens), in_source, in_target
    )


def _language_name(piece: str) -> str:
    for begin, end in _TAG_MARKS:
        if piece.startswith(begin) and piece.endswith(end) and len(piece) > len(begin) + len(end):
            return piece[len(begin) : -len(end)]
    return piece


def _spelled(name: str | None, known: Iterable[str | None]) -> str | None:
    """Return the known name that differs from a name in case or in `_` for `-` only, or else the name itself."""
    if name is None:
        return None
    plain = name.lower().replace("_", "-")
    same = [one for one in known if one is not None and one.lower().replace("_", "-") == plain]
    return name if name in same or not same else same[0]


class Languages:
    """Languages that one model translates between, and the pair that is currently selected."""

    def __init__(self, notes: Mapping[str, Any], source: AnyTokenizer, target: AnyTokenizer) -> None:
        """Read the notes and tokenizers of a model folder."""
        self.tags, self.source, self.target = model_languages(notes, source, target, "the model folder")
        self._default_prefix, self._reads_tags = LanguagePrefix([], list(target.target_prefix)), source.reads_tags
        """Prefix of a model without a choice of languages, and whether a text may begin with its own tag."""

    def select(self, target_language: str | None, source_language: str | None = None) -> None:
        """Use these languages from now on; None leaves one unchanged. Raises SettingsError for an unknown language."""
        target_language, source_language = self._spelled(target_language, source_language)
        if target_language is not None:
            self.prefix(target_language, source_language)
        if source_language is not None and self.tags is None and source_language != self.source:
            raise self._unsupported(f"from '{source_language}'", "--source-language")
        self.target, self.source = target_language or self.target, source_language or self.source

    def prefix(self, target_language: str | None = None, source_language: str | None = None) -> LanguagePrefix:
        """Return the tokens before a text in the source language and before its translation.

        None stands for the language that is selected.
        """
        target_language, source_language = self._spelled(target_language, source_language)
        target, source = target_language or self.target, source_language or self.source
        if self.tags is not None:
            in_text = target is None and self._reads_tags  # then each text may begin with its own tag
            return NO_PREFIX if in_text else self.tags.prefix(target, source)
        if target != self.target:
            raise self._unsupported(f"into '{target}'", "--target-language")
        return self._default_prefix

    def _spelled(self, target: str | None, source: str | None) -> tuple[str | None, str | None]:
        """Return both as the model writes them: EN is en, and pt_br is pt-BR."""
        if self.tags is not None:
            return _spelled(target, self.tags.target_tokens), _spelled(source, self.tags.source_tokens)
        return _spelled(target, [self.target]), _spelled(source, [self.source])

    def _unsupported(self, request: str, option: str) -> SettingsError:
        """The error for a language requested of a model that has one language pair."""
        source, target = (name or "one language" for name in (self.source, self.target))
        return SettingsError(
            f"the model cannot translate {request}: it translates from {source} into {target}; leave out {option}"
        )

    @property
    def source_prefix_length(self) -> int:
        """Number of tokens before every source."""
        return 0 if self.tags is None else self.tags.lengths[0]

    @property
    def target_prefix_length(self) -> int:
        """Number of tokens that every translation starts with."""
        return len(self._default_prefix.target) if self.tags is None else self.tags.lengths[1]
