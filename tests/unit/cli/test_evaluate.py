"""`transduce evaluate`: scores with their signatures, intervals, and one run against another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sacrebleu

import transduce
from tests.unit.cli.example import complaint
from transduce.cli.main import run

FILES = ["--source", "a.txt", "--target", "b.txt"]


def test_the_numbers_are_those_of_sacrebleu(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = ["--metric", "bleu", "--metric", "chrf"]
    assert run(["evaluate", "run", *FILES, *metrics, "--format", "json", "--output", "out.txt"]) == 0
    found = json.loads(capsys.readouterr().out)
    translations = transduce.load("run").translate(["a b c", "d e"])
    assert (place / "out.txt").read_text().splitlines() == translations
    references = [["c b a", "e d"]]
    assert found["scores"]["bleu"]["value"] == sacrebleu.corpus_bleu(translations, references).score
    assert found["scores"]["chrf"]["value"] == sacrebleu.corpus_chrf(translations, references).score
    assert found["sentences"] == 2 and found["unscored_pairs"] == 0
    assert 0 <= found["token_accuracy"] <= 1 < found["perplexity"]


def test_a_person_reads_scores_with_signature_and_interval(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", "run", *FILES, "--samples", "20"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "run: 2 sentences"
    assert lines[1].startswith("perplexity ") and "token accuracy" in lines[1]
    assert lines[2].startswith("exact_match|nrefs:1|") and "95 %" in lines[2]  # the corpus is of symbols
    assert lines[3].startswith("BLEU|nrefs:1|case:mixed|")


def test_a_run_does_not_differ_from_itself(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--against", "run/model", "--metric", "exact_match", "--samples", "20"]
    assert run(["evaluate", "run", *FILES, *options]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("no significant difference")


def test_lines_with_one_source_are_all_its_references(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "x.tsv").write_text("a b\tb a\na b\tb\nc\tc\n")
    assert run(["evaluate", "run", "--path", "x.tsv", "--metric", "word_error_rate", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sentences"] == 2
    assert "nrefs:var" in found["scores"]["word_error_rate"]["signature"]


def test_a_pair_too_long_to_be_read_at_once_is_translated_and_counted(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "x").write_text("a " * 5000 + "\na b\n")
    (place / "y").write_text("a\nb a\n")
    assert run(["evaluate", "run", "--source", "x", "--target", "y", "--samples", "5"]) == 0
    assert "note: 1 pairs" in capsys.readouterr().out


def test_both_sides_cannot_be_stdin(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", "run", "--source", "-", "--target", "-"]) == 2
    assert "stdin" in complaint(capsys.readouterr())
