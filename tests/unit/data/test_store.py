from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.data import prepared as prepared_module
from transduce.data import ragged as ragged_module
from transduce.data.ragged import Ragged, RaggedWriter, read_strings
from transduce.errors import DataError, MissingInput, TransduceError
from transduce.storage.atomic import read_json
from transduce.storage.manifest import save_manifest
from transduce.tasks.catalog import load_prepared, prepare
from transduce.tasks.translation.config import TranslationConfig
from transduce.text.tokenizer.tokenizer import TokenizerConfig


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store") / "prepared"
    data = TranslationConfig.from_table({"train": {"task": "sort", "size": 101}}, "here")
    prepare(data, TokenizerConfig(kind="word", joint=False), folder)
    return folder


@pytest.fixture
def prepared(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "prepared")
    return tmp_path / "prepared"


def large(folder: Path, name: str, dtype: Any) -> Ragged:
    """Open files as if they were too large to map."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ragged_module, "MAPPED_BYTES", -1)
        opened = Ragged.open(folder, name, dtype)
    assert isinstance(opened._values, ragged_module.FileArray)
    return opened


@given(rows=st.lists(st.lists(st.integers(0, 2**16 - 1), max_size=7), max_size=20), cut=st.integers(0, 20))
@settings(deadline=None)  # it waits for a disk
def test_rows_written_in_parts_are_read_back(
    rows: list[list[int]], cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("ragged")
    with RaggedWriter(folder, "rows", np.uint16) as writer:
        writer.append(rows[:cut])
        writer.append(rows[cut:])
    ragged = Ragged.open(folder, "rows", np.uint16)
    assert [ragged[row].tolist() for row in range(len(ragged))] == rows
    assert ragged.lengths[:].tolist() == [len(row) for row in rows]
    for opened in (ragged, large(folder, "rows", np.uint16)):
        some = np.random.default_rng(len(rows)).integers(0, max(1, len(rows)), 2 * len(rows))
        taken, lengths = opened.take(some)
        assert lengths.tolist() == opened.lengths[some].tolist() == [len(rows[row]) for row in some]
        assert taken.tolist() == [value for row in some for value in rows[row]]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ragged_module, "NEAR", 0)  # every row is far from every other
            assert opened.take(some)[0].tolist() == taken.tolist()
            assert opened.lengths[some].tolist() == lengths.tolist()
        assert [opened[row].tolist() for row in range(len(rows))] == rows
        assert opened.lengths[:].tolist() == [len(row) for row in rows]
        taken, lengths = opened.stretch(min(cut // 2, len(rows)), min(cut, len(rows)))
        assert taken.tolist() == [value for row in rows[cut // 2 : cut] for value in row]
    backwards = np.arange(len(rows))[::-1]
    assert ragged.lengths[backwards].tolist() == [len(row) for row in reversed(rows)]


@pytest.mark.parametrize(("near", "stretch"), [(1, 2), (5, 7), (10**6, 13), (10**6, 10**6)])
def test_values_of_a_large_file_are_read_in_stretches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, near: int, stretch: int
) -> None:
    monkeypatch.setattr(ragged_module, "NEAR", near)
    monkeypatch.setattr(ragged_module, "STRETCH", stretch)
    values = np.random.default_rng(5).integers(0, 99, 211)
    values.tofile(tmp_path / "values")
    array = ragged_module.FileArray(tmp_path / "values", np.dtype("<i8"), 211)
    places = np.random.default_rng(6).integers(0, 211, 67)
    assert array[places].tolist() == values[places].tolist()
    assert array[:].tolist() == values.tolist() and array[-1] == values[-1] and array[7] == values[7]
    os.truncate(tmp_path / "values", 100)
    with pytest.raises(DataError, match="is shorter than it was"):
        array[places]


MEMORY = """
import re, sys
from pathlib import Path
import numpy as np
from transduce.data import ragged
from transduce.data.batching import collate
from transduce.data.order import BatchSampler
from transduce.data.store import PairStore
from transduce.text.tokenizer.special import Specials
from transduce.data.ragged import Ragged
ragged.MAPPED_BYTES = int(sys.argv[2])
folder = Path(sys.argv[1])
side, text = Ragged.open(folder, "tokens", np.uint16), Ragged.open(folder, "text", np.uint8)
store = PairStore(side, side, text, text)
batches = BatchSampler.of(store, 4096, seed=1, bucket_size=1000).starting()
for _ in range(300):
    collate(store, next(batches)[1], Specials(0, 1, 2), Specials(0, 1, 2))
status = Path("/proc/self/status").read_text()
print(sum(int(re.search(rf"{name}:\\s+(\\d+) kB", status)[1]) for name in ("RssAnon", "RssFile")) / 1024)
"""


def test_batches_of_a_large_corpus_hold_none_of_it_in_memory(tmp_path: Path) -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("resident memory is read from /proc; Linux removes this skip")
    resident = []
    for size in (20_000, 2_000_000):
        folder = tmp_path / str(size)
        folder.mkdir()
        with RaggedWriter(folder, "tokens", np.uint16) as tokens, RaggedWriter(folder, "text", np.uint8) as text:
            tokens.append_flat(np.full(11 * size, 5, dtype=np.uint16), np.full(size, 11))
            text.append_flat(np.zeros(0, dtype=np.uint8), np.zeros(size, dtype=np.int64))
        command = [sys.executable, "-c", MEMORY, str(folder), str(2**20)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        resident.append(float(done.stdout))
    assert resident[1] < resident[0] + 8  # the files of the larger have 58 MB


@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=9), data=st.data())
@settings(deadline=None)  # it waits for a disk
def test_text_is_read_back_in_blocks(
    texts: list[str], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    start = data.draw(st.integers(0, len(texts)))
    stop = data.draw(st.integers(start, len(texts)))
    folder = tmp_path_factory.mktemp("strings")
    with RaggedWriter(folder, "text", np.uint8) as writer:
        writer.append_bytes([text.encode() for text in texts])
    assert read_strings(folder, "text", start, stop) == texts[start:stop]


def test_every_file_is_missed_when_it_is_gone(original: Path, tmp_path: Path) -> None:
    for path in sorted(original.rglob("*")):
        if path.is_file():
            copy = tmp_path / "copy"
            shutil.copytree(original, copy)
            lost = copy / path.relative_to(original)
            lost.unlink()
            with pytest.raises(DataError, match=path.name):
                load_prepared(copy)
            shutil.rmtree(copy)


def test_a_flipped_bit_is_found_in_every_file(original: Path, tmp_path: Path) -> None:
    for path in (
        sorted(original.rglob("*.bin")) + sorted(original.glob("*.tokenizer.json")) + [original / "report.json"]
    ):
        copy = tmp_path / "copy"
        shutil.copytree(original, copy)
        damaged = copy / path.relative_to(original)
        content = bytearray(damaged.read_bytes())
        content[len(content) // 2] ^= 1
        damaged.write_bytes(content)
        with pytest.raises(DataError, match=f"{path.name}: is damaged"):
            load_prepared(copy)
        shutil.rmtree(copy)


def test_a_truncated_file_is_found_whatever_its_size(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_module, "SMALL_FILE", 0)
    path = prepared / "train" / "target.tokens.bin"
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(DataError, match=r"target\.tokens\.bin: has .* bytes instead of"):
        load_prepared(prepared)


def test_large_files_are_hashed_only_when_asked(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_module, "SMALL_FILE", 0)
    path = prepared / "train" / "source.tokens.bin"
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    assert len(load_prepared(prepared).train) > 0
    with pytest.raises(DataError, match="is damaged"):
        load_prepared(prepared, thorough=True)


@pytest.mark.parametrize(
    "manifest",
    ["", "null", "[1]", "{}", "[" * 100_000, '{"kind": "something else"}'],
    ids=["empty", "null", "list", "bare", "deep", "foreign"],
)
def test_a_manifest_that_is_none_is_rejected(prepared: Path, manifest: str) -> None:
    (prepared / "manifest.json").write_text(manifest)
    with pytest.raises(DataError, match=r"manifest\.json"):
        load_prepared(prepared)


@pytest.mark.parametrize("number", [1, 99])
def test_another_format_is_rejected_with_advice(prepared: Path, number: int) -> None:
    save_manifest(prepared, read_json(prepared / "manifest.json") | {"format": number})
    with pytest.raises(DataError, match=f"format {number}"):
        load_prepared(prepared)


def test_other_folders_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(MissingInput, match="no such folder"):
        load_prepared(tmp_path / "nothing")
    with pytest.raises(TransduceError, match="not a prepared corpus"):
        load_prepared(tmp_path)
