"""The usual mistakes of docs/how-to/troubleshooting.md: each command prints exactly that line and ends with that code.

The page is the table of this test. Every row is one command line in a folder with the files of `files`.
"""

from __future__ import annotations

import gzip
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
import torch

from tests.documents.markdown import ROOT
from tests.unit.cli.example import change_config, complaint, snapshot
from transduce.cli.main import run

PAGE = (ROOT / "docs/how-to/troubleshooting.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (?!mistake)([^|]+) \| `([^`]+)` \| (`+)(error: .+)\3 \| (\d+) \|$", PAGE, re.MULTILINE)
"""Mistake, command, quotes, message, exit code."""
FEWEST = 25


@pytest.fixture
def files(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the commands of the page find: a trained model, a stopped run, an export, and files of all kinds."""
    shutil.copytree("run", "runs/de-en")
    change_config(notes={"source_language": "de", "target_language": "en"})(place / "runs/de-en/model")
    shutil.copytree("runs/de-en", "runs/stopped")
    shutil.rmtree("runs/stopped/model")
    shutil.copytree("run/model", "models/old")
    change_config(format=1)(place / "models/old")
    Path("exported").mkdir()
    Path("exported/config.json").write_text("{}")
    Path("exported/model.bin").write_bytes(b"")
    text = "".join(f"{letter} b c\n" for letter in "abcdefg")
    for name in ("letters.de", "letters.en"):
        Path(name).write_text(text)
    Path("short.en").write_text("a\n")
    Path("empty.de").write_text("")
    Path("empty.en").write_text("")
    Path("words.csv").write_text("lemma,tags,form\ngehen,PST,ging\nsehen,PST,sah\n")
    Path("one.tsv").write_text("one column\n")
    Path("old.de").write_bytes("a b\nschön\n".encode("latin-1"))
    Path("cut.de.gz").write_bytes(gzip.compress(text.encode() * 99)[:-9])
    Path("archive.gz").write_bytes(b"PK\x03\x04" + bytes(99))
    Path("letter.docx").write_bytes(b"PK\x03\x04" + bytes(99))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    return place


def test_there_are_enough_rows_and_each_is_read() -> None:
    table = [line for line in PAGE.partition("## Exit codes")[0].splitlines() if line.startswith("| ")]
    assert len(ROWS) >= FEWEST
    assert len(table) == len(ROWS) + PAGE.count("| mistake |")


def test_every_mistake_is_one_sentence_with_the_next_step(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    faults, before = {}, snapshot(files)
    for mistake, command, _, message, code in ROWS:
        program, *arguments = shlex.split(command)
        assert program == "transduce"
        capsys.readouterr()
        found = run(arguments)
        printed = complaint(capsys.readouterr())
        if (found, printed) != (int(code), message):
            faults[mistake] = (found, printed)
        assert snapshot(files) == before, mistake
    assert faults == {}
