"""What becomes of the pairs of a corpus, and that every one of them is accounted for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.tasks.prepared import WORDS, counts, run, texts, tsv
from transduce.data.report import Report
from transduce.errors import SettingsError
from transduce.tasks.catalog import load_prepared, prepare
from transduce.tasks.translation import preparation as preparation_module
from transduce.tasks.translation.config import TranslationConfig
from transduce.text.tokenizer.tokenizer import TokenizerConfig


def test_a_hand_made_corpus_has_its_known_counts(tmp_path: Path) -> None:
    long = " ".join(["w"] * 12)
    train = [
        ("a b", "c d"),
        ("", "c"),
        ("a", " \u3000"),
        ("a b", "c d"),  # a duplicate
        ("a b", "c e"),  # same source, another target: not one
        ("same", "same"),
        (long, "c"),  # too long
        ("in test", "x"),  # leaked whole
        ("in test", "y"),  # its source leaked
        ("in validation", "z"),
        ("a b", "c d"),
    ]
    prepared = run(
        tmp_path,
        train,
        max_length=11,
        test=[("in test", "x"), ("t", "t")],
        validation=[("in validation", "v"), ("", "v")],
    )
    report = prepared.report
    assert counts(report.train) == {
        "empty": (2, 0),
        "copy": (0, 1),
        "leaked_pair": (1, 0),
        "leaked_source": (2, 0),
        "duplicate": (2, 0),
        "too_long": (1, 0),
    }
    assert texts(prepared) == [("a b", "c d"), ("a b", "c e"), ("same", "same")]
    assert [example.line for example in report.train.issues["duplicate"].examples] == [4, 11]
    assert report.test is not None and counts(report.test) == {"copy": (0, 1)}
    assert report.validation is not None and counts(report.validation) == {"empty": (1, 0)}
    assert texts(prepared, "validation") == [("in validation", "v")]


def test_rules_set_to_keep_drop_nothing(tmp_path: Path) -> None:
    train = [("a", "b"), ("a", "b"), ("c", "c"), ("t", "u")]
    prepared = run(tmp_path, train, duplicates="keep", leakage="keep", test=[("t", "u")])
    assert texts(prepared) == train
    assert counts(prepared.report.train) == {"copy": (0, 1), "leaked_pair": (0, 1), "duplicate": (0, 1)}
    dropping = run(tmp_path, train, duplicates="keep", copies="drop", test=[("t", "u")])
    assert texts(dropping) == [("a", "b"), ("a", "b")]


def test_a_pair_with_two_findings_is_dropped_for_the_first_only(tmp_path: Path) -> None:
    prepared = run(tmp_path, [("c", "c"), ("c", "c"), ("a", "b")], copies="drop")
    assert counts(prepared.report.train) == {"copy": (2, 0)}
    kept = run(tmp_path, [("c", "c"), ("c", "c"), ("a", "b")])
    assert counts(kept.report.train) == {"copy": (0, 1), "duplicate": (1, 0)}


def test_ratio_counts_a_short_side_as_five_tokens(tmp_path: Path) -> None:
    pairs = [(" ".join(["s"] * length), "t") for length in (10, 11)] + [(" ".join("s" * 14), " ".join("t" * 7))]
    pairs += [(" ".join("s" * 15), " ".join("t" * 7))]
    prepared = run(tmp_path, pairs, max_ratio=2, test=pairs, leakage="keep")
    assert [len(source.split()) for source, _ in texts(prepared)] == [10, 14]
    assert counts(prepared.report.train)["ratio"] == (2, 0)
    assert prepared.report.test is not None and counts(prepared.report.test) == {"ratio": (0, 2)}


def test_lines_of_absurd_length_are_never_tokenised(tmp_path: Path) -> None:
    prepared = run(tmp_path, [("a" * 401, "b"), ("a" * 400, "b")], max_length=10)
    assert counts(prepared.report.train) == {"too_long": (1, 0)}
    example = prepared.report.train.issues["too_long"].examples[0]
    assert example.source == "a" * 79 + "…"


def test_held_out_pairs_share_no_source_with_training(tmp_path: Path) -> None:
    train = [(f"source {row % 101}", f"target {row}") for row in range(1009)]
    prepared = run(tmp_path, train, validation_fraction=0.1)
    learnt, held = texts(prepared), texts(prepared, "validation")
    assert 81 < len(held) <= 101  # a tenth of the pairs, in whole sources of nine or ten
    assert not {source for source, _ in held} & {source for source, _ in learnt}
    assert sorted(learnt + held) == sorted(train)
    assert prepared.report.train.held_out == len(held)
    few = run(tmp_path, train, validation_fraction=0.5, validation_max_size=31)
    assert len({source for source, _ in texts(few, "validation")}) == 3
    assert len(texts(few, "validation")) <= 31
    assert {source for source, _ in texts(few, "validation")} < {source for source, _ in held}


def test_sources_with_many_pairs_do_not_empty_the_training_corpus(tmp_path: Path) -> None:
    train = [(f"source {row % 10}", f"target {row}") for row in range(3000)]
    prepared = run(tmp_path, train, validation_fraction=0.01)
    assert len(texts(prepared, "validation")) == 300  # one source, although one in a hundred was wanted
    assert len(prepared.train) == 2700


def test_a_source_with_more_pairs_than_are_wanted_is_passed_over(tmp_path: Path) -> None:
    many = [(f"many {source}", f"target {row}") for source in range(200) for row in range(3)]
    train = [*many, *[(f"source {row}", "x") for row in range(40)]]
    held = texts(run(tmp_path, train, validation_fraction=0.5, validation_max_size=2), "validation")
    assert 1 <= len(held) <= 2 and all(source.startswith("source") for source, _ in held)
    assert len(texts(run(tmp_path, many, validation_fraction=0.5, validation_max_size=2), "validation")) == 3
    for source in map(str, range(20)):  # whichever hash is smaller
        few = [("many", "a"), ("many", "b"), (source, "c")]
        assert texts(run(tmp_path, few, validation_fraction=0.3), "validation") == [(source, "c")]


def test_pairs_that_are_dropped_count_for_nothing_when_some_are_held_out(tmp_path: Path) -> None:
    train = [(f"source {row}", "x") for row in range(5)]
    heaviest = texts(run(tmp_path, train, validation_fraction=0.2), "validation")
    prepared = run(tmp_path, [*train, *heaviest * 40], validation_fraction=0.2)
    assert texts(prepared, "validation") == heaviest


def test_equal_pairs_of_two_languages_are_two_pairs(tmp_path: Path) -> None:
    for name in ("de", "nl"):
        (tmp_path / f"{name}.tsv").write_text(f"OK\tOK\nOK\tOK\na 3\td 3\nb\t{name}\n")
    train = [{"path": str(tmp_path / f"{name}.tsv"), "target_language": name} for name in ("de", "nl")]
    data = TranslationConfig.from_table({"train": train, "validation_fraction": 0.0}, "a test")
    report = prepare(data, TokenizerConfig(kind="word", min_frequency=1), tmp_path / "prepared")
    assert [corpus.kept for corpus in report.train.corpora] == [3, 3]


def test_a_single_source_is_not_held_out(tmp_path: Path) -> None:
    prepared = run(tmp_path, [("a", "b"), ("a", "c")], validation_fraction=0.5)
    assert prepared.validation is None
    assert len(prepared.train) == 2


def test_tokens_and_lengths_are_those_of_the_tokenizer(tmp_path: Path) -> None:
    prepared = run(tmp_path, [("a b c", "x"), ("ü", "日本 語")], TokenizerConfig(kind="byte"))
    for row in range(2):
        source, target = prepared.train.text(row)
        assert prepared.train.source(row).tolist() == prepared.source_tokenizer.encode(source)
        assert prepared.train.target(row).tolist() == prepared.target_tokenizer.encode(target)
    assert prepared.train.source_lengths[:].tolist() == [5, 2]
    assert prepared.source_tokenizer is prepared.target_tokenizer
    side = prepared.report.train.target
    assert (side.tokens, side.median, side.longest, side.unknown) == (11, 1, 10, None)


def test_unknown_tokens_are_counted(tmp_path: Path) -> None:
    prepared = run(tmp_path, [("a a", "b b"), ("a rare", "b")], WORDS.but(min_frequency=2, joint=False))
    assert prepared.report.train.source.unknown == 1
    assert prepared.report.train.target.unknown == 0
    assert any("1 unknown (25.00%)" in line for line in prepared.report.lines())


def test_large_vocabularies_take_four_bytes_a_token(tmp_path: Path) -> None:
    pairs = [(f"s{row}", f"t{row}") for row in range(33_000)]
    prepared = run(tmp_path, pairs, TokenizerConfig(kind="word", min_frequency=1, vocab_size=70_000))
    assert prepared.source_tokenizer.size == 66_004
    assert prepared.train.source(32_999).tolist() == prepared.source_tokenizer.encode("s32999")


def test_tokenizers_of_a_large_corpus_learn_from_a_fixed_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation_module, "TOKENIZER_PAIRS", 100)
    prepared = run(tmp_path, [(f"s{row}", f"t{row}") for row in range(1000)], WORDS)
    assert 60 < prepared.report.tokenizer_pairs < 140
    assert prepared.source_tokenizer.size == 2 * prepared.report.tokenizer_pairs + 4
    assert any("fixed sample" in line for line in prepared.report.lines())


def test_several_corpora_stand_one_after_the_other(tmp_path: Path) -> None:
    first = tsv(tmp_path / "first.tsv", [("a", "b"), ("", "b"), ("c", "d"), ("e", "e")])
    second = tsv(tmp_path / "second.tsv", [("f", "g"), ("in test", "h")]).but(weight=0.5)
    data = TranslationConfig(
        train=(first, second), test=tsv(tmp_path / "test.tsv", [("in test", "i")]), validation_fraction=0
    )
    prepare(data, WORDS, tmp_path / "out")
    prepared = load_prepared(tmp_path / "out")
    assert prepared.data == data
    assert texts(prepared) == [("a", "b"), ("c", "d"), ("e", "e"), ("f", "g")]
    assert prepared.train.corpora == ((3, 1.0), (1, 0.5))
    assert counts(prepared.report.train) == {"empty": (1, 0), "copy": (0, 1), "leaked_source": (1, 0)}
    assert prepared.report.train.corpora is not None
    for corpus in prepared.report.train.corpora:
        assert corpus.read == corpus.kept + corpus.held_out + sum(corpus.dropped.values())
    assert [corpus.dropped for corpus in prepared.report.train.corpora] == [{"empty": 1}, {"leaked_source": 1}]
    lines = list(prepared.report.lines())
    assert lines[2].endswith(
        "second.tsv: weight 0.5: 2 read, 1 kept, 1 dropped (the source occurs in validation or test)"
    )
    assert any(line.endswith("second.tsv: line 2: 'in test' | 'h'") for line in lines)


def test_a_pair_of_several_corpora_stays_where_it_weighs_most(tmp_path: Path) -> None:
    corpora = [
        tsv(tmp_path / "light.tsv", [("a", "b"), ("c", "d"), ("e", "f")]),
        tsv(tmp_path / "heavy.tsv", [("g", "h"), ("a", "b"), ("a", "b")]).but(weight=3.0),
        tsv(tmp_path / "light_too.tsv", [("c", "d"), ("i", "j")]),
    ]
    prepare(TranslationConfig(train=tuple(corpora), validation_fraction=0), WORDS, tmp_path / "out")
    prepared = load_prepared(tmp_path / "out")
    assert texts(prepared) == [("c", "d"), ("e", "f"), ("g", "h"), ("a", "b"), ("i", "j")]
    assert prepared.train.corpora == ((2, 1.0), (2, 3.0), (1, 1.0))
    assert counts(prepared.report.train) == {"duplicate": (3, 0)}


def test_sources_held_out_are_held_out_of_every_corpus(tmp_path: Path) -> None:
    corpora = [
        tsv(tmp_path / f"{name}.tsv", [(f"source {row % 101}", f"{name} {row}") for row in range(503)])
        for name in ("first", "second")
    ]
    prepare(TranslationConfig(train=tuple(corpora), validation_fraction=0.1), WORDS, tmp_path / "out")
    prepared = load_prepared(tmp_path / "out")
    learnt, held = texts(prepared), texts(prepared, "validation")
    assert 80 < len(held) <= 101 and len(learnt) + len(held) == 1006
    assert not {source for source, _ in held} & {source for source, _ in learnt}
    assert {target.split()[0] for _, target in held} == {"first", "second"}
    assert prepared.report.train.corpora is not None
    assert sum(corpus.held_out for corpus in prepared.report.train.corpora) == len(held)
    assert prepared.report.validation is not None and prepared.report.validation.corpora is None


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"train": []}, "empty; give at least one"),
        ({"train": [{"path": "a.tsv"}, {"path": "b.tsv", "wieght": 2.0}]}, "did you mean 'weight'?"),
        ({"train": [{"path": "a.tsv", "weight": 0.0}]}, "weight = 0.0"),
        ({"train": [{"path": "-", "format": "tsv"}, {"source": "-", "target": "a"}]}, "standard input"),
        ({"train": {"path": "a.tsv"}, "test": {"path": "b.tsv", "weight": 2.0}}, "leave it out of test"),
        ({"train": [3]}, "a corpus is a table"),
    ],
)
def test_impossible_mixtures_are_rejected(table: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence.replace("?", r"\?")):
        TranslationConfig.from_table(table, "here")


def test_a_mixture_is_read_back_from_its_table() -> None:
    table = {"train": [{"task": "copy", "size": 3, "weight": 2}, {"path": "b.tsv", "weight": 0.25}, {"path": "c.tsv"}]}
    data = TranslationConfig.from_table(table, "here")
    assert [corpus.weight for corpus in data.corpora] == [2.0, 0.25, None]
    assert TranslationConfig.from_table(data.to_table(), "here") == data


def test_the_report_reads_aloud_and_survives_json(tmp_path: Path) -> None:
    report = run(tmp_path, [("a b", "c"), ("", "x"), ("d", "d")]).report
    lines = list(report.lines())
    assert lines[0] == "train        3 pairs read, 2 kept, 1 dropped"
    assert lines[1].split() == ["dropped", "1", "a", "side", "is", "empty"]
    assert "line 2: '' | 'x'" in lines[2]
    assert lines[-1].startswith("note: 1 training target")
    assert Report.from_table(report.to_table(), "here") == report


def test_synthetic_tasks_are_prepared_like_files(tmp_path: Path) -> None:
    task = {"task": "reverse", "size": 500, "min_length": 5}
    data = TranslationConfig.from_table({"train": task, "test": {**task, "size": 50, "seed": 2}}, "here")
    prepare(data, WORDS, tmp_path / "out")
    prepared = load_prepared(tmp_path / "out")
    assert prepared.test is not None and len(prepared.test) == 50
    assert len(prepared.train) + prepared.report.train.held_out == 500
    source, target = prepared.train.text(0)
    assert source.split()[::-1] == target.split()
    assert prepared.data == data
