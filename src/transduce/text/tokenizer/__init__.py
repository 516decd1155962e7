"""Our own tokenizers and imported ones: what a model folder may hold."""

from __future__ import annotations

from pathlib import Path

from transduce.text.tokenizer.file import read_file
from transduce.text.tokenizer.imported import MARK, ImportedTokenizer
from transduce.text.tokenizer.tokenizer import Tokenizer

AnyTokenizer = Tokenizer | ImportedTokenizer


def is_joint(source: AnyTokenizer, target: AnyTokenizer) -> bool:
    """Whether one tokenizer serves both sides, be it as two objects that differ in what stands before a text."""
    return source is target or (isinstance(source, ImportedTokenizer) and source.to_json() == target.to_json())


def load_tokenizer(path: str | Path) -> AnyTokenizer:
    """Read the file of a tokenizer, of whichever kind it says it is."""
    text = read_file(Path(path))
    kind: type[Tokenizer] | type[ImportedTokenizer] = ImportedTokenizer if MARK.match(text) else Tokenizer
    return kind.from_json(text, str(path))
