"""Codec of an imported `tokenizer.json` (the `tokenizers` library) that never parses special tokens from text.

The library finds special tokens in text, either because they are marked as such or, in a Unigram or WordPiece model,
because they are in the vocabulary. Here they are removed from what it searches: "</s>" in a text is four characters.
Otherwise the file is used unchanged, so that tokens and texts equal those of other users. It never truncates, pads or
post-processes a text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import tokenizers

from transduce.config import Table
from transduce.errors import brief
from transduce.text.tokenizer.special import read_byte_symbols

MAX_TOKENS = 10_000_000
MAX_ADDED = 4000
"""Pieces that a file may add to be found in text; a few hundred are usual, and the library takes the square of time."""

_UNKNOWN = ""
"""What the library calls an unknown piece that is special: a name that no text can have. A vocabulary with a piece of
this name (a blank line in BERT's `vocab.txt`) is searched without it."""
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
        """Use a parsed `tokenizer.json`; `special` are pieces that are special though it does not say so.

        Raises ValueError for what is none; the library may raise anything.
        """
        self._content, self._also_special = content, sorted(special)
        model, added = _parts(content)
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
        self.frame = self._frame()

    @property
    def kind(self) -> str:
        """The library's name of its model: BPE, Unigram, WordPiece or WordLevel."""
        return type(self._library.model).__name__

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text."""
        encodings = self._library.encode_batch_fast(list(texts), add_special_tokens=False)
        return [self._tokens(encoding.ids) for encoding in encodings]

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the tokens of a text, and the characters (from, up to) of each."""
        encoding = self._library.encode(text, add_special_tokens=False)
        return self._tokens(encoding.ids), [(int(begin), int(end)) for begin, end in encoding.offsets]

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
        """Return what `from_table` makes the same codec of."""
        return {"tokenizer": self._content, "special": self._also_special}

    @classmethod
    def from_table(cls, table: Table) -> LibraryCodec:
        """Make a codec of what `to_table` gave."""
        special = table.get("special")
        if not isinstance(special, list) or not all(isinstance(piece, str) for piece in special):
            raise ValueError("it does not say which pieces are special")
        return cls(table["tokenizer"], special)

    def _frame(self) -> tuple[list[int], list[int]]:
        framed = self._library.encode(_PROBE)
        inside = [place for place, special in enumerate(framed.special_tokens_mask) if not special]
        if not inside or len(inside) != inside[-1] - inside[0] + 1:
            raise ValueError("it puts special pieces in the middle of a text, or has no tokens for one")
        return framed.ids[: inside[0]], framed.ids[inside[-1] + 1 :]


def _parts(content: Any) -> tuple[Table, list[Table]]:
    """Return the model and the added tokens of a `tokenizer.json`, after a look at what is used of them here."""
    model = content.get("model") if isinstance(content, dict) else None
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(model, dict) or not isinstance(vocabulary, dict | list) or not vocabulary:
        raise ValueError("not a tokenizer.json")
    entries = vocabulary.items() if isinstance(vocabulary, dict) else vocabulary
    usual = int if isinstance(vocabulary, dict) else float
    for entry in entries:
        name, value = entry if isinstance(entry, tuple | list) and len(entry) == 2 else (None, None)
        if not isinstance(name, str) or type(value) not in (int, usual):
            raise ValueError(f"its vocabulary has the entry {brief(entry)}")
    unknown = model.get("unk_id")
    if unknown is not None and not (type(unknown) is int and 0 <= unknown < len(vocabulary)):
        raise ValueError("its piece for the unknown is none of its pieces")
    added = content.get("added_tokens") or []
    if not isinstance(added, list) or not all(_is_added(token) for token in added):
        raise ValueError("its added pieces have no token, text and kind")
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
            raise ValueError(f"its token {token} has two names, or is none")
    if len(set(names.values())) != len(names):
        raise ValueError("it has two tokens for one piece")
    return names


def _find(names: dict[int, str], piece: Any) -> int | None:
    return next((token for token, name in names.items() if name == piece), None)


def _searched(model: Table, hidden: set[str], found: list[Table]) -> tuple[Table, list[int]]:
    """Return a model without hidden pieces, whose numbers leave no gap, and the token of each number.

    Behind the numbers of its vocabulary come those of the pieces that were added and may be found in text.
    """
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        searched, numbers = _searched_table(model, hidden)
    else:
        searched, numbers = _searched_list(model, hidden)
    return searched, [*numbers, *(token["id"] for token in found if token["content"] not in _pieces(vocabulary))]


def _searched_table(model: Table, hidden: set[str]) -> tuple[Table, list[int]]:
    """The same for a vocabulary of pieces with their tokens."""
    unknown = model.get("unk_token")
    renamed = {unknown: _UNKNOWN} if unknown in hidden else {}
    kept = sorted((token, name) for name, token in model["vocab"].items() if name not in hidden or name in renamed)
    numbered = {renamed.get(name, name): number for number, (_, name) in enumerate(kept)}
    return {**model, "vocab": numbered, **({"unk_token": _UNKNOWN} if renamed else {})}, [token for token, _ in kept]


def _searched_list(model: Table, hidden: set[str]) -> tuple[Table, list[int]]:
    """The same for a vocabulary of pieces with their scores, in the order of their tokens."""
    vocabulary, unknown = model["vocab"], model.get("unk_id")
    lowest = min(score for _, score in vocabulary)  # what is unknown costs ten more than this, hidden pieces counted
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
    """The types of a part of a `tokenizer.json`, and of those that it is made of."""
    if not isinstance(part, dict):
        return set()
    inner = [one for value in part.values() if isinstance(value, list) for one in value]
    return {str(part.get("type"))}.union(*map(_types, inner))
