"""Text: lines, corpora, documents, sentence splitting and tokenizers. No torch here."""

from __future__ import annotations

from transduce.text.corpus import CorpusFiles, Pair, normalise, read_lines, read_pairs
from transduce.text.tokenizer.special import KINDS, LOSSLESS, Kind, Specials
from transduce.text.tokenizer.tokenizer import Tokenizer, TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer, train_tokenizers

__all__ = [
    "KINDS",
    "LOSSLESS",
    "CorpusFiles",
    "Kind",
    "Pair",
    "Specials",
    "Tokenizer",
    "TokenizerConfig",
    "normalise",
    "read_lines",
    "read_pairs",
    "train_tokenizer",
    "train_tokenizers",
]
