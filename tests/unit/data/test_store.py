from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.data import folder as folder_module
from transduce.data.config import DataConfig
from transduce.data.prepare import prepare
from transduce.data.ragged import Ragged, RaggedWriter, read_strings
from transduce.data.store import load_prepared
from transduce.errors import DataError, MissingInput, TransduceError
from transduce.text.tokenizer import TokenizerConfig


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store") / "prepared"
    data = DataConfig.from_table({"train": {"task": "sort", "size": 101}}, "here")
    prepare(data, TokenizerConfig(kind="word", joint=False), folder)
    return folder


@pytest.fixture
def prepared(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "prepared")
    return tmp_path / "prepared"


@given(rows=st.lists(st.lists(st.integers(0, 2**16 - 1), max_size=7), max_size=20), cut=st.integers(0, 20))
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
    backwards = np.arange(len(rows))[::-1]
    assert ragged.lengths[backwards].tolist() == [len(row) for row in reversed(rows)]
    assert np.asarray(ragged.lengths).tolist() == ragged.lengths[:].tolist()


@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=9), data=st.data())
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
    monkeypatch.setattr(folder_module, "SMALL_FILE", 0)
    path = prepared / "train" / "target.tokens.bin"
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(DataError, match=r"target\.tokens\.bin: has .* bytes instead of"):
        load_prepared(prepared)


def test_large_files_are_hashed_only_when_asked(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "SMALL_FILE", 0)
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
def test_a_manifest_that_is_none_is_refused(prepared: Path, manifest: str) -> None:
    (prepared / "manifest.json").write_text(manifest)
    with pytest.raises(DataError, match=r"manifest\.json"):
        load_prepared(prepared)


def test_a_newer_format_is_refused_with_advice(prepared: Path) -> None:
    manifest = json.loads((prepared / "manifest.json").read_text())
    (prepared / "manifest.json").write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(DataError, match="format 99 is newer"):
        load_prepared(prepared)


def test_other_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingInput, match="no such folder"):
        load_prepared(tmp_path / "nothing")
    with pytest.raises(TransduceError, match="not a prepared corpus"):
        load_prepared(tmp_path)
