"""`transduce align` and what else says which words belong together."""

from __future__ import annotations

from pathlib import Path

import pytest

import transduce
from tests.unit.cli.example import check_rejected
from transduce.cli.main import run
from transduce.text.alignment import pharaoh


def test_pairs_are_aligned_line_by_line(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("s.txt").write_text("a b c\n\na " + "b " * 5000 + "\nc a\n")
    Path("t.txt").write_text("b b\na\na\nc\n")
    assert run(["align", "run", "--source", "s.txt", "--target", "t.txt"]) == 0
    shown = capsys.readouterr()
    expected = transduce.load("run").align([("a b c", "b b"), ("c a", "c")])
    assert shown.out.splitlines() == [pharaoh(expected[0] or ()), "", "", pharaoh(expected[1] or ())]
    assert "not aligned: 1" in shown.err
    assert len(expected[0] or ()) == 2


def test_translations_come_with_their_alignment(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("s.txt").write_text("a b c\n\n")
    assert run(["translate", "run", "s.txt", "--align", "--n-best", "2", "--engine", "torch"]) == 0
    for line in capsys.readouterr().out.splitlines():
        _, text, _, links = (field.strip() for field in line.split("|||"))
        assert len(links.split()) == len(text.split())


def test_a_model_without_attention_says_so(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("s.txt").write_text("a b c\n")
    assert run(["align", "run", "--source", "s.txt", "--target", "missing"]) != 0
    assert capsys.readouterr().err.startswith("error: missing: ")


def test_impossible_options_are_rejected(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("s.txt").write_text("a b c\n")
    cases = [
        (["--term", "a=", "--beam-size", "2"], "empty"),
        (["--terms", "s.txt"], "s.txt:1: "),
        (["--keep", "("], "regular expression"),
        (["--align", "--placeholders"], "--align and --placeholders"),
        (["--stream", "--n-best", "2"], "--stream and --n-best"),
        (["--beam-groups", "3", "--beam-size", "4"], "beam"),
        (["--coverage-penalty", "0.2", "--stop-rule", "exact"], "exact"),
        (["--term", "a=b", "--greedy"], "terms"),
    ]
    check_rejected(capsys, cases, "translate", "run", "s.txt", codes=(2, 65))


def test_a_stream_says_what_a_translation_says(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("s.txt").write_text("a b c\n\nc a. B a\n")
    assert run(["translate", "run", "s.txt", "--engine", "torch"]) == 0
    whole = capsys.readouterr().out
    assert run(["translate", "run", "s.txt", "--stream"]) == 0
    assert capsys.readouterr().out == whole
