"""The pieces that vocabularies have before anything is learned: special ones, and one for each byte."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

Kind = Literal["bpe", "unigram", "wordpiece", "word", "character", "byte"]

KINDS: tuple[Kind, ...] = get_args(Kind)
LOSSLESS: frozenset[Kind] = frozenset(("bpe", "unigram", "character", "byte"))

PAD, START, END, UNKNOWN = "<pad>", "<s>", "</s>", "<unk>"
"""Special pieces: tokens 0, 1, 2, and 3 for the kinds that can meet something unknown."""


MASK = "<mask>"
"""Stands where a piece was hidden; only tokenizers made for readers have it, as their last token."""
SENTINELS = 100
"""How many sentinels a vocabulary usually has: tokens that stand for what was taken out of a text."""


def sentinel_pieces(count: int) -> list[str]:
    """Return the pieces of sentinels, in their order, spelled as T5's."""
    return [f"<extra_id_{number}>" for number in range(count)]


def special_pieces(kind: Kind) -> list[str]:
    """Return the special pieces of a kind, in the order of their tokens."""
    return [PAD, START, END] if kind in LOSSLESS else [PAD, START, END, UNKNOWN]


def min_vocab_size(kind: Kind) -> int:
    """Return how many tokens a tokenizer of this kind has at least."""
    if kind in LOSSLESS:
        return len(special_pieces(kind)) + 256
    return len(special_pieces(kind)) + (
        2 if kind == "wordpiece" else 1
    )  # a character that starts a word and goes on in one


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
    """Return what a piece of a byte-level vocabulary says; bytes that are no whole character as `<0xNN>`.

    A piece that is not made of such symbols, as special ones are, stands as it is.
    """
    if not BYTE_OF.keys() >= set(piece):
        return piece
    text = bytes(BYTE_OF[symbol] for symbol in piece).decode("utf-8", errors="surrogateescape")
    return "".join(f"<0x{ord(c) - 0xDC00:02X}>" if 0xDC80 <= ord(c) <= 0xDCFF else c for c in text)


BYTE_OF = {symbol: byte for byte, symbol in enumerate(byte_symbols())}
"""The byte that each symbol of a byte-level vocabulary stands for."""


# The tokens that frame a sentence.


class Specials(NamedTuple):
    """Ids of one side's special tokens."""

    pad: int
    start: int
    end: int
