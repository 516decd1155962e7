from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from transduce.data.prepared import Prepared
from transduce.data.store import STREAM
from transduce.errors import DataError, SettingsError
from transduce.storage.manifest import sha256
from transduce.tasks.catalog import load_prepared, prepare, read_data_table
from transduce.tasks.language_modeling import preparation
from transduce.text import corpus as plain
from transduce.text.tokenizer.tokenizer import TokenizerConfig

LETTERS = TokenizerConfig(kind="character")
STORIES = "\n\n".join(f"story {number}\nwent on, and ended: ä{'!' * number}" for number in range(20)) + "\n"


def prepared(folder: Path, train: Any, config: TokenizerConfig = LETTERS, **settings: Any) -> Prepared:
    data = read_data_table({"train": train, **settings}, "a test")
    report = prepare(data, config, folder / "out")
    found = load_prepared(folder / "out", thorough=True)
    assert found.report == report
    return found


def stream(found: Prepared, split: str = "train") -> list[int]:
    dtype = f"<u{2 if found.target_tokenizer.size <= 2**16 else 4}"
    return np.fromfile(found.folder / split / STREAM, dtype=dtype).tolist()


def documents(found: Prepared, split: str = "train") -> list[str]:
    """The texts of a split as its tokens say them."""
    rows: list[list[int]] = []
    for token in stream(found, split):
        rows += [[]] if token == found.target_tokenizer.end else []
        rows[-1] += [] if token == found.target_tokenizer.end else [token]
    return [found.target_tokenizer.decode(row) for row in rows]


@pytest.fixture
def stories(tmp_path: Path) -> str:
    path = tmp_path / "stories.txt"
    path.write_text(STORIES, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("kind", ["character", "byte", "bpe", "unigram"])
def test_nothing_is_lost_between_a_file_and_its_tokens(
    kind: Any, tmp_path: Path, stories: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain, "PART_CHARACTERS", 64)
    config = TokenizerConfig(kind=kind, vocab_size=400, min_frequency=1)
    blank = prepared(tmp_path, {"text": stories}, config, validation_fraction=0)
    assert documents(blank) == STORIES.strip("\n").split("\n\n")
    whole = prepared(tmp_path, {"text": stories, "document": "file"}, config, validation_fraction=0)
    assert documents(whole) == [STORIES]
    assert whole.report.train.text is not None
    assert whole.report.train.text.bytes == len(STORIES.encode())
    assert whole.report.train.text.words == len(STORIES.split())
    lines = prepared(tmp_path, {"text": stories, "document": "line"}, config, validation_fraction=0)
    assert documents(lines) == [line for line in STORIES.split("\n") if line]
    assert lines.report.train.issues["blank"].dropped == 19
    assert lines.report.train.read == lines.report.train.kept + 19 == 59


def test_the_last_tenth_of_a_file_is_held_out_to_the_character(tmp_path: Path, stories: str) -> None:
    """As nanoGPT divides its text: the first int(0.9 n) characters, and the rest."""
    found = prepared(tmp_path, {"text": stories, "document": "file"}, validation_fraction=0.1)
    edge = int(0.9 * len(STORIES))
    assert documents(found) == [STORIES[:edge]]
    assert documents(found, "validation") == [STORIES[edge:]]
    assert found.report.validation is not None and found.report.validation.target.tokens == len(STORIES) - edge + 1


def test_whole_documents_at_the_end_are_held_out_and_at_most_a_million_characters(
    tmp_path: Path, stories: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = prepared(tmp_path, {"text": stories}, validation_fraction=0.25)
    every = STORIES.strip("\n").split("\n\n")
    assert documents(found) + documents(found, "validation") == every
    held = documents(found, "validation")
    assert found.report.train.held_out == len(held)
    share = sum(map(len, held)) / sum(map(len, every))
    assert 0.15 < share <= 0.25
    monkeypatch.setattr(preparation, "MAX_HELD_OUT", 90)
    assert sum(map(len, documents(prepared(tmp_path, {"text": stories}, validation_fraction=0.25), "validation"))) <= 90


def test_a_text_without_blank_lines_is_held_out_from_within(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one line\n" * 100)
    found = prepared(tmp_path, {"text": str(tmp_path / "a")}, validation_fraction=0.1)
    assert documents(found)[0] + documents(found, "validation")[0] == "\n".join(["one line"] * 100)


def test_a_validation_corpus_of_its_own_and_several_corpora_with_weights(tmp_path: Path, stories: str) -> None:
    (tmp_path / "b").write_text("other text\n\nand more")
    (tmp_path / "c").write_text("to choose by")
    found = prepared(
        tmp_path,
        [{"text": stories}, {"text": str(tmp_path / "b"), "weight": 3.0}],
        validation={"text": str(tmp_path / "c")},
        block_size=16,
    )
    assert documents(found, "validation") == ["to choose by"]
    assert documents(found)[-2:] == ["other text", "and more"]
    assert found.report.train.corpora is not None
    tokens = [corpus.tokens or 0 for corpus in found.report.train.corpora]
    assert sum(tokens) == found.report.train.target.tokens and tokens[1] == len("other textand more") + 2
    assert [(corpus.size, corpus.weight) for corpus in found.train.corpora] == [(-(-tokens[0] // 16), 1.0), (2, 3.0)]


def test_two_preparations_give_the_same_bytes(tmp_path: Path, stories: str) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
        prepared(folder, {"text": stories}, TokenizerConfig(kind="bpe", vocab_size=300), validation_fraction=0.2)
    names = [path.relative_to(folders[0]) for path in (folders[0] / "out").rglob("*") if path.is_file()]
    assert len(names) >= 5
    assert all(sha256(folders[0] / name) == sha256(folders[1] / name) for name in names)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"train": [{"text": "a"}, {"path": "b.tsv"}]}, "some corpora are pairs and some are plain text"),
        ({"train": {"path": "b.tsv"}, "block_size": 64}, "'block_size'"),
        ({"train": {"path": "b.tsv"}, "objective": "span_corruption"}, "plain text"),
        ({"train": {"text": "a"}, "objective": "spans"}, "span_corruption, mask"),
        ({"train": {"text": "a", "document": "page"}}, "document"),
        ({"train": {"text": "a", "sauce": "b"}}, "sauce"),
        ({"train": {"text": "-"}, "validation": {"text": "-"}}, "standard input can be only one"),
    ],
)
def test_settings_that_make_no_sense_are_one_sentence(table: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence) as caught:
        read_data_table(table, "a test")
    assert "\n" not in str(caught.value)


def test_text_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("\n \n")
    for rule in ("blank", "line"):
        with pytest.raises(DataError, match="there is no text in it"):
            prepared(tmp_path, {"text": str(tmp_path / "a"), "document": rule})
    with pytest.raises(SettingsError, match="one side and needs one tokenizer"):
        prepared(tmp_path, {"text": str(tmp_path / "a")}, TokenizerConfig(kind="word", joint=False))
