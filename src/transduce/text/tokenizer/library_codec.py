"""Codecs of imported tokenizers, `tokenizer.json` or SentencePiece, that never parse special tokens from text.

The `tokenizers` library finds special tokens in text, either because they are marked as such or, in a Unigram or
WordPiece model, because they are in the vocabulary. Here they are removed from the vocabulary that it searches: "</s>"
in a text is four characters. Otherwise the file is used unchanged, so that tokens and texts equal those of other users.
Texts are never truncated, padded or post-processed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tokenizers

from transduce.config import Table
from transduce.errors import DataError, brief
from transduce.text.tokenizer.safety import MAX_CHARACTERS, check_components, check_time, patterns_of
from transduce.text.tokenizer.sentencepiece import PieceType, read_sentencepiece
from transduce.text.tokenizer.sentencepiece_codec import SPACE, SentencePieceCodec
from transduce.text.tokenizer.special import read_byte_symbols

_HIDDEN = (PieceType.CONTROL, PieceType.UNKNOWN)


class RenumberedCodec:
    """Encodes and decodes with a SentencePiece model whose token ids are those of a `vocab.json`.

    Marian has one SentencePiece model for each side and one vocabulary for both; M2M100 has fairseq's ids, with its
    languages after all pieces; T5 has a hundred additional sentinels.
    """

    kind = "SentencePiece"
    names: dict[int, str]
    """Every piece by its token."""
    special: frozenset[int]
    """Tokens that are never found in text."""
    unknown: int
    """The unknown token."""

    def __init__(
        self,
        content: bytes,
        vocabulary: Mapping[str, int] | None = None,
        further: Mapping[str, int] | None = None,
        trim: bool = False,
        where: str = "the SentencePiece model",
    ) -> None:
        """Parse a model file.

        `vocabulary` maps pieces to tokens, None for the model's own ids; pieces that it lacks are unknown. `further`
        are additional special tokens, which are never found in text. `trim` strips white space from decoded texts, as
        some tokenizers do. `where` names the file in errors; tables that do not fit the file raise ValueError.
        """
        self._content, self._vocabulary, self._further, self._trim = content, vocabulary, dict(further or {}), trim
        model = read_sentencepiece(content, where)
        self._codec = SentencePieceCodec(model)
        unknown = model.pieces[model.unknown]
        tokens = vocabulary if vocabulary is not None else {piece: token for token, piece in enumerate(model.pieces)}
        if unknown not in tokens:
            raise ValueError(f"its vocabulary lacks the unknown piece {unknown}")
        self.unknown = tokens[unknown]
        self._token_of = [tokens.get(piece, self.unknown) for piece in model.pieces]
        named = [*tokens.items(), *self._further.items()]
        self.names = {token: piece for piece, token in named}
        if len(self.names) != len(named):
            raise ValueError("its vocabulary has two pieces with one id")
        hidden = {piece for piece, kind in zip(model.pieces, model.types, strict=True) if kind in _HIDDEN}
        self.special = frozenset(
            token for token, piece in self.names.items() if piece in hidden or piece in self._further
        )

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text."""
        return [[self._token_of[number] for number in row] for row in self._codec.encode_batch(texts)]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens without invalid ones."""
        text = self._codec.decode([self.names[token] for token in tokens if token in self.names])
        return text.replace(SPACE, " ").strip() if self._trim else text

    def show(self, piece: str) -> str:
        """Return a piece in readable form."""
        return piece

    @property
    def model_file(self) -> bytes:
        """Bytes of the original SentencePiece model file."""
        return self._content

    @property
    def vocabulary(self) -> dict[str, int] | None:
        """Token of each piece; None if the ids are the model's own."""
        return None if self._vocabulary is None else dict(self._vocabulary)

    def to_table(self) -> Table:
        """Return the codec as a table; inverse of `from_table`."""
        table: Table = {"sentencepiece": base64.b64encode(self._content).decode("ascii"), "trim": self._trim}
        if self._vocabulary is not None:
            table["vocabulary"] = dict(self._vocabulary)
        return {**table, "further": self._further}

    @classmethod
    def from_table(cls, table: Table) -> RenumberedCodec:
        """Build a codec from the result of `to_table`."""
        content = base64.b64decode(table["sentencepiece"], validate=True)
        vocabulary, further, trim = table.get("vocabulary"), table.get("further"), table.get("trim")
        if not isinstance(trim, bool) or not isinstance(further, dict):
            raise ValueError("the settings of its SentencePiece model are missing")
        return cls(content, None if vocabulary is None else checked_table(vocabulary), checked_table(further), trim)


def checked_table(table: object) -> dict[str, int]:
    """Return a vocabulary (piece -> token) if it is valid."""
    if not isinstance(table, dict) or not all(type(token) is int and token >= 0 for token in table.values()):
        raise ValueError("its vocabulary does not map pieces to ids")
    return table


MAX_TOKENS = 2_000_000
MAX_ADDED = 4000
"""Most added tokens that are found in text; files have a few hundred, and the library takes quadratic time."""

_UNKNOWN = ""
"""Name of a special unknown piece in the library: one that cannot occur in text. A piece that has this name already (a
blank line in BERT's `vocab.txt`) is hidden."""
_PROBE = "a b"
"""Encoded once to find the special tokens that the file adds to texts."""


class LibraryCodec:
    """Encodes and decodes with one `tokenizer.json`; tokens are the file's own."""

    names: dict[int, str]
    """Every piece by its token, special ones too."""
    special: frozenset[int]
    """Special tokens, which are never found in text."""
    unknown: int | None
    """The unknown token."""
    frame: tuple[list[int], list[int]]
    """Special tokens that the file adds before and after a text."""

    def __init__(self, content: Table, special: Iterable[str] = ()) -> None:
        """Use a parsed `tokenizer.json`; `special` are further special tokens that it does not mark.

        Raises ValueError for an invalid file; the library may raise anything.
        """
        self._content, self._also_special = content, sorted(special)
        model, added = _parts(content)
        self._longest = MAX_CHARACTERS // check_components(content)
        hidden = {token["content"] for token in added if token["special"]} | {*self._also_special, _UNKNOWN}
        self.names = _names(model, added)
        self.special = frozenset(token for token, name in self.names.items() if name in hidden)
        found = [token for token in added if token["content"] not in hidden]
        if len(found) > MAX_ADDED:
            raise ValueError(f"it adds {len(found):,} pieces to its vocabulary, more than {MAX_ADDED:,}")
        vocabulary, numbers = _searched(model, hidden, found)
        parts: Table = {"truncation": None, "padding": None, "added_tokens": [], "model": vocabulary}
        self._library = tokenizers.Tokenizer.from_str(json.dumps({**content, **parts}))
        self._library.add_tokens([_added_token(token) for token in found])
        self._token_of = None if numbers == list(range(len(numbers))) else numbers
        self._number_of = {token: number for number, token in enumerate(numbers)}
        self.unknown = model.get("unk_id", _find(self.names, model.get("unk_token")))
        self._by_bytes = "ByteLevel" in _types(content.get("decoder"))
        check_time(lambda text: self._library.encode(text, add_special_tokens=False), patterns_of(content))
        self.frame = self._frame()

    @property
    def kind(self) -> str:
        """Model type in the library: BPE, Unigram, WordPiece or WordLevel."""
        return type(self._library.model).__name__

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text."""
        for text in texts:
            self._check_length(text)
        encodings = self._library.encode_batch_fast(list(texts), add_special_tokens=False)
        return [self._tokens(encoding.ids) for encoding in encodings]

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the tokens of a text, and the characters (from, up to) of each."""
        self._check_length(text)
        encoding = self._library.encode(text, add_special_tokens=False)
        return self._tokens(encoding.ids), [(int(begin), int(end)) for begin, end in encoding.offsets]

    def _check_length(self, text: str) -> None:
        if len(text) > self._longest:
            raise DataError(
                f"a text of {len(text):,} characters is too long for the model's tokenizer, whose replacements can "
                f"make it longer; at most {self._longest:,} characters are supported"
            )

    def _tokens(self, numbers: Sequence[int]) -> list[int]:
        return list(numbers) if self._token_of is None else [self._token_of[number] for number in numbers]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens without special and invalid ones."""
        shown = [self._number_of[token] for token in tokens if token in self._number_of and token not in self.special]
        return str(self._library.decode(shown, skip_special_tokens=False))

    def show(self, piece: str) -> str:
        """Return a piece in readable form."""
        return read_byte_symbols(piece) if self._by_bytes else piece

    def to_table(self) -> Table:
        """Return the codec as a table; inverse of `from_table`."""
        return {"tokenizer": self._content, "special": self._also_special}

    @classmethod
    def from_table(cls, table: Table) -> LibraryCodec:
        """Build a codec from the result of `to_table`."""
        special = table.get("special")
        if not isinstance(special, list) or not all(isinstance(piece, str) for piece in special):
            raise ValueError("its list of special pieces is missing")
        return cls(table["tokenizer"], special)

    def _frame(self) -> tuple[list[int], list[int]]:
        framed = self._library.encode(_PROBE)
        inside = [place for place, special in enumerate(framed.special_tokens_mask) if not special]
        if not inside or len(inside) != inside[-1] - inside[0] + 1:
            raise ValueError("it inserts special tokens in the middle of a text, or encodes a text to nothing")
        return framed.ids[: inside[0]], framed.ids[inside[-1] + 1 :]


def _parts(content: Any) -> tuple[Table, list[Table]]:
    """Return the model and the added tokens of a `tokenizer.json`, validated as far as they are used here."""
    model = content.get("model") if isinstance(content, dict) else None
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(model, dict) or not isinstance(vocabulary, dict | list) or not vocabulary:
        raise ValueError("not a tokenizer.json")
    entries = vocabulary.items() if isinstance(vocabulary, dict) else vocabulary
    expected = int if isinstance(vocabulary, dict) else float
    for entry in entries:
        name, value = entry if isinstance(entry, tuple | list) and len(entry) == 2 else (None, None)
        if not isinstance(name, str) or type(value) not in (int, expected):
            raise ValueError(f"its vocabulary has the invalid entry {brief(entry)}")
    unknown = model.get("unk_id")
    if unknown is not None and not (type(unknown) is int and 0 <= unknown < len(vocabulary)):
        raise ValueError("unk_id is outside its vocabulary")
    added = content.get("added_tokens") or []
    if not isinstance(added, list) or not all(_is_added(token) for token in added):
        raise ValueError("its added tokens lack id, content or special")
    return {**model, "dropout": None} if "dropout" in model else model, added


def _is_added(token: Any) -> bool:
    return (
        isinstance(token, dict)
        and isinstance(token.get("content"), str)
        and type(token.get("id")) is int
        and isinstance(token.get("special"), bool)
    )


def _names(model: Table, added: list[Table]) -> dict[int, str]:
    """Every piece by its token."""
    vocabulary = model["vocab"]
    pairs = [(name, token) for token, (name, _) in enumerate(vocabulary)] if isinstance(vocabulary, list) else None
    names: dict[int, str] = {}
    for name, token in [*(vocabulary.items() if pairs is None else pairs), *((t["content"], t["id"]) for t in added)]:
        if names.setdefault(token, name) != name or not 0 <= token < MAX_TOKENS:
            raise ValueError(f"the id {token} has two pieces or is out of range")
    if len(set(names.values())) != len(names):
        raise ValueError("it has two ids for one piece")
    return names


def _find(names: dict[int, str], piece: Any) -> int | None:
    return next((token for token, name in names.items() if name == piece), None)


def _searched(model: Table, hidden: set[str], found: list[Table]) -> tuple[Table, list[int]]:
    """Return the model without hidden pieces, renumbered without gaps, and the token of each number.

    The numbers of the added tokens that may be found in text follow those of the vocabulary.
    """
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        searched, numbers = _searched_table(model, hidden)
    else:
        searched, numbers = _searched_list(model, hidden)
    return searched, [*numbers, *(token["id"] for token in found if token["content"] not in _pieces(vocabulary))]


def _searched_table(model: Table, hidden: set[str]) -> tuple[Table, list[int]]:
    """`_searched` for a vocabulary that maps pieces to tokens."""
    unknown = model.get("unk_token")
    renamed = {unknown: _UNKNOWN} if unknown in hidden else {}
    kept = sorted((token, name) for name, token in model["vocab"].items() if name not in hidden or name in renamed)
    numbered = {renamed.get(name, name): number for number, (_, name) in enumerate(kept)}
    return {**model, "vocab": numbered, **({"unk_token": _UNKNOWN} if renamed else {})}, [token for token, _ in kept]


def _searched_list(model: Table, hidden: set[str]) -> tuple[Table, list[int]]:
    """`_searched` for a list of pieces with scores, in the order of their tokens."""
    vocabulary, unknown = model["vocab"], model.get("unk_id")
    lowest = min(score for _, score in vocabulary)  # unknown characters score ten below this; hidden pieces count
    kept = [token for token, (name, _) in enumerate(vocabulary) if name not in hidden or token == unknown]
    pieces = [vocabulary[token] for token in kept]
    if unknown is None:
        return {**model, "vocab": pieces}, kept
    name = vocabulary[unknown][0]
    pieces[kept.index(unknown)] = [_UNKNOWN if name in hidden else name, lowest]
    return {**model, "vocab": pieces, "unk_id": kept.index(unknown)}, kept


def _pieces(vocabulary: Any) -> set[str]:
    return set(vocabulary) if isinstance(vocabulary, dict) else {name for name, _ in vocabulary}


def _added_token(token: Table) -> tokenizers.AddedToken:
    flags = {flag: bool(token.get(flag)) for flag in ("single_word", "lstrip", "rstrip", "normalized")}
    return tokenizers.AddedToken(token["content"], special=False, **flags)


def _types(part: Any) -> set[str]:
    """The type of a component of a `tokenizer.json`, and the types of its nested components."""
    if not isinstance(part, dict):
        return set()
    inner = [one for value in part.values() if isinstance(value, list) for one in value]
    return {str(part.get("type"))}.union(*map(_types, inner))
