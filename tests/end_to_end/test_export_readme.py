"""Every export folder explains itself: the lines of its README run as they are, and give the same text as ours."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import transduce
from tests.unit.cli.example import RECIPE
from transduce.cli.main import run

STORED = Path(__file__).parents[1] / "unit" / "stored"
TEXT = "a b c"


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learnt to reverse short texts."""
    folder = tmp_path_factory.mktemp("learnt")
    (folder / "recipe.toml").write_text(RECIPE)
    changes = ["updates=300", "validate_every=300", "learning_rate=0.005", "label_smoothing=0.0"]
    options = [word for change in changes for word in ("--set", f"training.{change}")]
    options += ["--set", "search.method='greedy'", "--set", "model.dropout=0.0", "--quiet"]
    assert run(["train", "--recipe", str(folder / "recipe.toml"), "--output", str(folder / "run"), *options]) == 0
    return folder / "run"


@pytest.fixture
def place(learnt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(learnt, "run")
    Path("a.txt").write_text(f"{TEXT}\n")
    return tmp_path


def block(folder: Path, language: str) -> str:
    """The one block of code of a README in this language, with a text that the model knows."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    return str(found).replace("some text", TEXT)


def printed_by_python(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    code = block(folder, "python")
    assert len(code.splitlines()) <= 5
    (folder.parent / "program.py").write_text(code)
    capsys.readouterr()
    runpy.run_path(str(folder.parent / "program.py"))
    return capsys.readouterr().out.strip()


def printed_by_command(folder: Path) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["sh", "-c", block(folder, "sh")], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()[-1]


def exported(kind: str, source: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    capsys.readouterr()
    assert run(["export", str(source), "--to", kind, "--output", f"exported-{kind}"]) == 0
    shown, folder = capsys.readouterr().err, Path(f"exported-{kind}")
    for line in block(folder, "python").splitlines():
        assert line.replace(TEXT, "some text") in shown  # what the command prints is what the README says
    return folder


def test_ctranslate2_by_hand_gives_our_text_without_special_tokens(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = exported("ctranslate2", Path("run"), capsys)
    expected = printed_by_command(folder)
    assert printed_by_python(folder, capsys) == expected != ""
    assert "<s>" not in expected and "<pad>" not in expected


def test_huggingface_gives_our_text(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = exported("huggingface", Path("run"), capsys)
    expected = transduce.load("run")(TEXT)
    assert printed_by_python(folder, capsys) == expected == printed_by_command(folder)


@pytest.mark.parametrize("task", ["language_modeling", "text_encoding"])
def test_other_models_run_as_their_readme_says(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(STORED / task, "model")
    assert printed_by_python(exported("huggingface", Path("model"), capsys), capsys)
    if task == "language_modeling":
        assert printed_by_python(exported("ctranslate2", Path("model"), capsys), capsys)


def test_a_command_on_an_export_says_what_it_is_and_what_to_do(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kind, words in (("ctranslate2", "--engine ctranslate2"), ("huggingface", "transduce import")):
        folder = exported(kind, Path("run"), capsys)
        assert run(["translate", str(folder), "a.txt"]) == 65
        assert words in capsys.readouterr().err
