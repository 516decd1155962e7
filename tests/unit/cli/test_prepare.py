"""`transduce prepare` where it meets the terminal; what it makes of corpora is tested with the data."""

from __future__ import annotations

import io
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from transduce.cli.main import run
from transduce.cli.progress import PreparationProgress
from transduce.tasks.catalog import load_prepared
from transduce.text.tokenizer.tokenizer import TokenizerConfig


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


def test_tokenizer_settings_that_are_not_given_are_chosen_as_in_training(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"{' '.join(str(row * row % 7919))}\t{' '.join(str(row))}\n" for row in range(100)]
    (place / "x.tsv").write_text("".join(lines))
    assert run(["prepare", "--path", "x.tsv", "--output", "new"]) == 0
    assert "chosen: the source is symbols, 10 different words" in capsys.readouterr().err
    assert run(["train", "--path", "x.tsv", "--prepared", "new", "--output", "never"]) == 2
    assert run(["train", "--path", "x.tsv", "--dry-run"]) == 0
    chosen = tomllib.loads(capsys.readouterr().out)["tokenizer"]
    assert load_prepared(place / "new").tokenizer == TokenizerConfig.from_table(chosen, "")
    assert run(["prepare", "--path", "x.tsv", "--joint", "--output", "one"]) == 0
    assert load_prepared(place / "one").tokenizer.kind == "word"


def test_standard_input_is_read_once_and_nothing_chosen_by_it(place: Path, typed: Callable[[bytes], None]) -> None:
    typed(b"a b\tc\nd\te f\n")
    assert run(["prepare", "--path", "-", "--set", "data.train.format=tsv", "--output", "new"]) == 0
    assert load_prepared(place / "new").tokenizer == TokenizerConfig()


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
