"""A manifest finds every change in a folder, and in itself."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from transduce.errors import ModelFolderError
from transduce.storage.atomic import atomic_folder, read_json, write_json
from transduce.storage.layout import CHECKPOINT_KIND, CORPUS_KIND, DATA, MANIFEST, MODEL_KIND
from transduce.storage.manifest import check_run_format, save_manifest, verify, write_manifest


def complete(folder: Path) -> Path:
    with atomic_folder(folder) as temporary:
        (temporary / "a.txt").write_text("alpha")
        (temporary / "deep").mkdir()
        (temporary / "deep" / "b.txt").write_text("beta")
        write_manifest(temporary, MODEL_KIND, update=3)
    return folder


def test_a_complete_folder_verifies_and_returns_its_notes(tmp_path: Path) -> None:
    manifest = verify(complete(tmp_path / "model"), MODEL_KIND)
    assert (manifest["kind"], manifest["format"], manifest["update"]) == (MODEL_KIND, 2, 3)
    assert manifest["files"].keys() == {"a.txt", "deep/b.txt"}
    assert manifest["files"]["a.txt"] == {
        "size": 5,
        "sha256": "8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8",  # of "alpha", by sha256sum
    }


def test_a_folder_of_another_kind_or_without_a_manifest_is_rejected(tmp_path: Path) -> None:
    folder = complete(tmp_path / "model")
    with pytest.raises(ModelFolderError, match="transduce checkpoint"):
        verify(folder, "transduce checkpoint")
    (folder / MANIFEST).unlink()
    with pytest.raises(ModelFolderError, match=MANIFEST):
        verify(folder, MODEL_KIND)


@pytest.mark.parametrize(
    "name", ["../outside.txt", "/etc/hostname", "deep/../../outside.txt", "nothing.txt", "./a.txt"]
)
def test_a_manifest_lists_files_of_its_folder_in_one_spelling(tmp_path: Path, name: str) -> None:
    folder = complete(tmp_path / "model")
    (tmp_path / "outside.txt").write_text("alpha")
    manifest = read_json(folder / MANIFEST)
    manifest["files"][name] = manifest["files"]["a.txt"]
    save_manifest(folder, manifest)
    with pytest.raises(ModelFolderError, match=r"missing or not a plain file|not a file of the folder"):
        verify(folder, MODEL_KIND)


def test_a_manifest_whose_bytes_changed_is_rejected_even_if_it_means_the_same(tmp_path: Path) -> None:
    folder = complete(tmp_path / "model")
    whole = (folder / MANIFEST).read_bytes()
    for content in (whole[:-1], whole.replace(b": 3", b":  3"), whole.replace(b": 3", b": 7"), whole + b" "):
        assert content != whole
        (folder / MANIFEST).write_bytes(content)
        with pytest.raises(ModelFolderError, match=r"manifest\.json: is damaged"):
            verify(folder, MODEL_KIND)


def test_the_last_entry_is_the_hash_of_the_manifest_without_it(tmp_path: Path) -> None:
    text = (complete(tmp_path / "model") / MANIFEST).read_text()
    table = json.loads(text)
    last_line = f',\n  "sha256": "{table.pop("sha256")}"'
    assert text.count(last_line) == 1
    assert hashlib.sha256(text.replace(last_line, "").encode()).hexdigest() in last_line


@pytest.mark.parametrize(
    ("kind", "advice"),
    [(MODEL_KIND, "train again"), (CHECKPOINT_KIND, "start a new run"), (CORPUS_KIND, "prepare the corpus again")],
)
def test_a_folder_of_format_1_is_rejected_with_what_to_do(tmp_path: Path, kind: str, advice: str) -> None:
    for manifest in ({"kind": kind, "files": {}}, {"kind": kind, "format": 1, "files": {}, "seal": "00"}):
        write_json(tmp_path / MANIFEST, manifest)
        with pytest.raises(ModelFolderError, match=rf"older version .*format 1.*{advice}"):
            verify(tmp_path, kind)


def test_a_run_of_format_1_is_rejected_before_its_recipe_is_read(tmp_path: Path) -> None:
    """Its settings have other names: without this, the first of them would be called unknown."""
    check_run_format(tmp_path)
    (tmp_path / DATA).mkdir()
    write_json(tmp_path / DATA / MANIFEST, {"kind": CORPUS_KIND, "format": 1, "files": {}})
    with pytest.raises(ModelFolderError, match=r"older version .*format 1.*train again"):
        check_run_format(tmp_path)
    write_manifest(tmp_path / DATA, CORPUS_KIND)
    check_run_format(tmp_path)


def test_a_folder_of_a_later_format_or_without_a_digest_is_rejected(tmp_path: Path) -> None:
    folder = complete(tmp_path / "model")
    manifest = read_json(folder / MANIFEST)
    save_manifest(folder, manifest | {"format": 3})
    with pytest.raises(ModelFolderError, match=r"format 3.*upgrade"):
        verify(folder, MODEL_KIND)
    del manifest["sha256"]
    write_json(folder / MANIFEST, manifest)
    with pytest.raises(ModelFolderError, match=r"manifest\.json: is damaged"):
        verify(folder, MODEL_KIND)


@pytest.mark.parametrize(
    "text", ['{"kind": "\\ud800", "files": {}, "sha256": ""}', '{"files": {}, "x": ' + "[" * 900 + "]" * 900 + "}"]
)
def test_a_manifest_that_cannot_be_written_is_rejected_like_any_other(tmp_path: Path, text: str) -> None:
    folder = complete(tmp_path / "model")
    (folder / MANIFEST).write_text(text)
    with pytest.raises(ModelFolderError, match=r"manifest\.json"):
        verify(folder, MODEL_KIND)


def test_a_link_is_no_plain_file(tmp_path: Path) -> None:
    folder = complete(tmp_path / "model")
    (folder / "a.txt").rename(tmp_path / "a.txt")
    (folder / "a.txt").symlink_to(tmp_path / "a.txt")
    with pytest.raises(ModelFolderError, match="not a plain file"):
        verify(folder, MODEL_KIND)
