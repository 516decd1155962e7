"""A test set and what a translator's answers to it are worth, against sacrebleu and plain counting."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import sacrebleu

from tests.unit.copy_translator import copier
from transduce.errors import DataError, SettingsError
from transduce.evaluation.metrics import select_metrics
from transduce.inference.scoring import score_targets
from transduce.tasks.translation.evaluation import TestSet, compare_scores, read_test_set, score_translator, write_lines

SOURCES = [
    "the quick brown fox jumps over the lazy dog",
    "ten small cats sleep under one old tree, and one dog",
    "while ten cats sleep",
    "one old fox",
    "over the old dog ten small cats jumps",
]
ANSWERS = [
    "the quick brown fox jumps over a lazy dog",
    "ten small cats sleep under one old tree, and one dog",
    "while ten dogs sleep",
    "an old fox",
    "over the old dog ten small cats jumps high",
]
METRICS = select_metrics(["bleu", "chrf", "exact_match"])


def write(path: Path, lines: list[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def test_scores_are_those_of_sacrebleu_on_the_translations() -> None:
    """The translator copies, so its answers are the sources."""
    found = score_translator(copier("bpe"), TestSet(SOURCES, [[answer] for answer in ANSWERS]), METRICS, samples=17)
    assert found.translations == SOURCES
    bleu, chrf = sacrebleu.BLEU(), sacrebleu.CHRF()
    assert found.scores["bleu"].value == pytest.approx(bleu.corpus_score(SOURCES, [ANSWERS]).score, abs=1e-9)
    assert found.scores["chrf"].value == pytest.approx(chrf.corpus_score(SOURCES, [ANSWERS]).score, abs=1e-9)
    assert found.scores["bleu"].signature == str(bleu.get_signature())
    assert found.scores["exact_match"].value == pytest.approx(1 / 5)


def test_any_of_several_references_counts() -> None:
    references = [[answer] for answer in ANSWERS]
    references[0].append(SOURCES[0])
    found = score_translator(copier("bpe"), TestSet(SOURCES, references), select_metrics(["exact_match"]), samples=17)
    assert found.scores["exact_match"].value == pytest.approx(2 / 5)


def test_perplexity_and_accuracy_are_those_of_every_reference_token() -> None:
    translator, references = copier("bpe"), [[answer, "one dog"] for answer in ANSWERS]
    found = score_translator(translator, TestSet(SOURCES, references), METRICS, samples=17)
    scored = [
        score_targets(
            translator.model,
            [translator.source.encode(source)],
            [translator.target.encode(reference)],
            translator.source.specials,
            translator.target.specials,
        )[0]
        for source, several in zip(SOURCES, references, strict=True)
        for reference in several
    ]
    tokens = sum(len(one.hits) for one in scored)
    loss = -sum(one.log_probability for one in scored)
    assert found.perplexity == pytest.approx(math.exp(loss / tokens), rel=1e-5)
    assert found.accuracy == pytest.approx(sum(sum(one.hits) for one in scored) / tokens)


def test_intervals_lie_around_the_scores() -> None:
    found = score_translator(copier("bpe"), TestSet(SOURCES, [[answer] for answer in ANSWERS]), METRICS, samples=101)
    for name, interval in found.intervals.items():
        assert interval.low <= found.scores[name].value <= interval.high


def test_pairs_that_the_model_cannot_read_at_once_are_left_out_of_perplexity_and_counted() -> None:
    translator = copier("word", limit=6)
    found = score_translator(
        translator, TestSet(["one old fox", "one " * 9], [["one old fox"], ["one " * 9]]), METRICS, 17
    )
    assert found.unscored == 1
    assert found.accuracy == 1.0
    with pytest.raises(DataError, match="too long"):
        score_translator(translator, TestSet(["one " * 9], [["one"]]), METRICS, 17)


def test_options_are_those_of_the_search() -> None:
    found = score_translator(copier("word"), TestSet(["one old fox"], [["one"]]), METRICS, 17, {"max_length": 1})
    assert found.translations == ["one"]


def test_an_assessment_is_json_and_lines_to_read() -> None:
    found = score_translator(copier("bpe"), TestSet(SOURCES, [[answer] for answer in ANSWERS]), METRICS, samples=17)
    table = json.loads(json.dumps(found.to_json()))
    assert table["sentences"] == 5
    assert table["scores"]["bleu"]["value"] == found.scores["bleu"].value
    assert table["scores"]["bleu"]["signature"] == found.scores["bleu"].signature
    text = "\n".join(found.lines(METRICS))
    assert found.scores["bleu"].signature in text
    assert "95 % confidence interval" in text
    assert "token accuracy" in text


def test_two_translators_are_compared_metric_by_metric() -> None:
    test = TestSet(SOURCES, [[source] for source in SOURCES])
    good = score_translator(copier("bpe"), test, METRICS, samples=17)
    bad = score_translator(copier("bpe"), test, METRICS, 17, {"max_length": 2})
    found = compare_scores(good, bad, test, METRICS, samples=101)
    assert found.keys() == METRICS.keys()
    assert good.scores["exact_match"].value == 1.0
    assert bad.scores["exact_match"].value == 0.0


def test_a_test_set_of_two_files(tmp_path: Path) -> None:
    source, target = write(tmp_path / "a", SOURCES), write(tmp_path / "b", ANSWERS)
    assert read_test_set(source, [target], None) == TestSet(SOURCES, [[answer] for answer in ANSWERS])


def test_a_test_set_of_several_references(tmp_path: Path) -> None:
    source, targets = write(tmp_path / "a", SOURCES), [write(tmp_path / name, ANSWERS) for name in "bc"]
    assert read_test_set(source, targets, None).references == [[answer, answer] for answer in ANSWERS]
    short = write(tmp_path / "d", ANSWERS[:3])
    with pytest.raises(DataError, match="has 3 lines"):
        read_test_set(source, [targets[0], short], None)


def test_lines_of_one_file_with_the_same_source_belong_together(tmp_path: Path) -> None:
    path = write(tmp_path / "test.tsv", ["read\tR EH D", "cat\tK AE T", "read\tR IY D"])
    assert read_test_set(None, [], path) == TestSet(["read", "cat"], [["R EH D", "R IY D"], ["K AE T"]])


def test_a_test_set_that_is_not_named_or_empty_is_rejected(tmp_path: Path) -> None:
    empty = write(tmp_path / "empty", [])
    for arguments in ((None, [], None), ("a", [], None), ("a", ["b"], "c"), (None, ["b"], None)):
        with pytest.raises(SettingsError):
            read_test_set(*arguments)
    with pytest.raises(DataError, match="empty"):
        read_test_set(empty, [write(tmp_path / "other", [])], None)


def test_translations_are_written_one_a_line(tmp_path: Path) -> None:
    write_lines(tmp_path / "out.txt", ["one", "", "two\nlines", "東京"])
    assert (tmp_path / "out.txt").read_text(encoding="utf-8") == "one\n\ntwo lines\n東京\n"
