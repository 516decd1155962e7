"""Which languages a model can be asked for, by the notes of its folder or the tokenizer that it was imported with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from transduce.errors import SettingsError
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.imported import ImportedTokenizer
from transduce.text.tokenizer.tag import NO_LEAD, Lead, Tags

_AROUND = (("__", "__"), (">>", "<<"))
"""What stands around the name of a language in vocabularies of others; NLLB's `deu_Latn` stands alone."""


class Spoken(NamedTuple):
    """The languages of a model, and which of them it was saved for."""

    tags: Tags | None
    of: str | None
    """The language that texts are in unless said otherwise."""
    to: str | None
    """The language to translate into unless said otherwise."""


def spoken(notes: Mapping[str, Any], source: AnyTokenizer, target: AnyTokenizer, where: str) -> Spoken:
    """Read the languages of a model folder: its note `tags`, or else what an imported tokenizer knows."""
    pair = (notes.get("source_language"), notes.get("target_language"))
    of, to = (name if isinstance(name, str) else None for name in pair)
    tags = Tags.of_notes(notes, where, (source.size, target.size))
    if tags is not None:
        return Spoken(tags, of, None)
    if not isinstance(source, ImportedTokenizer) or not source.tags:
        return Spoken(None, of, to)
    named = {_plain(piece): token for piece, token in source.tags.items()}
    names = {token: name for name, token in named.items()}
    before = next((names[token] for token in source.config.prefix if token in names), None)
    if source.config.family == "marian":
        return Spoken(Tags(of=named), of, before)
    opening = next((names[token] for token in target.opening if token in names), None)
    return Spoken(Tags(place="target", of=named, source_of=named), before, opening)


def _plain(piece: str) -> str:
    for begin, end in _AROUND:
        if piece.startswith(begin) and piece.endswith(end) and len(piece) > len(begin) + len(end):
            return piece[len(begin) : -len(end)]
    return piece


class Languages:
    """What one model can be asked for, and what it is asked for unless somebody says otherwise."""

    def __init__(self, notes: Mapping[str, Any], source: AnyTokenizer, target: AnyTokenizer) -> None:
        """Read the notes and tokenizers of a model folder."""
        self.tags, self.of, self.to = spoken(notes, source, target, "the model folder")
        self._usual, self._reads_tags = Lead([], list(target.opening)), source.reads_tags
        """What goes before a text where there is no choice, and whether a text may begin with its tag."""

    def ask_for(self, to: str | None, of: str | None = None) -> None:
        """Let these be the languages from now on; None leaves one as it is. Unknown ones are refused at once."""
        if to is not None:
            self.lead(to, of)
        if of is not None and self.tags is None and of != self.of:
            raise self._refusal(f"to read '{of}'", "--source-language")
        self.to, self.of = to or self.to, of or self.of

    def lead(self, to: str | None = None, of: str | None = None) -> Lead:
        """Return what goes before a text to be translated into a language, which is in another."""
        wanted, of = to or self.to, of or self.of
        if self.tags is not None:
            silent = wanted is None and self._reads_tags  # then each text may say it itself
            return NO_LEAD if silent else self.tags.lead(wanted, of)
        if wanted != self.to:
            raise self._refusal(f"for '{wanted}'", "--target-language")
        return self._usual

    def _refusal(self, wish: str, option: str) -> SettingsError:
        """What is said of a wish to a model that translates from one language into one."""
        source, target = (name or "its one language" for name in (self.of, self.to))
        return SettingsError(
            f"the model cannot be asked {wish}: it translates from {source} into {target}; leave out {option}"
        )

    @property
    def read(self) -> int:
        """How many tokens go before every source."""
        return 0 if self.tags is None else self.tags.lengths[0]

    @property
    def written(self) -> int:
        """How many tokens every answer begins with."""
        return len(self._usual.target) if self.tags is None else self.tags.lengths[1]
