"""Codec of a SentencePiece model with other token ids: those of a `vocab.json`, or with additional tokens.

Marian has one SentencePiece model for each side and one vocabulary for both; M2M100 has fairseq's numbering, with its
languages after all pieces; T5 has a hundred sentinels more.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

from transduce.config import Table
from transduce.text.tokenizer.sentencepiece import PieceType, read_sentencepiece
from transduce.text.tokenizer.sentencepiece_codec import SPACE, SentencePieceCodec

_HIDDEN = (PieceType.CONTROL, PieceType.UNKNOWN)


class RenumberedCodec:
    """Encodes and decodes with a SentencePiece model; tokens are those of a table of pieces."""

    kind = "SentencePiece"
    names: dict[int, str]
    """Every piece by its token."""
    special: frozenset[int]
    """Tokens that are never found in text."""
    unknown: int
    """Token of what no piece covers."""

    def __init__(
        self,
        content: bytes,
        vocabulary: Mapping[str, int] | None = None,
        further: Mapping[str, int] | None = None,
        trim: bool = False,
        where: str = "the SentencePiece model",
    ) -> None:
        """Read a model file.

        `vocabulary` is the token of each piece, None for the model's own order; what it lacks is unknown. `further` are
        pieces that only it knows, and that are never found in text. `trim` takes white space off decoded texts, as
        some do. `where` names the file in a refusal; ValueError is for tables that do not fit it.
        """
        self._content, self._vocabulary, self._further, self._trim = content, vocabulary, dict(further or {}), trim
        model = read_sentencepiece(content, where)
        self._codec = SentencePieceCodec(model)
        unknown = model.pieces[model.unknown]
        tokens = vocabulary if vocabulary is not None else {piece: token for token, piece in enumerate(model.pieces)}
        if unknown not in tokens:
            raise ValueError(f"its table of tokens lacks the piece {unknown} for what is unknown")
        self.unknown = tokens[unknown]
        self._token_of = [tokens.get(piece, self.unknown) for piece in model.pieces]
        named = [*tokens.items(), *self._further.items()]
        self.names = {token: piece for piece, token in named}
        if len(self.names) != len(named):
            raise ValueError("its table has two pieces for one token")
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
        """The SentencePiece model, as it was read."""
        return self._content

    @property
    def vocabulary(self) -> dict[str, int] | None:
        """The table of tokens, where there is one."""
        return None if self._vocabulary is None else dict(self._vocabulary)

    def to_table(self) -> Table:
        """Return what `from_table` makes the same codec of."""
        table: Table = {"sentencepiece": base64.b64encode(self._content).decode("ascii"), "trim": self._trim}
        if self._vocabulary is not None:
            table["vocabulary"] = dict(self._vocabulary)
        return {**table, "further": self._further}

    @classmethod
    def from_table(cls, table: Table) -> RenumberedCodec:
        """Make a codec of what `to_table` gave."""
        content = base64.b64decode(table["sentencepiece"], validate=True)
        vocabulary, further, trim = table.get("vocabulary"), table.get("further"), table.get("trim")
        if not isinstance(trim, bool) or not isinstance(further, dict):
            raise ValueError("the settings of its SentencePiece model are missing")
        return cls(content, None if vocabulary is None else checked_table(vocabulary), checked_table(further), trim)


def checked_table(table: object) -> dict[str, int]:
    """Return a table of pieces and tokens, if it is one."""
    if not isinstance(table, dict) or not all(type(token) is int and token >= 0 for token in table.values()):
        raise ValueError("its table of tokens is none")
    return table
