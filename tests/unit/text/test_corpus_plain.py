from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from tests.unit.imported_tokenizers import t5
from transduce.errors import DataError, MissingInput
from transduce.text import corpus as plain
from transduce.text.corpus import DocumentPart, TextFile, encode_pieces, read_documents
from transduce.text.tokenizer.special import KINDS, LOSSLESS
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer

TEXT = "\n\none\n two \n\n \n\nthree\nfour\n"


def documents(path: Path, rule: str, content: str | bytes = TEXT) -> list[str]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    pieces = list(read_documents(TextFile.from_table({"text": str(path), "document": rule}, "a test")))
    assert all(piece.begins for piece in pieces)
    return [piece.text for piece in pieces]


def test_documents_stand_between_blank_lines_or_are_lines_or_the_file(tmp_path: Path) -> None:
    assert documents(tmp_path / "a", "blank") == ["one\n two ", "three\nfour"]
    assert documents(tmp_path / "a", "line") == ["", "", "one", " two ", "", " ", "", "three", "four"]
    assert documents(tmp_path / "a", "file") == [TEXT]


def test_a_file_may_be_compressed_lack_its_last_line_break_or_be_empty(tmp_path: Path) -> None:
    assert documents(tmp_path / "a.gz", "file", gzip.compress(TEXT.encode())) == [TEXT]
    assert documents(tmp_path / "a", "file", "a\r\nb") == ["a\nb\n"]
    for rule in ("blank", "line", "file"):
        assert documents(tmp_path / "a", rule, "") == []
    with pytest.raises(MissingInput, match=r"none\.txt"):
        list(read_documents(TextFile(text="none.txt")))


@pytest.fixture
def long_text(monkeypatch: pytest.MonkeyPatch) -> str:
    """A text with every kind of white space between every kind of word, and pieces of 16 characters."""
    monkeypatch.setattr(plain, "PART_CHARACTERS", 16)
    draw = random.Random(1)
    parts = ["a", "bc", " ", "  ", "\n", "\n\n", " \n", "\t", "\u00a0", "漢字", "é", ".", "12", "'s", " x"]
    return "x" + "".join(draw.choice(parts) for _ in range(3000)) + "y"


@pytest.mark.parametrize("kind", KINDS)
def test_the_tokens_of_a_long_document_do_not_depend_on_where_it_was_cut(
    kind: str, long_text: str, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text(long_text, encoding="utf-8", newline="")
    pieces = list(read_documents(TextFile(text=str(tmp_path / "a"), document="file")))
    whole = f"{long_text}\n"
    assert len(pieces) > 100 and [piece.begins for piece in pieces].count(True) == 1
    assert "".join(piece.text for piece in pieces) == whole
    config = TokenizerConfig(kind=kind, vocab_size=450, min_frequency=1)  # type: ignore[arg-type]
    tokenizer = train_tokenizer(kind, [long_text[at : at + 90] for at in range(0, 2000, 90)], config)
    tokens = [token for row in encode_pieces(tokenizer, pieces) for token in row]
    assert tokens == tokenizer.encode(whole)
    if kind in LOSSLESS:
        assert tokenizer.decode(tokens) == whole


def test_so_do_those_of_an_imported_tokenizer(long_text: str) -> None:
    tokenizer = t5()
    pieces = list(plain._pieces([long_text]))
    assert len(pieces) > 100
    assert [token for row in encode_pieces(tokenizer, pieces) for token in row] == tokenizer.encode(long_text)


def test_white_space_without_end_is_looked_at_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    monkeypatch.setattr(plain, "PART_CHARACTERS", 16)
    usual = plain._place
    monkeypatch.setattr(plain, "_place", lambda text: looks.append(len(text)) or usual(text))
    pieces = list(plain._pieces(["a", *["\n"] * 10_000, "b"]))
    assert "".join(piece.text for piece in pieces) == f"a{10_000 * chr(10)}b"
    assert sum(looks) < 40_000


def test_a_text_without_white_space_is_cut_for_letters_and_rejected_for_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "PART_CHARACTERS", 16)
    monkeypatch.setattr(plain, "MAX_CHARACTERS", 50)
    pieces = list(plain._pieces(["acgt" * 30]))
    assert [len(piece.text) for piece in pieces] == [50, 50, 20]
    letters = train_tokenizer("character", ["acgt"], TokenizerConfig(kind="character"))
    assert sum(map(len, encode_pieces(letters, pieces))) == 120
    words = train_tokenizer("bpe", ["acgt"] * 3, TokenizerConfig(kind="bpe"))
    with pytest.raises(DataError, match="no space or line break within 50 characters"):
        encode_pieces(words, pieces)


def test_sentinels_are_tokens_that_no_text_can_spell() -> None:
    for kind in KINDS:
        config = TokenizerConfig(kind=kind, vocab_size=500, min_frequency=1, sentinels=7)
        tokenizer = train_tokenizer(kind, ["to be <extra_id_3> or not to be"] * 3, config)
        assert len(tokenizer.sentinels) == 7
        assert tokenizer.pieces(tokenizer.sentinels[:2]) == ["<extra_id_0>", "<extra_id_1>"]
        spelled = tokenizer.encode("to be <extra_id_3> or")
        assert not {*spelled} & {*tokenizer.sentinels}, kind
        if kind != "wordpiece":
            assert tokenizer.decode(spelled) == "to be <extra_id_3> or"
        assert "<extra_id_0>" in tokenizer.decode([*spelled, tokenizer.sentinels[0]])
        assert encode_pieces(tokenizer, [DocumentPart("to be")]) == [tokenizer.encode("to be")]
        again = type(tokenizer).from_json(tokenizer.to_json(), "again")
        assert (again.sentinels, again.size) == (tokenizer.sentinels, tokenizer.size)
