"""`transduce prepare` where it meets the terminal; what it makes of corpora is tested with the data."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from transduce.cli.corpus import PreparationProgress
from transduce.cli.main import run
from transduce.data.store import load_prepared


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_plain_lines(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prepare", "--recipe", "recipe.toml", "--output", "new"]) == 0
    shown = capsys.readouterr()
    assert shown.err.splitlines()[0] == "reading validation …"
    assert shown.out.splitlines()[-1] == "prepared     new"
    assert not {"\x1b", "\r"} & set(shown.err + shown.out)


def test_a_terminal_gets_one_line_that_is_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with PreparationProgress() as progress:
        progress.show("reading train", 7)
        progress.show("reading train", 9)  # too soon to be shown
        progress.show("tokenising", 11)
    assert terminal.getvalue() == "\r\x1b[Kreading train: 7\r\x1b[Ktokenising: 11\r\x1b[K"


def test_examples_in_the_report_cannot_steer_the_terminal(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "x.tsv").write_text("\x1b[2Ja\t\nb\tc\nd\te\n")
    assert run(["prepare", "--path", "x.tsv", "--tokenizer", "byte", "--output", "new"]) == 0
    shown = capsys.readouterr().out
    assert r"'\x1b[2Ja' | ''" in shown and "\x1b" not in shown


def test_an_earlier_preparation_is_replaced_and_a_stranger_s_tokenizer_is_not_read(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "prepare",
        "--source",
        "a.txt",
        "--target",
        "b.txt",
        "--separate",
        "--tokenizer",
        "byte",
        "--output",
        "o",
    ]
    assert run(command) == 0
    (place / "o/tokenizer.json").write_text("not ours")
    assert load_prepared(place / "o").source_tokenizer.kind == "byte"
    assert run(command) == 0
    assert not (place / "o/tokenizer.json").exists()


@pytest.mark.parametrize("weight", ["-2", "0", "1e30"])
def test_a_prepared_corpus_has_the_weights_of_any_other(
    place: Path, capsys: pytest.CaptureFixture[str], weight: str
) -> None:
    mix = f"prepared=run,split=train,weight={weight}"
    assert run(["prepare", "--recipe", "recipe.toml", "--mix", mix, "--output", "new"]) == 2
    assert "weight" in capsys.readouterr().err and not Path("new").exists()
