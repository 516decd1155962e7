"""Tokenizers of imported models, with the interface of our own.

They give the same tokens and texts as elsewhere, but special tokens are not parsed from text, except those that users
write on purpose: the target language (Marian's `>>de<<`, at the beginning) and T5's sentinels (`<extra_id_0>`). A
tokenizer is completely defined by one JSON file.

The search adds start and end tokens, so `encode` does not; but a language tag before a source (M2M100's `__en__`) is
part of its tokens, and the tag that every target starts with (`__de__`) is `target_prefix`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Annotated, Any, Literal, Self

import pydantic

from transduce.config import Config, Table
from transduce.errors import SettingsError, suggestion
from transduce.text.lines import check_surrogates
from transduce.text.tokenizer.base import BaseTokenizer, encoding_errors, wrap_errors
from transduce.text.tokenizer.library_codec import LibraryCodec, RenumberedCodec
from transduce.text.tokenizer.sentencepiece_codec import SPACE

FORMAT = 1
"""Version of the file; higher ones are rejected."""

MARK = re.compile(r'\s*\{\s*"imported"')
"""Beginning of an imported tokenizer's file."""

MAX_TAG = 80
"""Longest language tag that is recognised in text, in characters."""

SettingsFile = Literal["tokenizer_config.json", "special_tokens_map.json"]
"""Allowed names of written files, since an untrusted folder could name any."""

Tokens = Annotated[tuple[int, ...], pydantic.Field(strict=False)]

CLEANED = {
    before: before.strip() if before == " ' " else before[1:]
    for before in (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're")
}
"""Replacements of `clean_up_tokenization_spaces`, in this order."""


class ImportedConfig(Config):
    """Settings of an imported tokenizer except its vocabulary."""

    family: str
    """Model family: marian, m2m_100, nllb, bert, gpt2, t5 or llama."""

    size: int = pydantic.Field(gt=0, le=2_000_000)
    """Vocabulary size of the model; some of its embedding rows may have no piece."""

    pad: int
    start: int
    """Start token of a decoder's output, or of a text encoder's input."""
    end: int
    unknown: int | None = None
    mask: int | None = None
    """The mask token."""

    prefix: Tokens = ()
    """Tokens before an input text: the start token of a text encoder, or the language of a source."""

    suffix: Tokens = ()
    """Tokens after a text."""

    target_prefix: Tokens = ()
    """Tokens after the start token of every output: the target language."""

    skipped: Tokens = ()
    """Tokens that `decode` skips."""

    tags: dict[str, int] = pydantic.Field(default_factory=dict)
    """Language tags as the vocabulary spells them -> their tokens."""

    reads_tags: bool = False
    """Whether a language tag at the beginning of a text is parsed."""

    readable: dict[str, int] = pydantic.Field(default_factory=dict)
    """Special tokens that are parsed anywhere in a text -> their ids."""

    clean_up: bool = False
    """Whether `decode` removes spaces before punctuation and English contractions."""

    files: dict[SettingsFile, dict[str, Any]] = pydantic.Field(default_factory=dict)
    """Original settings by file name, written again on export and otherwise unused."""

    @pydantic.model_validator(mode="after")
    def _possible(self) -> Self:
        single = [token for token in (self.pad, self.start, self.end, self.unknown, self.mask) if token is not None]
        several = (self.prefix, self.suffix, self.target_prefix, self.tags.values(), self.readable.values())
        for token in (*single, *(token for tokens in several for token in tokens)):
            if not 0 <= token < self.size:
                raise ValueError(f"token {token} is outside the vocabulary of {self.size:,}")
        return self


Codec = LibraryCodec | RenumberedCodec
"""Segments text into pieces, and joins pieces to text."""


class ImportedTokenizer(BaseTokenizer):
    """An imported tokenizer with the interface of our own."""

    kind: Literal["imported"] = "imported"

    def __init__(
        self, config: ImportedConfig, codec: Codec, side: Literal["both", "source", "target"] = "both"
    ) -> None:
        """Use a codec with a config; raises ValueError if they do not match.

        `side` is where a tokenizer of both sides is used: sources are preceded by their language, and targets
        start with `target_prefix`.
        """
        self.config, self.codec, self.side = config, codec, side
        self.size, self.pad, self.start, self.end = config.size, config.pad, config.start, config.end
        self.unknown, self.mask = config.unknown, config.mask
        self.tags = dict(config.tags)
        """Language tags as the vocabulary spells them -> their tokens."""
        self.target_prefix: tuple[int, ...] = () if side == "source" else config.target_prefix
        """Tokens after the start token of every output."""
        self.sentinels = list(config.readable.values())
        self._tag_tokens = frozenset(self.tags.values())
        self._language = [token for token in config.prefix if token in self._tag_tokens] if side != "target" else []
        self._skipped = frozenset(config.skipped)
        self._readable = re.compile("|".join(map(re.escape, config.readable))) if config.readable else None
        self._names = _all_names(codec, config.size)

    def __repr__(self) -> str:
        return f"ImportedTokenizer(family={self.config.family!r}, size={self.size})"

    def sides(self) -> tuple[ImportedTokenizer, ImportedTokenizer]:
        """Return this tokenizer for sources and for targets; the same object if they do not differ."""
        if self.side != "both" or not (self._language or self.target_prefix):
            return self, self
        source = ImportedTokenizer(self.config, self.codec, "source")
        return source, ImportedTokenizer(self.config, self.codec, "target")

    def with_languages(self, before: str | None = None, target_prefix: str | None = None) -> ImportedTokenizer:
        """Return the tokenizer with other languages before its sources or targets."""
        others = tuple(token for token in self.config.prefix if token not in self._tag_tokens)
        changes: Table = {} if before is None else {"prefix": (self._tag(before), *others)}
        changes |= {} if target_prefix is None else {"target_prefix": (self._tag(target_prefix),)}
        return ImportedTokenizer(self.config.but(**changes), self.codec, self.side)

    def without_languages(self) -> ImportedTokenizer:
        """Return the same tokenizer without language tags, for a model whose notes define them."""
        others = tuple(token for token in self.config.prefix if token not in self._tag_tokens)
        return ImportedTokenizer(self.config.but(prefix=others, target_prefix=()), self.codec, self.side)

    @property
    def reads_tags(self) -> bool:
        """Whether a language tag at the beginning of a text is parsed."""
        return self.config.reads_tags

    def _tag(self, name: str) -> int:
        if name not in self.tags:
            raise SettingsError(f"the model has no language '{name}'{suggestion(name, self.tags)}")
        return self.tags[name]

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without start or end; those of a source begin with its language."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text; the same as `encode` one by one, but faster."""
        rows = self._rows(texts)
        return [[*(self._language if tag is None else [tag]), *tokens] if tokens else [] for tag, tokens in rows]

    def encode_with_specials(self, text: str) -> list[int]:
        """Return the tokens of a text with all special tokens that the model expects."""
        ((tag, tokens),) = self._rows([text])
        prefix = self.config.prefix if tag is None else [tag]
        return [*prefix, *tokens, *self.config.suffix]

    def _rows(self, texts: Sequence[str]) -> list[tuple[int | None, list[int]]]:
        """Tag token at the beginning of each text, None without one, and the tokens of the rest."""
        for text in texts:
            check_surrogates(text)
        tagged = [self.split_tag(text) for text in texts]
        parts = [self._cut(rest) for _, rest in tagged]
        found = iter(self._encoded([part for several in parts for part in several[::2]]))
        rows = [
            [
                token
                for place, part in enumerate(several)
                for token in ([self.config.readable[part]] if place % 2 else next(found))
            ]
            for several in parts
        ]
        return [(self.tags.get(tag), tokens) for (tag, _), tokens in zip(tagged, rows, strict=True)]

    def _cut(self, text: str) -> list[str]:
        """Split a text at parsed special tokens; texts and special tokens alternate."""
        if self._readable is None:
            return [text]
        parts: list[str] = []
        begin = 0
        for found in self._readable.finditer(text):
            parts += text[begin : found.start()], found.group()
            begin = found.end()
        return [*parts, text[begin:]]

    def _encoded(self, texts: Sequence[str]) -> list[list[int]]:
        with encoding_errors():
            return self.codec.encode_batch(texts)

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the tokens of a text, and the character offsets (begin, end) of each."""
        if not isinstance(self.codec, LibraryCodec):
            raise SettingsError("a SentencePiece tokenizer has no character offsets")
        check_surrogates(text)
        with encoding_errors():
            return self.codec.encode_with_offsets(text)

    def split_tag(self, text: str) -> tuple[str, str]:
        """Return the language tag at the beginning of a text, empty without one, and the rest."""
        tag = text[:MAX_TAG].partition("<<")[0] + "<<" if self.config.reads_tags else ""
        return (tag, text[len(tag) :]) if tag in self.tags and text.startswith(tag) else ("", text)

    def count_tags(self, tokens: Sequence[int]) -> int:
        """Return the number of language tokens at the beginning, which all parts of a split text share."""
        return next((place for place, token in enumerate(tokens) if token not in self._tag_tokens), len(tokens))

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens without special tokens; unknown words are left out too, as in `transformers`."""
        with encoding_errors():
            text = self.codec.decode([token for token in tokens if token not in self._skipped])
        if self.config.clean_up:
            for before, after in CLEANED.items():
                text = text.replace(before, after)
        return text

    def settled(self, text: str) -> str:
        """Return what no further token can change in a decoded text."""
        text = text.rstrip("\ufffd")  # half a character
        may_lose_spaces = self.config.clean_up or self.codec.kind == "WordPiece"
        return text.rpartition(" ")[0] if may_lose_spaces else text

    @property
    def vocabulary(self) -> list[str]:
        """Every piece as its file spells it, by token, without duplicates."""
        return list(self._names)

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """Return each token in readable form: spaces as "▁", incomplete UTF-8 as `<0xNN>`."""
        return [self.codec.show(self._names[token]).replace(" ", SPACE) for token in tokens]

    def words(self, tokens: Sequence[int]) -> list[int | None]:
        """Return the index of the word of `decode(tokens)` that each token belongs to; None for tokens without text.

        Words are separated by spaces.
        """
        found: list[int | None] = []
        before = ""
        for place in range(len(tokens)):  # only the decoder knows where spaces are
            text = self.decode(tokens[: place + 1]).rstrip()
            found.append(None if text == before else len(text.split()) - 1)
            before = text
        last = len(before.split()) - 1  # a later token may have removed earlier spaces
        return [None if word is None else min(word, last) for word in found]

    def words_of(self, text: str) -> list[int | None]:
        """Return the index of the word of a text that each token of `encode(text)` is in, also for unknown words."""
        tokens = self.encode(text)
        if isinstance(self.codec, LibraryCodec):
            read, places = self.codec.encode_with_offsets(text)
            if read != tokens:
                return self.words(tokens)
            word_at = list(accumulate(not one.isspace() and before.isspace() for before, one in pairwise(f" {text}")))
            return [word_at[end - 1] - 1 if text[begin:end].strip() else None for begin, end in places]
        names = [None if token in self._skipped and token != self.unknown else self._names[token] for token in tokens]
        begun = accumulate(name is not None and name.startswith(SPACE) for name in names)
        is_seen = [name is not None and name != SPACE for name in names]
        return [max(0, word - 1) if seen else None for seen, word in zip(is_seen, begun, strict=True)]

    def to_json(self) -> str:
        """Return the text of its file: deterministic, and the same for both sides."""
        table = {"imported": FORMAT, "settings": self.config.to_table(), "codec": self.codec.to_table()}
        return json.dumps(table, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, where: str) -> Self:
        """Parse the text of a file; `where` names it in errors."""
        with wrap_errors(where, "an imported tokenizer that can be read", "import the model again"):
            table = json.loads(text)
            written = table["imported"]
            if not isinstance(written, int) or written > FORMAT:
                raise ValueError(f"it has format {written!r}; this version reads up to {FORMAT}")
            config = ImportedConfig.from_table(table["settings"], "its settings")
            codec = RenumberedCodec if "sentencepiece" in table["codec"] else LibraryCodec
            return cls(config, codec.from_table(table["codec"]))


def _all_names(codec: Codec, size: int) -> list[str]:
    """Every piece by token; embedding rows without a piece get a placeholder."""
    beyond = [token for token in codec.names if token >= size and token not in codec.special]
    if beyond:
        raise ValueError(f"it has the token {max(beyond)}, but the model has only {size:,}")
    names = [codec.names.get(token, f"<unused_{token}>") for token in range(size)]
    if len(set(names)) != size:
        raise ValueError("it has pieces named <unused_N>, which stand for rows without a piece")
    return names
