"""A shortlist as CTranslate2's vocabulary map: `vmap.txt` in a model's folder, used where `use_vmap` is asked for.

One line for each source piece: the piece, a tab, its candidates between spaces. The line without a piece holds what is
always a candidate. CTranslate2 adds the start, end and unknown tokens by itself, and takes the union over a batch.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from transduce.errors import SettingsError
from transduce.text.any_tokenizer import AnyTokenizer
from transduce.text.shortlist import Shortlist

NAME = "vmap.txt"


def refusal(source: AnyTokenizer, target: AnyTokenizer) -> str | None:
    """Why shortlists for these tokenizers cannot be written; None where they can."""
    separators = {" ", "\t", "\r", "\n"}
    for side, tokenizer in (("source", source), ("target", target)):
        if any(separators & set(piece) for piece in tokenizer.vocabulary):
            return f"the {side}'s {tokenizer.kind} tokenizer has pieces with spaces, which a vocabulary map cannot hold"
    return None


def write_map(shortlist: Shortlist, source: AnyTokenizer, target: AnyTokenizer, folder: Path) -> None:
    """Write the map into the folder of an exported model."""
    reason = refusal(source, target)
    if reason is not None:
        raise SettingsError(f"this shortlist cannot be exported: {reason}")
    pieces, tokens = target.vocabulary, shortlist.tokens.tolist()
    rows = zip(source.vocabulary, pairwise(shortlist.offsets.tolist()), strict=True)
    with (folder / NAME).open("w", encoding="utf-8", newline="\n") as file:
        file.write("\t" + " ".join(pieces[token] for token in shortlist.always.tolist()) + "\n")
        for piece, (start, end) in rows:
            if start < end:
                file.write(f"{piece}\t{' '.join(pieces[token] for token in tokens[start:end])}\n")
