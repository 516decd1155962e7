"""Tokenizers: text <-> tokens, trained here or imported."""

from __future__ import annotations

from pathlib import Path

from transduce.text.tokenizer.base import read_file
from transduce.text.tokenizer.imported import MARK, ImportedTokenizer
from transduce.text.tokenizer.tokenizer import Tokenizer

AnyTokenizer = Tokenizer | ImportedTokenizer


def is_joint(source: AnyTokenizer, target: AnyTokenizer) -> bool:
    """Whether both sides share one vocabulary, possibly as two objects with different language prefixes."""
    return source is target or (isinstance(source, ImportedTokenizer) and source.to_json() == target.to_json())


def load_tokenizer(path: str | Path, vocabulary: int | None = None) -> AnyTokenizer:
    """Load the file of a tokenizer, trained here or imported; the model's vocabulary size bounds that of the file."""
    text = read_file(Path(path), vocabulary)
    kind: type[Tokenizer] | type[ImportedTokenizer] = ImportedTokenizer if MARK.match(text) else Tokenizer
    return kind.from_json(text, str(path))
