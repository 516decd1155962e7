"""Functions that damage the files below a folder, for the tables of bad input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.unit.cli.example import change_config, seal_again
from transduce.storage.atomic import read_json
from transduce.storage.manifest import save_manifest

World = Callable[[Path], object]


class Case(NamedTuple):
    """One row."""

    arguments: str
    """Words of the command line; `model` is a copy of a good model folder."""
    code: int
    says: str
    world: World = lambda place: None
    """Makes the world bad, below the current folder."""


def file(name: str, content: bytes | str) -> World:
    """Put a file there."""
    return lambda place: (place / name).write_bytes(content.encode() if isinstance(content, str) else content)


def folder(name: str) -> World:
    """Put an empty folder there."""
    return lambda place: (place / name).mkdir()


def weights(change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> World:
    """Change a model's weights by hand."""

    def world(place: Path) -> None:
        save_file(change(load_file(place / "model/model.safetensors")), place / "model/model.safetensors")
        seal_again(place / "model")

    return world


def content(name: str, text: str | bytes) -> World:
    """Give a file of the model other content, and seal the folder again."""

    def world(place: Path) -> None:
        file(f"model/{name}", text)(place)
        seal_again(place / "model")

    return world


def config(**changes: object) -> World:
    """Change entries of the model's config.json, and seal the folder again."""
    return lambda place: change_config(**changes)(place / "model")


def replaced(name: str, put: Callable[[Path], object]) -> World:
    """Replace a file of the model by something that is no plain file."""

    def world(place: Path) -> None:
        path = place / "model" / name
        path.rename(place / "aside")
        put(path)

    return world


def manifest(text: str) -> World:
    """Give the model another manifest."""
    return file("model/manifest.json", text)


def sealed(files: dict[str, object]) -> World:
    """Let the manifest of the model, intact itself, list other files."""
    return lambda place: save_manifest(place / "model", {**read_json(place / "model/manifest.json"), "files": files})


def thesis(name: str) -> World:
    """Put a folder there that holds somebody's file."""
    return lambda place: (folder(name)(place), file(f"{name}/thesis.txt", "mine")(place))


def cut(name: str, count: int) -> World:
    """Cut bytes off a file's end."""
    return lambda place: (place / name).write_bytes((place / name).read_bytes()[:-count])


def flip(name: str) -> World:
    """Flip a bit near a file's end."""

    def world(place: Path) -> None:
        found = bytearray((place / name).read_bytes())
        found[-3] ^= 1
        (place / name).write_bytes(found)

    return world
