"""`transduce score`: log-probabilities of pairs, perplexity, and n-best lists in another order."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import transduce
from tests.unit.cli.example import check_rejected
from transduce.cli.main import run

PAIRS = [("a b c", "c b a"), ("d", "d d"), ("", "e"), ("f g", "")]


@pytest.fixture
def pairs(place: Path) -> Path:
    Path("source.txt").write_text("".join(f"{source}\n" for source, _ in PAIRS))
    Path("target.txt").write_text("".join(f"{target}\n" for _, target in PAIRS))
    return place


def test_every_pair_has_a_line_and_the_corpus_a_perplexity(pairs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["score", "run", "--source", "source.txt", "--target", "target.txt"]) == 0
    out, err = capsys.readouterr()
    expected = [found for found in transduce.load("run").score(PAIRS) if found is not None]
    assert [float(line) for line in out.splitlines()] == pytest.approx([e.log_probability for e in expected], abs=1e-4)
    tokens = sum(len(target.split()) + 1 for _, target in PAIRS)
    perplexity = math.exp(-sum(found.log_probability for found in expected) / tokens)
    assert err == f"4 pairs, {tokens} tokens, perplexity {perplexity:.3f}\n"


def test_json_has_every_piece_with_its_score(pairs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["score", "run", "--source", "source.txt", "--target", "target.txt", "--format", "json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0]["pieces"][:3] == ["c", "b", "a"]
    for row in rows:
        assert len(row["pieces"]) == len(row["scores"])
        assert sum(row["scores"]) == pytest.approx(row["log_probability"], abs=1e-6)


def test_its_own_n_best_list_keeps_its_order(pairs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["translate", "run", "source.txt", "--n-best", "2", "--min-length", "1"]) == 0
    Path("list").write_text(capsys.readouterr().out)
    assert run(["score", "run", "--source", "source.txt", "--rerank", "list", "--n-best", "2"]) == 0
    found = [line.split(" ||| ") for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in found] == [line.split(" ||| ")[0] for line in Path("list").read_text().splitlines()]
    for (line, _, first), (again, _, second) in zip(found[::2], found[1::2], strict=False):
        assert line != again or float(first) >= float(second)


def test_an_ensemble_of_a_model_with_itself_changes_nothing(pairs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = []
    for more in ([], ["--ensemble", "run"]):
        assert run(["score", "run", "--source", "source.txt", "--target", "target.txt", *more]) == 0
        assert run(["translate", "run", "source.txt", *more]) == 0
        message.append(capsys.readouterr().out)
    assert message[0] == message[1]


def test_what_most_samples_agree_with_is_one_of_them(pairs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--seed", "1", "--min-length", "2"]
    assert run(["translate", "run", "source.txt", "--sample", "--n-best", "16", *options]) == 0
    drawn = [line.split(" ||| ")[:2] for line in capsys.readouterr().out.splitlines()]
    assert run(["translate", "run", "source.txt", "--mbr", "16", *options]) == 0
    for number, text in enumerate(capsys.readouterr().out.splitlines()):
        assert not text or [str(number), text] in drawn


def test_impossible_options_are_rejected(pairs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("beyond").write_text("99 ||| a ||| 0\n")
    score, source = ["score", "run"], ["--source", "source.txt"]
    translate = ["translate", "run", "source.txt"]
    cases = [
        (score, "source"),
        ([*score, *source, "--target", "target.txt", "--n-best", "2"], "--n-best needs --rerank"),
        ([*score, "--rerank", "source.txt"], "--rerank needs --source"),
        ([*score, *source, "--rerank", "target.txt"], "target.txt:1: "),
        ([*score, *source, "--rerank", "beyond"], "beyond: has no candidate for line 0 of source.txt"),
        ([*score, *source, "--target", "beyond"], "lines"),
        ([*translate, "--mbr", "8", "--beam-size", "3"], "--mbr and --beam-size"),
        ([*translate, "--mbr", "2", "--n-best", "3"], "--mbr"),
        ([*translate, "--ensemble", "nowhere"], "nowhere"),
    ]
    check_rejected(capsys, cases, codes=(2, 65, 66))
