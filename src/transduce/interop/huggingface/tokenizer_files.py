"""The files that hold a tokenizer's pieces, and what finds them in text: one function for each kind of file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from transduce.config import Table, counted
from transduce.errors import brief
from transduce.interop.huggingface.tokenizer_settings import TokenizerSettings
from transduce.text.tokenizer.library_codec import LibraryCodec
from transduce.text.tokenizer.renumbered_codec import RenumberedCodec, checked_table
from transduce.text.tokenizer.sentencepiece import MAX_BYTES, read_sentencepiece

TOKENIZER, VOCABULARY, MERGES, WORDS = "tokenizer.json", "vocab.json", "merges.txt", "vocab.txt"
ADDED = "added_tokens.json"

Framing = tuple[str, int]
"""A special piece that stands before or behind a text, and its token."""

MAX_TOKENIZER_BYTES = 128 * 2**20
"""Largest `tokenizer.json`, table or list of a stranger's that is read; vocabularies of 256,000 pieces have a fifth."""


def library_codec(settings: TokenizerSettings) -> LibraryCodec:
    """Read `tokenizer.json`."""
    return LibraryCodec(settings.table(TOKENIZER, MAX_TOKENIZER_BYTES), set(settings.special()))


def bert_codec(settings: TokenizerSettings) -> LibraryCodec:
    """Read `vocab.txt`, one piece a line; how BERT splits words is in its settings."""
    lines = _lines(settings, WORDS)
    vocabulary = {piece: token for token, piece in enumerate(lines)}
    made = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=settings.piece("unk")))
    strip_accents = settings.get("strip_accents")
    made.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.flag("tokenize_chinese_chars", otherwise=True),
        strip_accents=strip_accents if isinstance(strip_accents, bool) else None,
        lowercase=settings.flag("do_lower_case", otherwise=True),
    )
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece(prefix="##")
    return _from_library(made, settings, ["cls"], ["sep"])


def gpt2_codec(settings: TokenizerSettings) -> LibraryCodec:
    """Read `vocab.json` and `merges.txt`: the pieces, and in which order they are made of others."""
    lines = _lines(settings, MERGES)
    merges = [_merge(line) for line in lines if line and not line.startswith("#version")]
    made = tokenizers.Tokenizer(models.BPE(table_of(settings, VOCABULARY), merges))
    space = settings.flag("add_prefix_space", otherwise=False)
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
    made.decoder = decoders.ByteLevel()
    before, behind = ([role] if settings.flag(f"add_{role}_token", otherwise=False) else [] for role in ("bos", "eos"))
    return _from_library(made, settings, before, behind)


def sentencepiece_codec(
    settings: TokenizerSettings,
    name: str,
    vocabulary: Mapping[str, int] | None = None,
    further: Mapping[str, int] | None = None,
    trim: bool = False,
) -> RenumberedCodec:
    """Read a SentencePiece model; see `RenumberedCodec` for the rest."""
    where = settings.path(name)
    content = settings.read(name, MAX_BYTES)
    codec = RenumberedCodec(content, vocabulary, further, trim, where)
    added = {token["content"]: token["id"] for token in _added(settings) if token["id"] not in codec.names}
    if not added:
        return codec
    if unheard := added.keys() - set(settings.special()):
        raise ValueError(f"the piece {brief(min(unheard))} was added to {name}; it needs a {TOKENIZER}")
    return RenumberedCodec(content, vocabulary, {**(further or {}), **added}, trim, where)


def count_pieces(settings: TokenizerSettings, name: str) -> int:
    """Return how many pieces a SentencePiece model has."""
    return len(read_sentencepiece(settings.read(name, MAX_BYTES), settings.path(name)).pieces)


def table_of(settings: TokenizerSettings, name: str) -> dict[str, int]:
    """Read a table of pieces and their tokens."""
    return checked_table(settings.table(name, MAX_TOKENIZER_BYTES))


def _lines(settings: TokenizerSettings, name: str) -> list[str]:
    """The lines of a text file."""
    text = settings.read(name, MAX_TOKENIZER_BYTES).decode("utf-8")
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")


def _merge(line: str) -> tuple[str, str]:
    first, _, second = line.partition(" ")
    if not first or not second or " " in second:
        raise ValueError(f"{MERGES} has the line {brief(line)}, which is not two pieces")
    return first, second


def _from_library(
    made: tokenizers.Tokenizer, settings: TokenizerSettings, before: Sequence[str], behind: Sequence[str]
) -> LibraryCodec:
    """A codec of what the library made of older files, with the special and added pieces that stand elsewhere.

    Special pieces of some roles stand before and behind a text.
    """
    content = json.loads(made.to_str())
    special = {*settings.special(), *settings.usual.values()}
    known = content["model"]["vocab"]
    added, tokens = _added(settings), set(known.values())
    content["added_tokens"] = [token for token in added if token["id"] not in tokens]
    names = {token["content"]: token["id"] for token in added} | known
    framing = [
        [(settings.piece(role) or role, settings.token(names, role)) for role in side] for side in (before, behind)
    ]
    content["post_processor"] = template(*framing)
    return LibraryCodec(content, special)


def template(before: Sequence[Framing], behind: Sequence[Framing]) -> Table:
    """How `tokenizer.json` says what stands before and behind a text, and behind the second one of a pair."""

    def sequence(name: str, number: int) -> Table:
        return {"Sequence": {"id": name, "type_id": number}}

    def pieces(framing: Sequence[Framing], number: int) -> list[Table]:
        return [{"SpecialToken": {"id": piece, "type_id": number}} for piece, _ in framing]

    single = [*pieces(before, 0), sequence("A", 0), *pieces(behind, 0)]
    tokens = {piece: {"id": piece, "ids": [token], "tokens": [piece]} for piece, token in (*before, *behind)}
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, sequence("B", 1), *pieces(behind, 1)],
        "special_tokens": tokens,
    }


def _added(settings: TokenizerSettings) -> list[Table]:
    """Pieces that were added to a vocabulary, as `tokenizer.json` would list them."""
    special = set(settings.special())
    listed = settings.get("added_tokens_decoder", {})
    added = settings.table(ADDED) if settings.has(ADDED) else {}
    found = [{"content": piece, "id": token, "special": piece in special} for piece, token in added.items()]
    for token, entry in listed.items() if isinstance(listed, dict) else ():
        if isinstance(entry, dict) and (number := counted(token)) is not None:
            found.append({"special": False, **entry, "id": number})
    by_token = {token["id"]: token for token in found if isinstance(token.get("content"), str)}
    return sorted(by_token.values(), key=lambda token: int(token["id"]))
