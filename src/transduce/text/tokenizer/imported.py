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
from typing import Annotated, Any, Literal, Protocol, Self

import pydantic

from transduce.config import Config, Table
from transduce.errors import DataError, SettingsError, TransduceError, one_line, suggestion
from transduce.text.lines import check_surrogates
from transduce.text.tokenizer.batch_encoding import BaseTokenizer
from transduce.text.tokenizer.file import wrap_errors
from transduce.text.tokenizer.library_codec import LibraryCodec, RenumberedCodec
from transduce.text.tokenizer.sentencepiece_codec import SPACE

FORMAT = 1
"""Version of the file; higher ones are rejected."""

MARK = re.compile(r'\s*\{\s*"imported"')
"""Beginning of an imported tokenizer's file."""

MAX_TAG = 80
"""Characters of the longest language tag that is looked for in text."""

SettingsFile = Literal["tokenizer_config.json", "special_tokens_map.json"]
"""Names that a file may be written under: not whatever a stranger calls it."""

Tokens = Annotated[tuple[int, ...], pydantic.Field(strict=False)]

CLEANED = {
    before: before.strip() if before == " ' " else before[1:]
    for before in (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're")
}
"""Spaces that are closed up in decoded text, in this order, where a tokenizer asks for it."""


class ImportedConfig(Config):
    """Settings of an imported tokenizer besides its pieces."""

    family: str
    """Which kind of model it belongs to: marian, m2m_100, nllb, bert, gpt2, t5 or llama."""

    size: int = pydantic.Field(gt=0, le=10_000_000)
    """How many tokens the model knows; it may have rows that no piece belongs to."""

    pad: int
    start: int
    """First token: of a decoder's output, or of a text encoder's input."""
    end: int
    unknown: int | None = None
    mask: int | None = None
    """The mask token."""

    prefix: Tokens = ()
    """Tokens before an input text: the start token of a text encoder, or the language of a source."""

    suffix: Tokens = ()
    """Tokens after a text."""

    target_prefix: Tokens = ()
    """Tokens that every output begins with, after the start token: the language to translate into."""

    skipped: Tokens = ()
    """Tokens that `decode` skips."""

    tags: dict[str, int] = pydantic.Field(default_factory=dict)
    """Languages, as the vocabulary spells them."""

    reads_tags: bool = False
    """Whether a tag at the beginning of a text is read as one."""

    readable: dict[str, int] = pydantic.Field(default_factory=dict)
    """Special pieces that are read from text wherever they stand."""

    clean_up: bool = False
    """Whether decoded text is rid of the spaces before signs and English endings."""

    files: dict[SettingsFile, dict[str, Any]] = pydantic.Field(default_factory=dict)
    """Settings it came with, by the names of their files, to be written again; nothing here reads them."""

    @pydantic.model_validator(mode="after")
    def _possible(self) -> Self:
        single = [token for token in (self.pad, self.start, self.end, self.unknown, self.mask) if token is not None]
        several = (self.prefix, self.suffix, self.target_prefix, self.tags.values(), self.readable.values())
        for token in (*single, *(token for tokens in several for token in tokens)):
            if not 0 <= token < self.size:
                raise ValueError(f"token {token} is outside the vocabulary of {self.size:,}")
        return self


class Codec(Protocol):
    """What finds pieces in text and puts them together again."""

    @property
    def kind(self) -> str: ...
    @property
    def names(self) -> dict[int, str]: ...
    @property
    def special(self) -> frozenset[int]: ...
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]: ...
    def decode(self, tokens: Sequence[int]) -> str: ...
    def show(self, piece: str) -> str: ...
    def to_table(self) -> Table: ...


class ImportedTokenizer(BaseTokenizer):
    """A tokenizer of another project, with the interface of our own."""

    kind: Literal["imported"] = "imported"

    def __init__(
        self, config: ImportedConfig, codec: Codec, side: Literal["both", "source", "target"] = "both"
    ) -> None:
        """Use a codec as `config` says; raises ValueError where the two do not fit.

        Of a tokenizer for both sides, `side` says which it is used for: languages stand before sources, and answers
        begin with them.
        """
        self.config, self.codec, self.side = config, codec, side
        self.size, self.pad, self.start, self.end = config.size, config.pad, config.start, config.end
        self.unknown, self.mask = config.unknown, config.mask
        self.tags = dict(config.tags)
        """Languages, as the vocabulary spells them, and their tokens."""
        self.target_prefix: tuple[int, ...] = () if side == "source" else config.target_prefix
        """Tokens that every output begins with, after the start token."""
        self.sentinels = list(config.readable.values())
        self._tag_tokens = frozenset(self.tags.values())
        self._language = [token for token in config.prefix if token in self._tag_tokens] if side != "target" else []
        self._skipped = frozenset(config.skipped)
        self._readable = re.compile("|".join(map(re.escape, config.readable))) if config.readable else None
        self._names = _all_names(codec, config.size)

    def __repr__(self) -> str:
        return f"ImportedTokenizer(family={self.config.family!r}, size={self.size})"

    def sides(self) -> tuple[ImportedTokenizer, ImportedTokenizer]:
        """Return this tokenizer for sources and for targets; the same one where there is no difference."""
        if self.side != "both" or not (self._language or self.target_prefix):
            return self, self
        source = ImportedTokenizer(self.config, self.codec, "source")
        return source, ImportedTokenizer(self.config, self.codec, "target")

    def with_languages(self, before: str | None = None, target_prefix: str | None = None) -> ImportedTokenizer:
        """Return the same tokenizer with another language before its texts, or at the beginning of answers."""
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
        """Whether a tag at the beginning of a text is read as one."""
        return self.config.reads_tags

    def _tag(self, name: str) -> int:
        if name not in self.tags:
            raise SettingsError(f"the model knows no language '{name}'{suggestion(name, self.tags)}")
        return self.tags[name]

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without start or end; a source's language stands first."""
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
        """The tag that each text begins with, if it is read, and the tokens of the rest."""
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
        """Cut a text at special pieces that are read: what stands before the first, that piece, and so on."""
        if self._readable is None:
            return [text]
        parts: list[str] = []
        begin = 0
        for found in self._readable.finditer(text):
            parts += text[begin : found.start()], found.group()
            begin = found.end()
        return [*parts, text[begin:]]

    def _encoded(self, texts: Sequence[str]) -> list[list[int]]:
        try:
            return self.codec.encode_batch(texts)
        except (KeyboardInterrupt, SystemExit, TransduceError):
            raise
        except BaseException as error:  # the library raises bare Exceptions, and its panics are BaseExceptions
            raise DataError(f"the text: the model's tokenizer cannot read it ({one_line(error)})") from None

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the tokens of a text, and which of its characters (from, up to) each was made of."""
        if not isinstance(self.codec, LibraryCodec):
            raise SettingsError("a SentencePiece tokenizer has no character offsets")
        check_surrogates(text)
        return self.codec.encode_with_offsets(text)

    def split_tag(self, text: str) -> tuple[str, str]:
        """Return the language tag that a text begins with, and the rest; no tag where none is known or read."""
        tag = text[:MAX_TAG].partition("<<")[0] + "<<" if self.config.reads_tags else ""
        return (tag, text[len(tag) :]) if tag in self.tags and text.startswith(tag) else ("", text)

    def count_tags(self, tokens: Sequence[int]) -> int:
        """Return how many tokens at the beginning are languages: they belong to all parts of a text that is cut."""
        return next((place for place, token in enumerate(tokens) if token not in self._tag_tokens), len(tokens))

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens without the special ones; unknown words are left out too, as elsewhere."""
        text = self.codec.decode([token for token in tokens if token not in self._skipped])
        if self.config.clean_up:
            for before, after in CLEANED.items():
                text = text.replace(before, after)
        return text

    @property
    def decode_removes_spaces(self) -> bool:
        """Whether `decode` takes away spaces that stood there before the next token came."""
        return self.config.clean_up or self.codec.kind == "WordPiece"

    @property
    def vocabulary(self) -> list[str]:
        """Every piece as its file spells it, by token; no two are alike."""
        return list(self._names)

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """Return each token in readable form: spaces as "▁", incomplete UTF-8 as `<0xNN>`."""
        return [self.codec.show(self._names[token]).replace(" ", SPACE) for token in tokens]

    def words(self, tokens: Sequence[int]) -> list[int | None]:
        """Return which word of `decode(tokens)` each token is of, from 0; None for one that adds nothing to see.

        Words are what stands between spaces.
        """
        found: list[int | None] = []
        before = ""
        for place in range(len(tokens)):  # where spaces are put is known to the decoder alone
            text = self.decode(tokens[: place + 1]).rstrip()
            found.append(None if text == before else len(text.split()) - 1)
            before = text
        last = len(before.split()) - 1  # spaces that stood there before the next token came may have gone
        return [None if word is None else min(word, last) for word in found]

    def words_of(self, text: str) -> list[int | None]:
        """Return which word of a text each token of `encode(text)` is of; one that nobody knows is of its word too."""
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
        """Return the text of its file; the same tokenizer always gives the same text, whichever side it is for."""
        table = {"imported": FORMAT, "settings": self.config.to_table(), "codec": self.codec.to_table()}
        return json.dumps(table, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, where: str) -> Self:
        """Read the text of a file; `where` names it in a refusal."""
        with wrap_errors(where, "an imported tokenizer that can be read", "import the model again"):
            table = json.loads(text)
            written = table["imported"]
            if not isinstance(written, int) or written > FORMAT:
                raise ValueError(f"it has format {written!r}; this version reads up to {FORMAT}")
            config = ImportedConfig.from_table(table["settings"], "its settings")
            codec = RenumberedCodec if "sentencepiece" in table["codec"] else LibraryCodec
            return cls(config, codec.from_table(table["codec"]))


def _all_names(codec: Codec, size: int) -> list[str]:
    """Every piece by its token, also where the model has more rows than there are pieces."""
    beyond = [token for token in codec.names if token >= size and token not in codec.special]
    if beyond:
        raise ValueError(f"it has the token {max(beyond)}, but the model has only {size:,}")
    names = [codec.names.get(token, f"<unused_{token}>") for token in range(size)]
    if len(set(names)) != size:
        raise ValueError("it has pieces named <unused_N>, which stand for rows without a piece")
    return names
