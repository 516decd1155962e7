"""`transduce shortlist`, and what uses its file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import transduce
from tests.unit.cli.example import complaint
from transduce.cli.main import run
from transduce.text.shortlist import Shortlist


def test_a_run_gives_a_shortlist_and_says_what_it_covers(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["shortlist", "run"]) == 0
    message = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"counted      2\d\d pairs", message[0])
    assert message[-1] == "shortlist    run/shortlist.safetensors"
    covered = next(line for line in message if line.startswith("covered"))
    assert re.search(r"100.00 % of the reference tokens, 100.0 % of whole references \(\d+ pairs\)", covered)
    translator = transduce.load("run")
    known = Shortlist.load("run/shortlist.safetensors", translator.source, translator.target)
    assert {*translator.target.encode("a"), translator.target.end} <= {
        *known.of(translator.source.encode("a")).tolist()
    }


def test_a_small_list_covers_less(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["shortlist", "run", "--per-token", "1", "--frequent", "0", "--output", "small"]) == 0
    message = capsys.readouterr().out
    assert "4 for all" in message
    share = re.search(r"covered +([\d.]+) %", message)
    assert share is not None
    assert 50.0 < float(share[1]) <= 100.0
    assert Path("small").is_file()


def test_another_corpus_is_counted_where_it_is_given(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        Path(f"{name}.many").write_text("a b c\n" * 250)
    files = ["--source", "a.many", "--target", "b.many", "--output", "list"]
    assert run(["shortlist", "run", *files]) == 0
    assert "counted      250 pairs" in capsys.readouterr().out
    assert run(["shortlist", "run/model", *files]) == 0
    message = capsys.readouterr().out
    assert "counted      248 pairs" in message
    assert "100.0 % of whole references (2 pairs)" in message


def test_pairs_with_an_empty_side_are_counted(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.some").write_text("a b\n\nc\n")
    Path("b.some").write_text("a b\nc\n\n")
    assert run(["shortlist", "run", "--source", "a.some", "--target", "b.some", "--output", "list"]) == 0
    assert "empty        2 pairs have nothing on one side" in capsys.readouterr().out
    Path("a.some").write_text("\n\n\n")
    assert run(["shortlist", "run", "--source", "a.some", "--target", "b.some", "--output", "none"]) == 65
    assert "none of the 3 pairs can be aligned: 3 have an empty side" in complaint(capsys.readouterr())
    assert not Path("none").exists()


def test_a_corpus_too_small_to_hold_anything_out_is_not_measured(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["shortlist", "run/model", "--source", "a.txt", "--target", "b.txt", "--output", "list"]) == 0
    assert "not measured: there is no validation set" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["run/model"], 66, "run/model: "),
        (["run", "--source", "a.txt"], 2, "source"),
        (["run", "--source", "no.txt", "--target", "b.txt"], 66, "no.txt"),
        (["run", "--per-token", "0"], 2, "--per-token"),
        (["nowhere"], 66, "nowhere: "),
    ],
)
def test_what_cannot_be_counted_is_rejected(
    words: list[str], code: int, message: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["shortlist", *words]) == code
    assert message in complaint(capsys.readouterr())
    assert not Path("run/shortlist.safetensors").exists()


@pytest.mark.parametrize("engine", ["torch", "auto"])
def test_translations_are_made_of_candidates(engine: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was never seen together leaves each token itself; CTranslate2 unites the lists of both lines."""
    Path("a.only").write_text("a\n" * 3)
    files = ["--source", "a.only", "--target", "a.only", "--frequent", "1"]
    assert run(["shortlist", "run", *files, "--output", "list"]) == 0
    capsys.readouterr()
    options = [
        "--min-length",
        "3",
        "--stop-rule",
        "beam_finished",
        "--length-normalization",
        "power",
        "--engine",
        engine,
    ]
    assert run(["translate", "run", "a.txt", "--shortlist", "list", *options]) == 0
    first, second = ({*line.split()} - {"<unk>"} for line in capsys.readouterr().out.splitlines())
    assert first | second <= {*"abcde"}
    if engine == "torch":
        assert first <= {*"abc"}
        assert second <= {*"ade"}


def test_a_foreign_or_damaged_shortlist_is_rejected(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["translate", "run", "a.txt", "--shortlist", "a.txt"]) == 65
    assert "a.txt: is not a shortlist" in complaint(capsys.readouterr())
    assert run(["export", "run", "--to", "ctranslate2", "--output", "out", "--shortlist", "missing"]) == 66
    assert "missing: cannot be read" in complaint(capsys.readouterr())
    assert not Path("out").exists()


def test_an_export_has_the_map(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed; pip install 'transduce[fast]'")
    assert run(["shortlist", "run"]) == 0
    words = ["--to", "ctranslate2", "--output", "out", "--shortlist", "run/shortlist.safetensors"]
    assert run(["export", "run", *words]) == 0
    always, *others = Path("out/vmap.txt").read_text(encoding="utf-8").splitlines()
    assert always.startswith("\t") and "</s>" in always.split()
    assert {"a", "b", "c"} <= {line.split("\t")[0] for line in others}
