"""What a hostile case is, and the sound folders that the cases damage."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from transduce.interop.export_model import export
from transduce.model_folder import ModelFolder, save_model
from transduce.models.catalog import build
from transduce.models.gpt import GptConfig
from transduce.models.interface import VocabularySizes
from transduce.models.t5 import T5Config
from transduce.models.transformer import TransformerConfig
from transduce.storage.atomic import read_json, write_json
from transduce.storage.layout import MANIFEST, MODEL_KIND
from transduce.storage.manifest import save_manifest, sha256
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer

TEXT = ["the quick brown fox jumps over the lazy dog", "a dog and a fox", "the lazy fox"] * 3
CANARY = "canary"
"""A file that only code of a model file could create."""
TRANSLATE = ("translate", "{place}/native", "{place}/input.txt")
GENERATE = ("generate", "{place}/causal", "the fox", "--greedy")
IMPORT = ("import", "{place}/foreign", "--output", "{place}/imported")
IMPORT_T5 = ("import", "{place}/t5", "--output", "{place}/imported")
SHORTLIST = (*TRANSLATE, "--shortlist", "{place}/shortlist.safetensors")
IMPORT_GGUF = ("import", "{place}/model.gguf", "--output", "{place}/imported")

Damage = Callable[[Path], object]
"""Makes the folder below a place hostile."""


class Case(NamedTuple):
    """A command, and what is wrong with its model."""

    command: tuple[str, ...]
    damage: Damage
    says: str = ""
    """Words of the error that carry the fact."""

    def arguments(self, place: Path) -> list[str]:
        return [part.format(place=place) for part in self.command]


def make_bases(folder: Path) -> Path:
    """Write `native` (translation, BPE), `causal` (a language model) and `foreign` (a Hugging Face export)."""
    words = train_tokenizer("bpe", TEXT, TokenizerConfig(vocab_size=300, min_frequency=1))
    sizes = VocabularySizes(words.size, words.size)
    config = TransformerConfig(model_dim=6, num_heads=3, ffn_dim=7, num_layers=1, norm="post")
    notes = {"search": {"method": "greedy", "max_length": 5}}
    save_model(folder / "native", ModelFolder(build(config, sizes, seed=3), config, words, words, notes), "a card")
    causal = GptConfig(model_dim=6, num_heads=3, ffn_dim=7, num_layers=1, max_positions=32)
    contents = ModelFolder(build(causal, sizes, seed=3), causal, words, words, notes)
    save_model(folder / "causal", contents, "a card")
    export(contents, folder / "foreign")
    reading = T5Config(model_dim=6, num_heads=3, ffn_dim=7, num_layers=1)
    export(ModelFolder(build(reading, sizes, seed=3), reading, words, words, notes), folder / "t5")
    (folder / "input.txt").write_text("the lazy fox\n" + "a" * 500 + "!\n")
    return folder


def place_of(base: Path, folder: Path) -> Path:
    """A copy of the sound folders to damage."""
    return Path(shutil.copytree(base, folder))


def rewritten(place: Path, name: str = "native") -> None:
    """Write a manifest that fits, as an attacker would, without reading files of gigabytes."""
    folder, files = place / name, {}
    for path in sorted(folder.iterdir()):
        if path.name == MANIFEST or not path.is_file():
            continue
        size = path.stat().st_size
        files[path.name] = {"size": size, "sha256": sha256(path) if size < 2**28 else "0" * 64}
    (folder / MANIFEST).unlink(missing_ok=True)
    save_manifest(folder, {"kind": MODEL_KIND, "format": 2, "files": files})


def raw(header: bytes, data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file by hand."""
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def header_of(path: Path) -> tuple[dict[str, Any], bytes]:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def weights(put: Callable[[Path], object], name: str = "native") -> Damage:
    """Change the file of the weights, and write a manifest that fits where the folder has one."""

    def damage(place: Path) -> None:
        put(place / name / "model.safetensors")
        if name != "foreign":
            rewritten(place, name)

    return damage


def file(name: str, content: bytes | str | Callable[[], bytes], folder: str = "native") -> Damage:
    """Replace one file, and write a manifest that fits where the folder has one."""

    def damage(place: Path) -> None:
        made = content() if callable(content) else content
        (place / folder / name).write_bytes(made.encode() if isinstance(made, str) else made)
        if folder != "foreign":
            rewritten(place, folder)

    return damage


def table(name: str, change: Callable[[dict[str, Any]], object], folder: str = "native") -> Damage:
    """Change one JSON file, and write a manifest that fits where the folder has one."""

    def damage(place: Path) -> None:
        path = place / folder / name
        content = read_json(path)
        change(content)
        write_json(path, content)
        if folder != "foreign":
            rewritten(place, folder)

    return damage


def replaced(name: str, put: Callable[[Path], object], folder: str = "native") -> Damage:
    """Replace a file by something that is no regular file of the folder; a manifest lists what was there."""

    def damage(place: Path) -> None:
        path = place / folder / name
        path.rename(place / "moved")
        put(path)

    return damage


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link(target: str) -> Callable[[Path], object]:
    return lambda path: path.symlink_to(target)


def sparse(path: Path, size: int) -> None:
    """Let a file end with a hole up to this size."""
    with path.open("r+b") as file:
        file.truncate(size)


def gguf_string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text
