"""`transduce reproduce`: what it lists, prints, writes and refuses."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import pytest

from transduce.cli.main import run
from transduce.reproduce import scaling
from transduce.reproduce.catalog import CLAIMS


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = scaling.Setting(key_dims=(4, 64), sentences=3, length=7)
    monkeypatch.setattr(scaling, "measure", partial(scaling.measure, setting=small))
    monkeypatch.chdir(tmp_path)


def test_without_a_name_it_lists_the_claims(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(CLAIMS)


def test_a_claim_is_printed_and_written(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra plot: pip install 'transduce[plot]' removes this skip")
    assert run(["reproduce", "scaling", "--seed", "3"]) == 0
    out, err = capsys.readouterr()
    assert "The claim holds" in out and "gradient at score" in out and "seed 3, threads 1" in out
    assert out.endswith("reproduced/scaling.json\nreproduced/scaling.md\nreproduced/scaling.svg\n")
    assert err == "width …\n"
    assert json.loads(Path("reproduced/scaling.json").read_text())["setting"]["seed"] == 3


def test_without_matplotlib_there_is_everything_but_the_picture(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert run(["reproduce", "scaling", "--output", "a/b"]) == 0
    out, err = capsys.readouterr()
    assert out.endswith("a/b/scaling.json\na/b/scaling.md\n")
    assert "no picture: matplotlib is not installed; pip install 'transduce[plot]'\n" in err
    assert not Path("a/b/scaling.svg").exists()


def test_an_unknown_name_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", "scalling"]) == 2
    assert capsys.readouterr().err == "error: there is no claim 'scalling' to reproduce; did you mean 'scaling'?\n"
    assert not Path("reproduced").exists()


def test_a_folder_that_cannot_be_written_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    Path("taken").write_text("")
    assert run(["reproduce", "scaling", "--output", "taken"]) == 73
    out, err = capsys.readouterr()
    assert out == "" and err == "error: taken: cannot be written (File exists); choose another place\n"
