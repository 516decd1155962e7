"""A stranger's folder: what is sound is read, and everything else is refused with one sentence and at once."""

from __future__ import annotations

import json
import os
import pickle
import shlex
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from transduce.errors import MissingInput, ModelFolderError
from transduce.interop.huggingface.folder import CONVERSION, HuggingFaceFolder
from transduce.storage.untrusted import MAX_HEADER_BYTES

ONE = {"first": torch.arange(6.0).view(2, 3), "half": torch.arange(5).half()}
OTHER = {"second": torch.arange(7.0, dtype=torch.float64), "brain": torch.ones(2, 1, dtype=torch.bfloat16)}
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
INDEX = "model.safetensors.index.json"


def put_config(folder: Path, **settings: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "marian", **settings}))
    return folder


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    save_file(ONE, put_config(tmp_path / "whole") / "model.safetensors")
    return tmp_path / "whole"


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    folder = put_config(tmp_path / "sharded")
    save_file(ONE, folder / SHARDS[0])
    save_file(OTHER, folder / SHARDS[1])
    put_index(folder, {name: SHARDS[name in OTHER] for name in (*ONE, *OTHER)})
    return folder


def put_index(folder: Path, weight_map: Any) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))


def raw(header: bytes, data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file by hand."""
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def declared(**entry: Any) -> bytes:
    """A file of 24 bytes of numbers whose one tensor is declared as told."""
    return raw(
        json.dumps({"x": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]} | entry}).encode(), bytes(24)
    )


def refusal(folder: Path) -> str:
    """The one sentence with which a folder is refused, within a second of work."""
    begun = time.process_time()
    with pytest.raises((ModelFolderError, MissingInput)) as refused:
        weights = HuggingFaceFolder(folder).weights
        for name in weights.names:
            weights.load(name)
    assert time.process_time() - begun < 1
    sentence = str(refused.value)
    assert "\n" not in sentence and len(sentence) < 700
    return sentence


def test_one_file_is_read_by_name(whole: Path) -> None:
    folder = HuggingFaceFolder(whole)
    assert folder.config == {"model_type": "marian"}
    assert folder.weights.names == set(ONE) and folder.weights.shape("first") == (2, 3)
    for name, tensor in ONE.items():
        assert torch.equal(folder.weights.load(name), tensor) and folder.weights.load(name).dtype == tensor.dtype


def test_shards_are_read_as_if_they_were_one(sharded: Path) -> None:
    weights = HuggingFaceFolder(sharded).weights
    assert weights.names == ONE.keys() | OTHER.keys()
    for name, tensor in {**ONE, **OTHER}.items():
        assert torch.equal(weights.load(name), tensor) and weights.load(name).dtype == tensor.dtype


def test_opening_reads_names_and_shapes_but_no_numbers(tmp_path: Path) -> None:
    """A file of which 4 GiB are a hole on the disk is opened in no time, and says how large it is."""
    entry = {"dtype": "F32", "shape": [2**15, 2**15], "data_offsets": [0, 2**32]}
    content = raw(json.dumps({"x": entry}).encode())
    with (put_config(tmp_path / "large") / "model.safetensors").open("wb") as sparse:
        sparse.write(content)
        sparse.truncate(len(content) + 2**32)
    begun = time.process_time()
    assert HuggingFaceFolder(tmp_path / "large").weights.shape("x") == (2**15, 2**15)
    assert time.process_time() - begun < 1


def test_a_snapshot_in_the_cache_of_downloads_is_read_through_its_links(sharded: Path, tmp_path: Path) -> None:
    cache = tmp_path / "hub" / "models--someone--something"
    snapshot = cache / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    (cache / "blobs").mkdir()
    for place, path in enumerate(sorted(sharded.iterdir())):
        path.rename(cache / "blobs" / f"hash{place}")
        (snapshot / path.name).symlink_to(f"../../blobs/hash{place}")
    assert HuggingFaceFolder(snapshot).weights.names == ONE.keys() | OTHER.keys()
    other = tmp_path / "hub" / "models--someone--else" / "blobs" / "secret"
    other.parent.mkdir(parents=True)
    (snapshot / "config.json").rename(other)
    (snapshot / "config.json").symlink_to(other)
    assert "outside the folder" in refusal(snapshot)


def test_a_link_within_the_folder_is_followed(whole: Path) -> None:
    (whole / "model.safetensors").rename(whole / "weights")
    (whole / "model.safetensors").symlink_to("weights")
    assert torch.equal(HuggingFaceFolder(whole).weights.load("half"), ONE["half"])


def test_a_folder_may_itself_be_a_link(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(whole)
    assert HuggingFaceFolder(tmp_path / "link").weights.names == set(ONE)


def test_what_is_no_folder_of_theirs_is_rejected(tmp_path: Path) -> None:
    assert "no such folder" in refusal(tmp_path / "nowhere")
    assert "no such folder" in refusal(Path("a\0b"))
    (tmp_path / "file").write_text("{}")
    assert "neither a folder" in refusal(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    assert "has no config.json" in refusal(tmp_path / "empty")
    assert "has neither model.safetensors nor" in refusal(put_config(tmp_path / "bare"))


CONFIGS: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"{", "is not valid JSON"),
    "no text": (b"\xff\xfe\x00", "is not valid JSON"),
    "a list": (b"[]", "is not a JSON object"),
    "endless depth": (b'{"a":' * 100_000, "is not valid JSON"),
    "a number without end": (b'{"a": ' + b"9" * 10_000 + b"}", "is not valid JSON"),
    "a name twice": (b'{"model_type": "bert", "model_type": "t5"}', "'model_type' twice"),
    "too much": (b'{"a": "' + b"x" * 2**24 + b'"}', "16,777,216 bytes"),
    "code to run": (b'{"model_type": "llama", "auto_map": {"AutoModel": "evil.Model"}}', "auto_map"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_bad_settings_are_rejected(name: str, whole: Path) -> None:
    content, reason = CONFIGS[name]
    (whole / "config.json").write_bytes(content)
    assert reason in refusal(whole)


FILES: dict[str, tuple[Callable[[], bytes], str]] = {
    "nothing": (lambda: b"", "is not a safetensors file"),
    "seven bytes": (lambda: b"1234567", "is not a safetensors file"),
    "a pickle": (lambda: pickle.dumps({"x": list(range(999))}), "is not a safetensors file"),
    "a header longer than the file": (lambda: raw(b"{}", length=3), "header cannot be 3 bytes long"),
    "a header bomb": (lambda: raw(b"{}", length=2**63), "header cannot be 9,223,372,036,854,775,808 bytes long"),
    "a header of 17 MiB": (lambda: raw(b" " * (MAX_HEADER_BYTES + 1)), "header cannot be 16,777,217 bytes long"),
    "no JSON": (lambda: raw(b"{x"), "its header is not JSON"),
    "endless depth": (lambda: raw(b'{"a":' * 100_000), "more than 20,000 tensors"),
    "great depth": (lambda: raw(b'{"a":' * 10_000), "its header is not JSON"),
    "a list": (lambda: raw(b"[1, 2]"), "its header lists no tensors"),
    "20,003 tensors": (
        lambda: raw(json.dumps({str(n): {} for n in range(20_003)}).encode()),
        "more than 20,000 tensors",
    ),
    "no entry": (lambda: raw(b'{"x": 7}'), "entry of 'x'"),
    "no such type": (lambda: declared(dtype="F33"), "entry of 'x'"),
    "a list of types": (lambda: declared(dtype=["F32"]), "entry of 'x'"),
    "a giant shape": (lambda: declared(shape=[10**5, 10**6]), "declares 400,000,000,000 bytes"),
    "a shape that overflows": (lambda: declared(shape=[2**62, 16]), "declares more than 10^18 bytes"),
    "a million axes": (lambda: declared(shape=[99] * 10**6), "more than 20,000 tensors"),
    "a thousand axes": (lambda: declared(shape=[99] * 1000), "entry of 'x'"),
    "a negative axis": (lambda: declared(shape=[-2, -3]), "entry of 'x'"),
    "half an axis": (lambda: declared(shape=[2.0, 3]), "entry of 'x'"),
    "a true axis": (lambda: declared(shape=[True, 6]), "entry of 'x'"),
    "more than the file holds": (lambda: declared(shape=[2, 4], data_offsets=[0, 32]), "of the 24 that the file holds"),
    "beyond the file": (lambda: declared(data_offsets=[24, 48]), "24 to 48 of the 24 that the file holds"),
    "backwards": (lambda: declared(data_offsets=[24, 0]), "24 to 0 of the 24"),
    "another size than its shape": (lambda: declared(shape=[2, 2]), "declares 16 bytes"),
    "three offsets": (lambda: declared(data_offsets=[0, 24, 48]), "entry of 'x'"),
    "a name twice": (
        lambda: raw(b"{" + b",".join([b'"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'] * 2) + b"}", bytes(4)),
        "has a second weight 'x'",
    ),
    "data that no tensor has": (lambda: declared() + b"more", "28 bytes of weights"),
    "whole numbers": (lambda: declared(dtype="I32"), "I32"),
    "quarter floats": (lambda: declared(dtype="F8_E4M3", shape=[24]), "F8_E4M3"),
    "a name to fill the screen": (
        lambda: raw(json.dumps({"\x1b[2J" * 9999: {"dtype": "F32", "shape": [9], "data_offsets": [0, 1]}}).encode()),
        r"\x1b[2J",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_bad_weights_are_rejected(name: str, tmp_path: Path) -> None:
    content, reason = FILES[name]
    (put_config(tmp_path / "bad") / "model.safetensors").write_bytes(content())
    assert reason in refusal(tmp_path / "bad")


def test_the_table_of_bad_weights_starts_from_sound_ones(tmp_path: Path) -> None:
    (put_config(tmp_path / "sound") / "model.safetensors").write_bytes(declared())
    assert torch.equal(HuggingFaceFolder(tmp_path / "sound").weights.load("x"), torch.zeros(2, 3))


def test_whole_numbers_that_nobody_asks_for_do_no_harm(tmp_path: Path) -> None:
    """Older checkpoints keep a table of positions among their weights."""
    tensors = {"positions": torch.arange(5), "weight": torch.ones(3)}
    save_file(tensors, put_config(tmp_path / "old") / "model.safetensors")
    assert torch.equal(HuggingFaceFolder(tmp_path / "old").weights.load("weight"), torch.ones(3))
    assert "'positions' has dtype I64" in refusal(tmp_path / "old")


@pytest.mark.parametrize(
    "name",
    [
        "../outside.safetensors",
        "sub/../../outside.safetensors",
        "/etc/outside.safetensors",
        "C:\\outside.safetensors",
        "..\\outside.safetensors",
        "a\0.safetensors",
        "config.json",
        "",
        7,
        None,
        ["model-00001-of-00002.safetensors"],
    ],
)
def test_an_index_names_files_of_its_folder_only(name: Any, sharded: Path) -> None:
    save_file(OTHER, sharded.parent / "outside.safetensors")
    put_index(sharded, {"second": name})
    assert "names the shard" in refusal(sharded)


@pytest.mark.parametrize("listed", [None, {}, [], "x", 7])
def test_an_index_that_lists_nothing_is_rejected(listed: Any, sharded: Path) -> None:
    put_index(sharded, listed)
    assert "lists no weights" in refusal(sharded)


def test_shards_must_be_what_the_index_says(sharded: Path) -> None:
    put_index(sharded, {"third": SHARDS[1]})
    assert f"{SHARDS[1]}: missing weight 'third'" in refusal(sharded)
    put_index(sharded, {"second": SHARDS[0], "first": SHARDS[1]})
    assert f"{SHARDS[0]}: missing weight 'second'" in refusal(sharded)
    put_index(sharded, {"second": "model-00003-of-00003.safetensors"})
    assert "model-00003-of-00003.safetensors: is missing" in refusal(sharded)
    save_file({**OTHER, "first": ONE["first"]}, sharded / SHARDS[1])
    put_index(sharded, {"first": SHARDS[0], "second": SHARDS[1]})
    assert "has a second weight 'first'" in refusal(sharded)


def test_a_name_that_the_index_has_twice_is_rejected(sharded: Path) -> None:
    (sharded / INDEX).write_text(f'{{"weight_map": {{"first": "{SHARDS[0]}", "first": "{SHARDS[1]}"}}}}')
    assert "'first' twice" in refusal(sharded)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_links_out_of_the_folder_are_rejected(name: str, whole: Path) -> None:
    (whole / name).rename(whole.parent / "outside")
    for target in (whole.parent / "outside", "../outside", "/dev/zero", "/proc/self/environ"):
        (whole / name).symlink_to(target)
        assert f"{name}: is a link to a file outside" in refusal(whole)
        (whole / name).unlink()


def test_a_shard_behind_a_linked_folder_is_rejected(sharded: Path) -> None:
    (sharded / "sub").symlink_to(sharded.parent)
    save_file(OTHER, sharded.parent / "outside.safetensors")
    put_index(sharded, {"second": "sub/outside.safetensors"})
    assert "outside the folder" in refusal(sharded)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_what_is_no_plain_file_is_rejected_without_waiting_for_it(name: str, whole: Path) -> None:
    (whole / name).unlink()
    os.mkfifo(whole / name)
    assert f"{name}: is not a regular file" in refusal(whole)
    (whole / name).unlink()
    (whole / name).mkdir()
    assert f"{name}: is not a regular file" in refusal(whole)
    (whole / name).rmdir()
    (whole / name).symlink_to(name)
    assert f"{name}: cannot be read (Too many levels of symbolic links)" in refusal(whole)
    (whole / name).unlink()
    (whole / name).symlink_to("nothing")
    assert f"{name}: cannot be read (No such file or directory)" in refusal(whole)


class Canary:
    """What runs code when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
def test_pickles_are_rejected_unread_with_a_way_out(name: str, tmp_path: Path) -> None:
    folder = put_config(tmp_path / "pickled")
    (folder / name).write_bytes(pickle.dumps(Canary(tmp_path / "canary")))
    sentence = refusal(folder)
    assert "pickled weights" in sentence and sentence.endswith(CONVERSION)
    assert not (tmp_path / "canary").exists()


def test_the_way_out_of_pickles_works(tmp_path: Path) -> None:
    folder = put_config(tmp_path / "pickled")
    shared = torch.ones(3, 2)
    torch.save({"one": shared, "tied_embeddings": shared}, folder / "pytorch_model-00001-of-00002.bin")
    torch.save({"other": torch.arange(5.0)}, folder / "pytorch_model-00002-of-00002.bin")
    command = shlex.split(CONVERSION)
    assert command[:2] == ["python", "-c"]
    subprocess.run([sys.executable, *command[1:]], cwd=folder, check=True, timeout=120)
    weights = HuggingFaceFolder(folder).weights
    assert weights.names == {"one", "tied_embeddings", "other"} and torch.equal(weights.load("tied_embeddings"), shared)


def test_safetensors_go_before_pickles(whole: Path) -> None:
    (whole / "pytorch_model.bin").write_bytes(b"never read")
    assert HuggingFaceFolder(whole).weights.names == set(ONE)


def test_a_missing_weight_is_an_error(whole: Path) -> None:
    with pytest.raises(ModelFolderError, match=r"missing weight 'model\.shared\.weight'"):
        HuggingFaceFolder(whole).weights.load("model.shared.weight")


def test_a_file_that_is_damaged_after_it_was_opened_is_rejected(whole: Path) -> None:
    weights = HuggingFaceFolder(whole).weights
    (whole / "model.safetensors").write_bytes(b"x" * 99)
    with pytest.raises(ModelFolderError, match="cannot be read"):
        weights.load("first")
