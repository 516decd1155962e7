"""Pieces that every vocabulary has before training: special tokens, and one for each byte."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

Kind = Literal["bpe", "unigram", "wordpiece", "word", "character", "byte"]

KINDS: tuple[Kind, ...] = get_args(Kind)
LOSSLESS: frozenset[Kind] = frozenset(("bpe", "unigram", "character", "byte"))

PAD, START, END, UNKNOWN = "<pad>", "<s>", "</s>", "<unk>"
"""Special tokens 0, 1, 2, and 3 for the kinds that are not lossless."""

MASK = "<mask>"
"""The mask token: the last token of tokenizers for text encoders."""
SENTINELS = 100
"""Default number of sentinels: tokens that replace what was removed from a text."""


def sentinel_pieces(count: int) -> list[str]:
    """Return the sentinels in order, spelled as T5's."""
    return [f"<extra_id_{number}>" for number in range(count)]


def special_pieces(kind: Kind) -> list[str]:
    """Return the special tokens of a kind in order."""
    return [PAD, START, END] if kind in LOSSLESS else [PAD, START, END, UNKNOWN]


def min_vocab_size(kind: Kind) -> int:
    """Return the smallest possible vocabulary size of a kind."""
    if kind in LOSSLESS:
        return len(special_pieces(kind)) + 256
    characters = 2 if kind == "wordpiece" else 1  # WordPiece: one at the start of a word, one within it
    return len(special_pieces(kind)) + characters


def byte_symbols() -> list[str]:
    """Return the printable character that stands for each byte 0..255 in a byte-level vocabulary.

    Printable Latin-1 bytes are themselves, the others follow from U+0100 on: the table of GPT-2 (Radford et al. 2019).
    """
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def byte_fallbacks() -> list[str]:
    """Return the piece of each byte 0..255 in a vocabulary of characters: `<0x00>` to `<0xFF>`."""
    return [f"<0x{byte:02X}>" for byte in range(256)]


def read_byte_symbols(piece: str) -> str:
    """Return the text of a byte-level piece; incomplete UTF-8 as `<0xNN>`. Special tokens are returned unchanged."""
    if not BYTE_OF.keys() >= set(piece):
        return piece
    text = bytes(BYTE_OF[symbol] for symbol in piece).decode("utf-8", errors="surrogateescape")
    return "".join(f"<0x{ord(c) - 0xDC00:02X}>" if 0xDC80 <= ord(c) <= 0xDCFF else c for c in text)


BYTE_OF = {symbol: byte for byte, symbol in enumerate(byte_symbols())}
"""The byte that each symbol of a byte-level vocabulary stands for."""


class Specials(NamedTuple):
    """Special token ids of one side."""

    pad: int
    start: int
    end: int
