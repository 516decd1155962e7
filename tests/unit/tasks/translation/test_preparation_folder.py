"""The folder of a prepared corpus: the same bytes each time, whole or not there, and nobody else's."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.tasks.prepared import WORDS, everything, run, texts, tsv
from transduce.data import audit
from transduce.errors import Busy, CannotCreate, DataError
from transduce.tasks.catalog import load_prepared, prepare
from transduce.tasks.translation import preparation as preparation_module
from transduce.tasks.translation.config import TranslationConfig
from transduce.text.tokenizer.tokenizer import TokenizerConfig


def test_a_corpus_larger_than_every_chunk_gives_the_same_as_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = random.Random(3)
    pairs = [(f"s{generator.randrange(200)}", f"t{generator.randrange(3)}") for _ in range(1500)]
    expected = [pair for row, pair in enumerate(pairs) if pair not in pairs[:row]]
    assert texts(run(tmp_path, pairs)) == expected
    before = everything(tmp_path / "out")
    for name, value in (("CHUNK_ROWS", 7), ("HASH_ROWS", 13), ("PART_ROWS", 101)):
        monkeypatch.setattr(audit, name, value)
    monkeypatch.setattr(preparation_module, "CHUNK_ROWS", 7)
    assert texts(run(tmp_path, pairs)) == expected
    assert everything(tmp_path / "out") == before


@pytest.mark.parametrize("kind", ["bpe", "word", "character", "byte"])
def test_two_preparations_give_the_same_bytes(tmp_path: Path, kind: Any) -> None:
    pairs = [(f"the source {row * 7919 % 1000}", f"die quelle {row}") for row in range(500)]
    corpus = tsv(tmp_path / "train.tsv", pairs)
    for name in ("first", "second"):
        prepare(TranslationConfig(train=corpus), TokenizerConfig(kind=kind, vocab_size=500), tmp_path / name)
    first = everything(tmp_path / "first")
    assert first == everything(tmp_path / "second")
    assert {"manifest.json", "report.json", "tokenizer.json", "validation/source.tokens.bin"} < first.keys()
    assert not [name for name in first if name.startswith("work")]


@pytest.mark.parametrize(
    ("train", "settings", "reason"),
    [
        ([], {}, "the training corpus has no pair in it"),
        ([("", "a"), ("b", "")], {}, "of 2: 2 dropped because a side is empty"),
        ([("a b c", "d"), ("e f g", "h")], {"max_length": 2}, "2 dropped because a side is too long"),
        ([("a", "b")], {"test": [("a", "c")]}, "1 dropped because the source occurs in validation or test"),
        ([("a", "b")], {"test": []}, "the test corpus has no pair in it"),
        ([("a", "a")], {"copies": "drop"}, "1 dropped because source and target are equal"),
    ],
)
def test_an_empty_corpus_is_an_error_that_says_what_emptied_it(
    tmp_path: Path, train: list[tuple[str, str]], settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(DataError, match=reason):
        run(tmp_path, train, **settings)
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".tsv") == []


def test_a_foreign_folder_is_rejected_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    with pytest.raises(CannotCreate, match="not a prepared corpus"):
        run(tmp_path, [("a", "b")])
    assert everything(tmp_path / "out") == {"thesis.txt": b"mine"}
    (tmp_path / "out" / "manifest.json").write_text('{"files": {}}')
    with pytest.raises(CannotCreate, match="not a prepared corpus"):
        run(tmp_path, [("a", "b")])


def test_a_file_in_the_way_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(CannotCreate, match="not a folder"):
        run(tmp_path, [("a", "b")])
    with pytest.raises(CannotCreate, match="cannot be written"):
        prepare(TranslationConfig(train=tsv(tmp_path / "t.tsv", [("a", "b")])), WORDS, tmp_path / "out" / "below")


def test_an_empty_folder_and_an_older_preparation_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    run(tmp_path, [("a", "b")])
    assert texts(run(tmp_path, [("c", "d")])) == [("c", "d")]
    assert {path.name for path in tmp_path.iterdir()} == {"out", "train.tsv"}


def test_an_interruption_leaves_the_old_preparation_and_nothing_else(tmp_path: Path) -> None:
    run(tmp_path, [("a", "b")])
    before = everything(tmp_path / "out")

    def interrupt(stage: str, count: int) -> None:
        if stage.startswith("tokenising"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(TranslationConfig(train=tsv(tmp_path / "t.tsv", [("c", "d")])), WORDS, tmp_path / "out", interrupt)
    assert everything(tmp_path / "out") == before
    assert {path.name for path in tmp_path.iterdir()} == {"out", "train.tsv", "t.tsv"}


def test_what_a_killed_attempt_left_is_cleaned_up(tmp_path: Path) -> None:
    left = tmp_path / ".out.writing" / "work" / "train"
    left.mkdir(parents=True)
    (left / "lines").write_bytes(b"half")
    (tmp_path / ".out.writing" / "manifest.json").write_text("{")
    run(tmp_path, [("a", "b")])
    assert {path.name for path in tmp_path.iterdir()} == {"out", "train.tsv"}


def test_two_processes_at_once_do_not_mix_their_files(tmp_path: Path) -> None:
    data = TranslationConfig(train=tsv(tmp_path / "t.tsv", [("a", "b")]), validation_fraction=0)
    seen = []

    def meanwhile(stage: str, count: int) -> None:
        with pytest.raises(Busy, match="another process"):
            prepare(data, WORDS, tmp_path / "out")
        seen.append(stage)

    report = prepare(data, WORDS, tmp_path / "out", meanwhile)
    assert seen == ["reading train", "training the tokenizer", "tokenising train"]
    assert load_prepared(tmp_path / "out").report == report


def test_a_full_disk_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    corpus = tsv(tmp_path / "t.tsv", [(f"source {row}", "target") for row in range(5000)])
    program = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from transduce.tasks.catalog import prepare\n"
        "from transduce.tasks.translation.config import TranslationConfig\n"
        "from transduce.text.tokenizer.tokenizer import TokenizerConfig\n"
        "from transduce.errors import StorageError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "try:\n"
        "    data = TranslationConfig.from_table({'train': {'path': sys.argv[1]}}, 'here')\n"
        "    prepare(data, TokenizerConfig(kind='byte'), Path(sys.argv[2]))\n"
        "except StorageError as error:\n"
        "    print(error)\n"
    )
    command = [sys.executable, "-c", program, str(corpus.path), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "writing failed (File too large)" in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"t.tsv"}


def test_one_corpus_in_a_list_is_that_corpus(tmp_path: Path) -> None:
    corpus = tsv(tmp_path / "train.tsv", [(f"s{row}", f"t{row % 7}") for row in range(50)])
    for name, train in (("alone", corpus), ("listed", (corpus,))):
        prepare(TranslationConfig(train=train), WORDS, tmp_path / name)
    alone, listed = everything(tmp_path / "alone"), everything(tmp_path / "listed")
    assert {name for name in alone if alone[name] != listed[name]} == {"manifest.json"}


PEAK = """
import re, sys
from pathlib import Path
from transduce.tasks.catalog import prepare
from transduce.tasks.translation.config import TranslationConfig
from transduce.text.tokenizer.tokenizer import TokenizerConfig
data = TranslationConfig.from_table({"train": {"path": sys.argv[1]}}, "here")
prepare(data, TokenizerConfig(kind="byte"), Path(sys.argv[2]))
print(int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024)
"""


@pytest.mark.long
def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("peak memory is read from /proc (getrusage would report that of pytest); Linux removes this skip")
    generator = random.Random(1)
    lines = (f"{generator.random()} source words\t{generator.random()} target words\n" for _ in itertools.count())
    peaks = []
    for size in (20_000, 200_000):
        path = tmp_path / f"{size}.tsv"
        path.write_text("".join(itertools.islice(lines, size)))
        command = [sys.executable, "-c", PEAK, str(path), str(tmp_path / f"out{size}")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks.append(float(done.stdout))
    assert peaks[1] < peaks[0] + 30  # 180,000 more pairs are 35 MB of files; as objects they would be 100
