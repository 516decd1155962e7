"""A pipeline's file: every mistake is one sentence with the file and the setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from transduce.cli.main import run
from transduce.config import write_toml
from transduce.errors import MissingInput, SettingsError
from transduce.pipeline.settings import PipelineConfig, read_pipeline

DATA: dict[str, Any] = {
    "train": {"source": "a", "target": "b"},
    "validation": {"path": "c.tsv"},
    "test": {"path": "d.tsv"},
    "monolingual": "e",
}


def test_mistakes_are_named_with_a_suggestion() -> None:
    for table, words in (
        ({"data": DATA, "teachr": {}}, "unknown setting 'teachr'; did you mean 'teacher'"),
        ({"data": DATA, "clean": {"similarty": 0.9}}, "unknown setting 'similarty'; did you mean 'similarity'"),
        ({"data": DATA, "skip": ["distill"]}, "'distill' is not a stage.*did you mean 'distil'"),
        ({"data": {**DATA, "train": {"source": "a"}}}, "source is given but target is not"),
        ({"data": {**DATA, "train": []}}, "list of corpora is empty"),
        ({"data": {**DATA, "monolingual": "-"}}, "standard input"),
        ({"data": {**DATA, "train": {"source": "a", "target": "b", "alignment": "c"}}}, "leave out alignment"),
        ({"data": {name: value for name, value in DATA.items() if name != "test"}}, "test' is required"),
        ({"data": DATA, "distillation": {"method": "n_best", "n_best": 9}}, "raise beam_size"),
        ({}, "'data' is required"),
        ({"data": {"train": DATA["train"]}}, "the settings 'data.validation' and 'data.test' are required"),
    ):
        with pytest.raises(SettingsError, match=words):
            PipelineConfig.from_table(table, "pipeline.toml")


def test_stages_follow_from_the_data_and_skip() -> None:
    every = PipelineConfig.from_table({"data": DATA}, "it").stages
    assert every[0] == "clean" and every[-1] == "evaluate" and "back-translate" in every
    without = {name: value for name, value in DATA.items() if name != "monolingual"}
    short = ["clean", "teacher", "distil", "student", "compress", "evaluate"]
    assert PipelineConfig.from_table({"data": without}, "it").stages == short
    skipping = {"data": DATA, "skip": ["back-translate", "compress"]}
    assert PipelineConfig.from_table(skipping, "it").stages == [name for name in short if name != "compress"]
    assert PipelineConfig.from_table({"data": without, "skip": ["distil"]}, "it").stages == [
        "clean",
        "teacher",
        "evaluate",
    ]


def test_files_must_exist_and_toml_must_be_valid(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.toml"
    path.write_text(write_toml({"data": DATA}))
    with pytest.raises(MissingInput, match=r"a: not found.*pipeline\.toml"):
        read_pipeline(path)
    path.write_text(write_toml({"data": DATA, "training": {"updates": 9}}))
    with pytest.raises(SettingsError, match=r"\[training\] is a table of a recipe.*\[teacher\.training\]"):
        read_pipeline(path)
    path.write_text("[data\n")
    with pytest.raises(SettingsError, match="not valid TOML"):
        read_pipeline(path)


def test_the_command_line_prints_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.tsv").write_text("a\tb\n")
    file = {"path": str(tmp_path / "a.tsv")}
    path = tmp_path / "pipeline.toml"
    path.write_text(write_toml({"data": {"train": file, "validation": file, "test": file}}))
    for arguments, code, words in (
        (["pipeline", str(path), "--output", str(tmp_path / "o"), "--until", "studnt"], 2, "did you mean 'student'"),
        (["pipeline", str(tmp_path / "none.toml"), "--output", "o"], 66, "cannot be read"),
        (["clean", "--path", file["path"], "--set", "simlarity=1", "--output", str(tmp_path / "o")], 2, "similarity"),
        (["clean", "--path", str(tmp_path / "none.tsv"), "--output", str(tmp_path / "o")], 66, "none.tsv"),
        (["back-translate", "none", file["path"], "--output", "o", "--top-k", "3"], 2, "--method sample"),
        (["distil", "none", "--path", file["path"], "--output", "o", "--n-best", "3"], 2, "n_best"),
        (["distil", str(tmp_path / "none"), "--path", file["path"], "--output", "o"], 66, "none"),
    ):
        assert run(arguments) == code
        printed = capsys.readouterr().err
        assert words in printed and printed.count("error:") == 1
    assert not (tmp_path / "o").exists()
