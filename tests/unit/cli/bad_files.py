"""Rows of the tables of bad input, and functions that damage files for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.unit.cli.example import change_config, rewrite_manifest
from transduce.storage.atomic import read_json
from transduce.storage.manifest import save_manifest

Damage = Callable[[Path], object]
"""Damages files below a folder."""


class Case(NamedTuple):
    """One row of a table: a command, what is wrong with its files, and the expected error."""

    arguments: str
    """Words of the command line; `model` is a copy of a good model folder."""
    code: int
    says: str
    damage: Damage = lambda place: None
    """Damages files below the current folder."""


def file(name: str, content: bytes | str) -> Damage:
    """Write a file."""
    return lambda place: (place / name).write_bytes(content.encode() if isinstance(content, str) else content)


def folder(name: str) -> Damage:
    """Create an empty folder."""
    return lambda place: (place / name).mkdir()


def weights(change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Damage:
    """Change the model's weights and write a valid manifest."""

    def damage(place: Path) -> None:
        save_file(change(load_file(place / "model/model.safetensors")), place / "model/model.safetensors")
        rewrite_manifest(place / "model")

    return damage


def content(name: str, text: str | bytes) -> Damage:
    """Replace the content of a file of the model and write a valid manifest."""

    def damage(place: Path) -> None:
        file(f"model/{name}", text)(place)
        rewrite_manifest(place / "model")

    return damage


def config(**changes: object) -> Damage:
    """Change entries of the model's config.json and write a valid manifest."""
    return lambda place: change_config(**changes)(place / "model")


def replaced(name: str, put: Callable[[Path], object]) -> Damage:
    """Replace a file of the model by something other than a regular file."""

    def damage(place: Path) -> None:
        path = place / "model" / name
        path.rename(place / "moved")
        put(path)

    return damage


def manifest(text: str) -> Damage:
    """Replace the model's manifest."""
    return file("model/manifest.json", text)


def listed(files: dict[str, object]) -> Damage:
    """Write a valid manifest that lists other files."""
    return lambda place: save_manifest(place / "model", {**read_json(place / "model/manifest.json"), "files": files})


def user_folder(name: str) -> Damage:
    """Create a folder with a file of the user."""
    return lambda place: (folder(name)(place), file(f"{name}/thesis.txt", "mine")(place))


def cut(name: str, count: int) -> Damage:
    """Truncate a file by `count` bytes."""
    return lambda place: (place / name).write_bytes((place / name).read_bytes()[:-count])


def flip(name: str) -> Damage:
    """Flip a bit near a file's end."""

    def damage(place: Path) -> None:
        found = bytearray((place / name).read_bytes())
        found[-3] ^= 1
        (place / name).write_bytes(found)

    return damage
