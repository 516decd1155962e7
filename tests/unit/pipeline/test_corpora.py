"""Corpora that stages write: cleaned, back-translated, distilled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from transduce.cli.main import run
from transduce.errors import DataError
from transduce.inference.segment import Translation
from transduce.pipeline.corpora import back_translate, distil
from transduce.pipeline.settings import Distillation


class Shouting:
    """Translates into capitals; the n best are the text without its last n words."""

    def translate(self, lines: list[str], n_best: int | None = None, **options: Any) -> list[Any]:
        assert options.pop("split") is False
        if n_best is None:
            return [line.upper() for line in lines]
        words = [line.upper().split() for line in lines]
        return [[Translation(" ".join(row[: len(row) - n]), -float(n)) for n in range(n_best)] for row in words]


def lines(folder: Path, name: str) -> list[str]:
    return (folder / name).read_text(encoding="utf-8").splitlines()


def test_back_translations_are_tagged_and_empty_lines_left_out(tmp_path: Path) -> None:
    (tmp_path / "mono").write_text("ein hund\n\n  \nzwei\thunde\n", encoding="utf-8")
    folder = tmp_path / "back"
    model: Any = Shouting()
    assert back_translate(model, [str(tmp_path / "mono")], folder, {}, "<BT>", lambda stage, count: None) == 2
    assert lines(folder, "source.txt") == ["<BT> EIN HUND", "<BT> ZWEI HUNDE"]
    assert lines(folder, "target.txt") == ["ein hund", "zwei hunde"]


def test_a_student_gets_the_best_all_or_the_nearest_translation(tmp_path: Path) -> None:
    model: Any = Shouting()
    pairs = [("a b c", "A B"), ("d e f", "D")]
    for method, expected in (
        ("best", ["A B C", "D E F"]),
        ("n_best", ["A B C", "A B", "A", "D E F", "D E", "D"]),
        ("interpolated", ["A B", "D"]),
    ):
        config = Distillation.from_table({"method": method, "n_best": 3}, "it")
        folder = tmp_path / method
        assert distil(model, iter(pairs), folder, config, lambda stage, count: None) == len(expected)
        assert lines(folder, "target.txt") == expected
        assert len(lines(folder, "source.txt")) == len(expected)


class Silent:
    """Translates everything as nothing."""

    def translate(self, lines: list[str], **options: Any) -> list[str]:
        return ["" for _ in lines]


def test_a_model_that_translates_nothing_is_to_blame_not_the_text(tmp_path: Path) -> None:
    (tmp_path / "mono").write_text("ein hund\nzwei hunde\n", encoding="utf-8")
    for model, message in ((Silent(), "all of 2 lines as empty"), (Shouting(), None)):
        translator: Any = model
        arguments = translator, [str(tmp_path / "mono")], tmp_path / "back", {}, "<BT>", lambda stage, count: None
        if message is None:
            assert back_translate(*arguments) == 2  # nothing of the first attempt is left
        else:
            with pytest.raises(DataError, match=message):
                back_translate(*arguments)
    (tmp_path / "mono").write_text("\n  \n", encoding="utf-8")
    with pytest.raises(DataError, match="no text"):
        back_translate(*arguments)


def test_the_command_accounts_for_every_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"word{number} more\twort{number} mehr" for number in range(20)]
    (tmp_path / "raw.tsv").write_text("\n".join([*rows, rows[3], "\tleer"]) + "\n", encoding="utf-8")
    arguments = ["clean", "--path", str(tmp_path / "raw.tsv"), "--output", str(tmp_path / "out")]
    assert run([*arguments, "--set", "language=false", "--set", "near_duplicates=false", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (
        report["kept"] == len(lines(tmp_path / "out", "source.txt")) == len(lines(tmp_path / "out", "target.txt")) == 20
    )
    removed = [json.loads(line) for line in lines(tmp_path / "out", "removed.jsonl")]
    assert [(row["line"], row["reason"]) for row in removed] == [(21, "duplicate"), (22, "empty")]
    assert json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8")) == report


def test_a_corpus_without_a_good_pair_names_the_reason_and_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "raw.tsv").write_text("English\tGerman\n" + "one two\teins zwei\n" * 9, encoding="utf-8")
    arguments = ["clean", "--path", str(tmp_path / "raw.tsv"), "--output", str(tmp_path / "out")]
    assert run([*arguments, "--set", "language=false", "--set", "max_length=3"]) == 65
    printed = capsys.readouterr().err
    assert "'English' and 'German' are read as the first pair; give --header" in printed
    assert f"a side is too long; {tmp_path / 'out' / 'removed.jsonl'} has each pair" in printed
    assert len(lines(tmp_path / "out", "removed.jsonl")) == 10
