"""The file of a shortlist: what was saved comes back, and nothing else is believed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.unit.copy_translator import tokenizer
from transduce.errors import MissingInput, TransduceError
from transduce.text.shortlist import Shortlist
from transduce.text.tokenizer.tokenizer import Tokenizer


def example(known: Tokenizer) -> Shortlist:
    """Token t may become t and t + 1."""
    tokens = np.stack([np.arange(known.size), (np.arange(known.size) + 1) % known.size], axis=1).ravel()
    return Shortlist(tokens, np.arange(known.size + 1) * 2, np.array([0, 1, 2]))


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    known = tokenizer("bpe")
    for name in ("one", "two"):
        example(known).save(tmp_path / name, known, known)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    found = Shortlist.load(tmp_path / "one", known, known)
    assert found.of([7, 11, 7]).tolist() == [0, 1, 2, 7, 8, 11, 12]
    assert found.of([]).tolist() == [0, 1, 2]


def test_other_tokenizers_are_rejected(tmp_path: Path) -> None:
    known, other = tokenizer("bpe"), tokenizer("unigram")
    example(known).save(tmp_path / "list", known, known)
    for pair in ((other, known), (known, other)):
        with pytest.raises(TransduceError, match="other tokenizers"):
            Shortlist.load(tmp_path / "list", *pair)


@pytest.mark.parametrize("place", [3, 30, 100, 250, -1, -5000])
def test_a_flipped_bit_is_found(place: int, tmp_path: Path) -> None:
    known = tokenizer("bpe")
    example(known).save(tmp_path / "list", known, known)
    content = bytearray((tmp_path / "list").read_bytes())
    content[place] ^= 1
    (tmp_path / "list").write_bytes(content)
    with pytest.raises(TransduceError, match="shortlist"):
        Shortlist.load(tmp_path / "list", known, known)


def test_lists_of_a_wrong_size_are_rejected(tmp_path: Path) -> None:
    known = tokenizer("bpe")
    whole = example(known)
    for wrong in (
        Shortlist(whole.tokens, whole.offsets[:-1], whole.always),
        Shortlist(whole.tokens[:-1], whole.offsets, whole.always),
        Shortlist(whole.tokens, whole.offsets, np.array([known.size])),
        Shortlist(whole.tokens, whole.offsets, np.array([-1])),
        Shortlist(whole.tokens.astype(np.float64), whole.offsets, whole.always),  # type: ignore[arg-type]
        Shortlist(whole.tokens, np.concatenate([[0, 4, 2], whole.offsets[3:]]), whole.always),
    ):
        wrong.save(tmp_path / "list", known, known)
        with pytest.raises(TransduceError, match="its lists do not fit these tokenizers"):
            Shortlist.load(tmp_path / "list", known, known)


def test_what_is_no_shortlist_is_rejected(tmp_path: Path) -> None:
    known = tokenizer("bpe")
    (tmp_path / "text").write_text("hello")
    (tmp_path / "empty").touch()
    save_file({"weight": np.zeros(3)}, tmp_path / "weights")
    for name in ("text", "empty", "weights"):
        with pytest.raises(TransduceError, match="is not a shortlist"):
            Shortlist.load(tmp_path / name, known, known)
    for name in ("missing", "."):
        with pytest.raises(MissingInput, match="cannot be read"):
            Shortlist.load(tmp_path / name, known, known)
