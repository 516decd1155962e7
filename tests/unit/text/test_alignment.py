"""Alignments in Pharaoh format: what is read, and what is rejected with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from transduce.errors import DataError
from transduce.text.alignment import AlignmentFile, pharaoh, read_links, token_links


def test_links_are_read_and_written() -> None:
    links = read_links(" 1-0  0-1 1-0\t2-2", "a b c", "x y\u3000z", "a.align:1")
    assert links == [(0, 1), (1, 0), (2, 2)]
    assert pharaoh(links) == "0-1 1-0 2-2"
    assert read_links("", "a", "b", "a.align:2") == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0-0 1:1", "'1:1' is not a link"),
        ("0-0-0", "'0-0-0' is not a link"),
        ("0--1", "is not a link"),
        ("0", "is not a link"),
        ("0-0 1p1", "is not a link"),
        ("0-" + "9" * 5000, "is not a link"),
        ("\u0663-0", "is not a link"),
        ("0-0 3-0", "3-0 links source word 3, but the source has 3 words"),
        ("0-2", "0-2 links target word 2, but the target has 2 words"),
    ],
)
def test_a_bad_link_is_named_with_file_and_line(line: str, message: str) -> None:
    with pytest.raises(DataError, match=f"^train.align:7: .*{message}") as raised:
        read_links(line, "a b c", "x y", "train.align:7")
    assert len(str(raised.value)) < 300


def test_a_file_must_have_a_line_for_each_pair(tmp_path: Path) -> None:
    path = tmp_path / "train.align"
    path.write_text("0-0\n0-0\n")
    short, long = AlignmentFile(str(path)), AlignmentFile(str(path))
    for number in (1, 2):
        assert short.links("a", "b", number) == [(0, 0)]
    with pytest.raises(DataError, match=r"train.align: has 2 lines, fewer"):
        short.links("a", "b", 3)
    long.links("a", "b", 1)
    with pytest.raises(DataError, match=r"train.align: has more lines"):
        long.finish()


def test_every_token_of_linked_words_is_linked() -> None:
    source, target = [None, 0, 0, None, 1], [0, 1, 1]
    assert token_links([(0, 1), (1, 0)], source, target) == [(0, 4), (1, 1), (1, 2), (2, 1), (2, 2)]
    assert token_links([(5, 0)], source, target) == []  # a word that the tokenizer drops
