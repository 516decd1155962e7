"""The record of a run: whole lines, the same bytes each time, cut back to where a checkpoint stood."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from transduce.errors import CannotCreate, ModelFolderError, StorageError
from transduce.storage.journal import Journal, read_journal


def test_events_are_lines_of_json_in_the_order_they_came(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "new" / "run")
    journal.write("began", seed=3)
    journal.write("validation", samples=[["東京", "ä"]], loss=1.0 / 3.0, perplexity=None)
    journal.close()
    assert read_journal(tmp_path / "new/run/journal.jsonl") == [
        {"event": "began", "seed": 3},
        {"event": "validation", "samples": [["東京", "ä"]], "loss": 1.0 / 3.0, "perplexity": None},
    ]
    assert "東京" in (tmp_path / "new/run/journal.jsonl").read_text(encoding="utf-8")


def test_times_stand_beside_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write("update", update=1)
    journal.time("update", update=1)
    journal.close()
    (line,) = [json.loads(line) for line in (tmp_path / "timing.jsonl").read_text().splitlines()]
    assert (line["event"], line["update"]) == ("update", 1)
    assert line["seconds"] >= 0
    assert line["at"] > 1.7e9
    assert read_journal(tmp_path / "journal.jsonl") == [{"event": "update", "update": 1}]


def test_an_event_is_on_disk_as_soon_as_it_is_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write("update", update=1)
    assert len(read_journal(tmp_path / "journal.jsonl")) == 1
    assert journal.size == (tmp_path / "journal.jsonl").stat().st_size
    journal.close()


def test_what_a_checkpoint_counts_on_is_forced_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its size is what a checkpoint saves; after a power cut the journal may be longer than that, but not shorter."""
    journal, synced = Journal(tmp_path), []
    monkeypatch.setattr("os.fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    journal.write("update", update=1)
    assert [journal.size] == synced
    journal.close()


def test_an_opened_journal_goes_on_where_it_ended(tmp_path: Path) -> None:
    for update in (1, 2, 3):
        journal = Journal(tmp_path)
        journal.write("update", update=update)
        assert journal.size == (tmp_path / "journal.jsonl").stat().st_size
        journal.close()
    assert [line["update"] for line in read_journal(tmp_path / "journal.jsonl")] == [1, 2, 3]


@pytest.mark.parametrize("reopened", [False, True])
def test_a_journal_is_cut_back_and_written_again_to_the_same_bytes(tmp_path: Path, reopened: bool) -> None:
    journal, sizes = Journal(tmp_path), [0]
    for update in range(5):
        journal.write("update", update=update, text="ä")
        sizes.append(journal.size)
    whole = (tmp_path / "journal.jsonl").read_bytes()
    for size in reversed(sizes):
        if reopened:
            journal.close()
            journal = Journal(tmp_path)
        journal.cut(size)
        assert journal.size == size
        assert (tmp_path / "journal.jsonl").read_bytes() == whole[:size]
    for update in range(5):
        journal.write("update", update=update, text="ä")
    journal.close()
    assert (tmp_path / "journal.jsonl").read_bytes() == whole


def test_half_a_line_is_not_read_and_is_cut_away(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_bytes(b'{"event": "a"}\n{"event": "b"}\n{"ev')
    assert [line["event"] for line in read_journal(tmp_path / "journal.jsonl")] == ["a", "b"]
    journal = Journal(tmp_path)
    journal.cut(15)
    journal.write("c")
    journal.close()
    assert (tmp_path / "journal.jsonl").read_bytes() == b'{"event": "a"}\n{"event": "c"}\n'


def test_a_journal_shorter_than_its_checkpoint_is_rejected(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write("began")
    with pytest.raises(ModelFolderError, match="shorter than its checkpoint"):
        journal.cut(journal.size + 1)
    journal.close()


@pytest.mark.parametrize("half", ['{"ev', "x" * 9000])
@pytest.mark.parametrize("whole", ['{"event": "a"}\n', ""])
def test_half_a_line_of_times_is_cut_away_when_the_file_is_opened_again(tmp_path: Path, whole: str, half: str) -> None:
    (tmp_path / "timing.jsonl").write_text(whole + half)
    journal = Journal(tmp_path)
    journal.time("b")
    journal.close()
    assert [line["event"] for line in read_journal(tmp_path / "timing.jsonl")] == [*"a"[: len(whole)], "b"]


def test_a_folder_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotCreate):
        Journal(tmp_path / "file")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device /dev/full, which Linux has")
def test_a_full_disk_is_a_sentence_also_when_the_journal_is_closed(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").symlink_to("/dev/full")
    journal = Journal(tmp_path)
    with pytest.raises(StorageError, match=r"No space left on device, [\d,]+ bytes"):
        journal.write("began")
    with pytest.raises(StorageError, match="No space left"):
        journal.close()
    journal.close()
