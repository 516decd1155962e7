from __future__ import annotations

import json
from pathlib import Path

import pytest

from transduce.cli.main import run
from transduce.tasks.catalog import load_prepared


@pytest.fixture
def pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"source {row}\ttarget {row}\n" for row in range(200)) + "\tempty\n", encoding="utf-8")
    return path


def test_a_tsv_becomes_a_folder_and_a_report(pairs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prepare", "--path", "pairs.tsv", "--tokenizer", "byte", "--output", "out"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("train        201 pairs read, 198 kept, 1 dropped, 2 held out for validation\n")
    assert shown.err.splitlines()[-3:] == ["reading train …", "training the tokenizer …", "tokenising train …"]
    assert len(load_prepared(Path("out")).train) == 198


def test_two_files_options_and_json(pairs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.txt").write_text("eins\nzwei\n")
    Path("b.txt").write_text("one\ntwo\n")
    options = ["--source", "a.txt", "--target", "b.txt", "--validation-path", "pairs.tsv", "--separate"]
    assert (
        run(
            [
                "prepare",
                *options,
                "--tokenizer",
                "character",
                "--vocab-size",
                "300",
                "--output",
                "o",
                "--format",
                "json",
            ]
        )
        == 0
    )
    report = json.loads(capsys.readouterr().out)
    assert report["train"]["kept"] == 2 and report["validation"]["kept"] == 200 and report["joint"] is False


def test_a_recipe_is_read_and_options_go_over_it(pairs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("recipe.toml").write_text(
        '[data]\ntrain = {task = "copy", size = 50}\nmax_length = 7\nvalidation_fraction = 0\n'
        '[tokenizer]\nkind = "word"\n[model]\nnum_layers = 3\n'
    )
    assert run(["prepare", "--recipe", "recipe.toml", "--output", "o", "--format", "json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["train"]["read"] == 50 and first["train"]["source"]["longest"] == 7
    command = ["prepare", "--recipe", "recipe.toml", "--path", "pairs.tsv", "--set", "data.max_length=20"]
    assert run([*command, "--output", "o", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["train"]["read"] == 201


def test_more_corpora_are_mixed_in(pairs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.txt").write_text("eins\nzwei\n")
    Path("b.txt").write_text("one\ntwo\n")
    more = ["--mix", "source=a.txt,target=b.txt,weight=2.5", "--set", "data.validation_fraction=0"]
    assert (
        run(["prepare", "--path", "pairs.tsv", *more, "--tokenizer", "byte", "--output", "o", "--format", "json"]) == 0
    )
    corpora = json.loads(capsys.readouterr().out)["train"]["corpora"]
    assert [(corpus["name"], corpus["weight"], corpus["kept"]) for corpus in corpora] == [
        ("pairs.tsv", 1.0, 200),
        ("a.txt, b.txt", 2.5, 2),
    ]
    assert load_prepared(Path("o")).train.corpora == ((200, 1.0), (2, 2.5))


def test_impossible_options_are_rejected(pairs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = ["--path", "pairs.tsv"]
    for options, code, fact in [
        ([], 2, "no training corpus"),
        (["--path", "none.tsv"], 66, "none.tsv"),
        ([*path, "--source", "x"], 2, "source"),
        ([*path, "--tokenizer", "wrod"], 2, "wrod"),
        ([*path, "--vocab-size", "-1"], 2, "vocab_size = -1"),
        ([*path, "--set", "data.max_lenght=3"], 2, "did you mean 'max_length'?"),
        ([*path, "--set", "data=3"], 2, "'data' must be a table"),
        ([*path, "--set", "data.max_ratio=nan"], 2, "max_ratio"),
        ([*path, "--set", "data.max_length=1"], 65, "201"),
        ([*path, "--mix", "more.tsv"], 2, "--mix more.tsv: "),
        ([*path, "--mix", "path=pairs.tsv,weight=much"], 2, "weight = 'much'"),
        (["--recipe", "none.toml"], 66, "none.toml"),
        (["--recipe", "pairs.tsv"], 2, "TOML"),
    ]:
        assert run(["prepare", *options, "--output", "out"]) == code, options
        lines = capsys.readouterr().err.splitlines()
        errors = [line for line in lines if not line.endswith("…") and not line.startswith("chosen: ")]
        assert len(errors) == 1 and fact in errors[0]
        assert sorted(path.name for path in pairs.parent.iterdir()) == ["pairs.tsv"]


def test_units_of_a_memory_and_a_catalogue_are_counted_by_reason(
    pairs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unit = "<tu><tuv xml:lang='en'><seg>source {0}</seg></tuv><tuv xml:lang='{1}'><seg>target {0}</seg></tuv></tu>"
    units = "".join(unit.format(row, "fr" if row % 10 == 0 else "de") for row in range(200))
    Path("memory.tmx").write_text(f"<tmx><header srclang='en'/><body>{units}</body></tmx>")
    messages = "".join(f'{"#, fuzzy" * (row < 5)}\nmsgid "m {row}"\nmsgstr "n {row}"\n' for row in range(50))
    Path("messages.po").write_text(messages + '\nmsgid "open"\nmsgstr ""\n')
    common = ["--tokenizer", "byte", "--format", "json", "--output", "out"]
    assert run(["prepare", "--path", "memory.tmx", "--source-language", "en", "--target-language", "de", *common]) == 0
    report = json.loads(capsys.readouterr().out)["train"]
    assert report["read"] == 200 and report["issues"]["other_language"]["dropped"] == 20
    assert report["kept"] + report["held_out"] == 180
    assert run(["prepare", "--path", "messages.po", *common]) == 0
    report = json.loads(capsys.readouterr().out)["train"]
    assert {reason: issue["dropped"] for reason, issue in report["issues"].items()} == {"untranslated": 1, "fuzzy": 5}


def test_several_source_columns_of_a_csv_are_joined(pairs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f'"l,{row}",f{row},x,t{row}\n' for row in range(30))
    Path("words.data").write_text(f"lemma,features,other,form\n{rows}")
    columns = ["--source-column", "lemma", "--source-column", "2", "--target-column", "form", "--separator", " + "]
    options = ["--path", "words.data", "--path-format", "csv", *columns, "--set", "data.validation_fraction=0"]
    assert run(["prepare", *options, "--tokenizer", "byte", "--output", "out"]) == 0
    assert next(load_prepared(Path("out")).train.texts()) == ("l,0 + f0", "t0")
    assert run(["prepare", "--source", "a", "--target", "b", "--source-column", "1", "--output", "o"]) == 2
    assert "--path" in capsys.readouterr().err
