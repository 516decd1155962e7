"""Alignments of prepared pairs: words become tokens, rows stay with their pairs, and what is missing is computed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.unit.tasks.prepared import WORDS, everything
from transduce.data.prepared import Prepared
from transduce.data.store import PairStore
from transduce.errors import DataError, SettingsError, TransduceError
from transduce.tasks.catalog import load_prepared, prepare
from transduce.tasks.translation.config import TranslationConfig
from transduce.text.corpus import CorpusFiles
from transduce.text.tokenizer.tokenizer import TokenizerConfig

Pairs = list[tuple[str, str, str]]
"""Source, target and alignment."""
PAIRS = [
    ("ein Hund läuft.", "a dog  runs.", "0-0 1-1 2-2"),
    ("die Katze schläft hier", "the cat sleeps", "0-0 1-1 2-2 3-2"),
    ("ein Hund läuft.", "a dog  runs.", "0-0"),  # a duplicate
    ("größere Häuser", "bigger houses 家", "1-1"),
    ("", "nothing", ""),
    ("nicht verbunden", "not linked", ""),
]


def corpus(folder: Path, pairs: Pairs, name: str = "train", aligned: bool = True, **settings: Any) -> CorpusFiles:
    for side, lines in zip(("source", "target", "align"), zip(*pairs, strict=True), strict=True):
        (folder / f"{name}.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    files = {side: str(folder / f"{name}.{side}") for side in ("source", "target")}
    alignment = {"alignment": str(folder / f"{name}.align")} if aligned else {}
    return CorpusFiles(**files, **alignment, **settings)


def run(folder: Path, train: Any, tokenizer: TokenizerConfig = WORDS, **settings: Any) -> Prepared:
    data = TranslationConfig(**{"train": train, "validation_fraction": 0, **settings})
    prepare(data, tokenizer, folder / "out")
    return load_prepared(folder / "out", thorough=True)


def links(prepared: Prepared) -> list[list[tuple[int, int]]]:
    """Of each row: target token, source token."""
    rows = prepared.train_as(PairStore).alignments
    assert rows is not None and len(rows) == len(prepared.train)
    return [list(map(tuple, rows[row].reshape(-1, 2).tolist())) for row in range(len(rows))]


def words_of(prepared: Prepared, side: int, row: int) -> list[int]:
    """The word of each token, by decoding ever more of them."""
    tokenizer = (prepared.source_tokenizer, prepared.target_tokenizer)[side]
    tokens = prepared.train_as(PairStore).pairs[side][row].tolist()
    decoded = [tokenizer.decode(tokens[: count + 1]) for count in range(len(tokens))]
    return [len(text.split()) - 1 if not text[-1:].isspace() else -1 for text in decoded]


@pytest.mark.parametrize("kind", ["word", "bpe", "unigram", "character", "byte", "feature", "wordpiece"])
def test_words_become_all_of_their_tokens_with_every_tokenizer(tmp_path: Path, kind: Any) -> None:
    prepared = run(tmp_path, corpus(tmp_path, PAIRS), TokenizerConfig(kind=kind, vocab_size=330, min_frequency=1))
    store = prepared.train_as(PairStore)
    given = {source: line for source, _, line in reversed(PAIRS)}
    for row, found in enumerate(links(prepared)):
        source, target = store.text(row)
        wanted = {tuple(map(int, link.split("-"))) for link in given[source].split()}
        sides = words_of(prepared, 0, row), words_of(prepared, 1, row)
        expected = [
            (t, s) for t, word in enumerate(sides[1]) for s, other in enumerate(sides[0]) if (other, word) in wanted
        ]
        assert found == expected, (source, target)
    report = prepared.report.alignment
    assert report is not None and report.links == sum(map(len, links(prepared)))
    assert (report.pairs, report.unusable) == (3, 0)
    assert any(line.startswith("aligned ") for line in prepared.report.lines())


def test_an_alignment_whose_words_the_tokenizer_splits_elsewhere_is_counted(tmp_path: Path) -> None:
    """A control character is white space, but not to a word tokenizer."""
    prepared = run(tmp_path, corpus(tmp_path, [("a b", "c d", "1-1"), ("a\x1fb", "c d", "1-1")]))
    assert links(prepared) == [[(1, 1)], []]
    assert "1 given alignments not used" in "\n".join(prepared.report.lines())


def language(count: int, seed: int) -> Pairs:
    """Word s3 is t3, and the order is reversed."""
    draw, pairs = random.Random(seed), []
    for _ in range(count):
        row = draw.sample(range(20), draw.randint(3, 6))
        target = " ".join(f"t{word}" for word in reversed(row))
        pairs.append((" ".join(f"s{word}" for word in row), target, "0-0"))
    return pairs


def test_a_corpus_without_a_file_is_aligned_by_cooccurrence(tmp_path: Path) -> None:
    first = corpus(tmp_path, language(60, 1), "first", weight=2.0)
    second = corpus(tmp_path, language(150, 2), "second", aligned=False)
    prepared = run(tmp_path, [first, second])
    store, found = prepared.train_as(PairStore), links(prepared)
    assert found[:60] == [[(0, 0)]] * 60
    lengths = [len(store.source(row)) for row in range(60, len(store))]
    expected = [[(place, size - 1 - place) for place in range(size)] for size in lengths]
    right = sum(link in truth for one, truth in zip(found[60:], expected, strict=True) for link in one)
    assert right >= 0.95 * sum(map(len, expected)) and right >= 0.95 * sum(map(len, found[60:]))
    before = everything(tmp_path / "out")
    run(tmp_path, [first, second])
    assert everything(tmp_path / "out") == before


def test_language_tags_move_the_links_and_have_none(tmp_path: Path) -> None:
    given = corpus(tmp_path, language(30, 1), "given", target_language="de")
    computed = corpus(tmp_path, language(90, 2), "computed", aligned=False, target_language="fr")
    prepared = run(tmp_path, [given, computed], TokenizerConfig(kind="word", min_frequency=1, joint=True))
    found = links(prepared)
    assert found[:30] == [[(0, 1)]] * 30  # a tag precedes each source
    assert sum(map(len, found[30:])) > 90 and all(source > 0 for row in found[30:] for _, source in row)


def test_nothing_is_aligned_unless_asked_for(tmp_path: Path) -> None:
    plain = run(tmp_path, corpus(tmp_path, PAIRS, aligned=False))
    assert plain.train_as(PairStore).alignments is None and plain.report.alignment is None
    assert not [name for name in everything(tmp_path / "out") if "alignment" in name]
    (tmp_path / "aligned").mkdir()
    aligned = run(tmp_path / "aligned", corpus(tmp_path, PAIRS, aligned=False), align=True)
    assert aligned.train_as(PairStore).alignments is not None
    other = everything(tmp_path / "aligned" / "out")
    assert all(other[name] == content for name, content in everything(tmp_path / "out").items() if "train" in name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({1: "0-0 9-1"}, r"train.align:2: 9-1 links source word 9, but the source has 4 words"),
        ({3: "1_1"}, r"train.align:4: '1_1' is not a link"),
        ({5: "\n"}, r"train.align: has more lines than there are pairs"),
        ({4: None, 5: None}, r"train.align: has 4 lines, fewer than there are pairs"),
    ],
)
def test_a_bad_file_is_an_error_with_its_line(tmp_path: Path, change: dict[int, str | None], message: str) -> None:
    files = corpus(tmp_path, PAIRS)
    lines = [change.get(number, line) for number, (_, _, line) in enumerate(PAIRS)]
    (tmp_path / "train.align").write_text("".join(f"{line}\n" for line in lines if line is not None))
    with pytest.raises(DataError, match=message):
        run(tmp_path, files)
    assert not (tmp_path / "out").exists()


def test_alignments_where_there_can_be_none_are_rejected(tmp_path: Path) -> None:
    files, other = corpus(tmp_path, PAIRS), corpus(tmp_path, PAIRS, "other")
    with pytest.raises(ValueError, match="an alignment is for training corpora; leave it out of validation"):
        TranslationConfig(train=files, validation=other)
    for table, message in (
        ({"path": "a.tsv", "alignment": "a.align"}, "alignment belongs to the lines of two files"),
        ({"source": "a", "target": "b", "alignment": "-"}, "alignment cannot be stdin"),
    ):
        with pytest.raises(SettingsError, match=message):
            CorpusFiles.from_table(table, "a test")
    with pytest.raises(TransduceError, match=r"gone.align: cannot be read"):
        run(tmp_path, files.but(alignment="gone.align"))
