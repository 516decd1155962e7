"""A damaged checkpoint is found out, whatever file and bit it is; the file is named, and the one before it is used.

That holds for the manifest too, byte for byte: it ends with a hash of itself. A file that the manifest does not
know is never read, and so does no harm.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.torture.example import Run, Tally, differences, sizes, some
from transduce.storage.layout import MANIFEST
from transduce.training.checkpoint import Checkpoints

FILES = ("model.safetensors", "optimizer.safetensors", "progress.json", MANIFEST)
NEWEST, BEFORE = 20, 18


@pytest.fixture
def run(whole: Run, place: Path) -> Run:
    """A finished run of one's own."""
    copy = Run(whole.fork_server, place)
    shutil.copytree(whole.folder, copy.folder)
    return copy


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def detected(checkpoints: Checkpoints, name: str, content: bytes) -> None:
    """Give a file of the newest checkpoint another content, and see that it is named and the one before found."""
    path = checkpoints.path(NEWEST) / name
    whole = path.read_bytes()
    assert content != whole
    path.write_bytes(content)
    found = checkpoints.latest()
    assert found is not None and found[0] == BEFORE and len(found[1]) == 1, f"{name}: {found}"
    assert found[1][0].startswith(f"{path}: "), found
    path.write_bytes(whole)


@sizes(100, 1000)
def test_every_truncation_is_detected(size: int, run: Run, tally: Tally) -> None:
    draw = random.Random(3)
    for trial in range(size):
        name = FILES[trial % len(FILES)]
        content = (run.checkpoints.path(NEWEST) / name).read_bytes()
        detected(run.checkpoints, name, content[: draw.choice((0, len(content) - 1, draw.randrange(len(content))))])
    assert run.checkpoints.latest() == (NEWEST, [])
    tally("truncations detected, the file named, the checkpoint before found", size)


@sizes(100, 1000)
def test_every_flipped_bit_is_detected(size: int, run: Run, tally: Tally) -> None:
    draw = random.Random(5)
    for trial in range(size):
        name = FILES[trial % len(FILES)]
        content = (run.checkpoints.path(NEWEST) / name).read_bytes()
        detected(run.checkpoints, name, flipped(content, draw.randrange(8 * len(content))))
    assert run.checkpoints.latest() == (NEWEST, [])
    tally("bit flips detected, the file named, the checkpoint before found", size)


@sizes(97, 1)
def test_no_bit_of_the_manifest_is_free(size: int, run: Run, tally: Tally) -> None:
    """All of them in turn; a sample takes every 97th."""
    content = (run.checkpoints.path(NEWEST) / MANIFEST).read_bytes()
    bits = range(0, 8 * len(content), size)
    for bit in bits:
        detected(run.checkpoints, MANIFEST, flipped(content, bit))
    tally("bits of a manifest, one by one", len(bits))


def swap(folder: Path) -> None:
    (folder / FILES[0]).rename(folder / "aside")
    (folder / FILES[1]).rename(folder / FILES[0])
    (folder / "aside").rename(folder / FILES[1])


def older(folder: Path) -> None:
    shutil.copy(folder.with_name(f"update-{BEFORE:08d}") / FILES[0], folder / FILES[0])


def cut(folder: Path) -> None:
    (folder / FILES[0]).write_bytes((folder / FILES[0]).read_bytes()[:-1])


def flip(name: str, byte: int) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(flipped((folder / name).read_bytes(), 8 * byte))


DAMAGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "swapped": (FILES[0], swap),
    "of another update": (FILES[0], older),
    "renamed": (FILES[1], lambda folder: (folder / FILES[1]).rename(folder / "optimizer.bak")),
    "a link": (
        FILES[2],
        lambda folder: (
            (folder / FILES[2]).rename(folder / "there"),
            (folder / FILES[2]).symlink_to("there"),
        ),
    ),
    "missing": (FILES[2], lambda folder: (folder / FILES[2]).unlink()),
    "no manifest": ("manifest.json", lambda folder: (folder / MANIFEST).unlink()),
    "empty": (FILES[1], lambda folder: (folder / FILES[1]).write_bytes(b"")),
    "cut": (FILES[0], cut),
    "flipped weights": (FILES[0], flip(FILES[0], -7)),
    "flipped moments": (FILES[1], flip(FILES[1], -7)),
    "flipped progress": (FILES[2], flip(FILES[2], 5)),
    "flipped manifest": (MANIFEST, flip(MANIFEST, 5)),
    "flipped format": (MANIFEST, lambda folder: replace(folder / MANIFEST, b'"format": 2', b'"format": 3')),
    "flipped seed": (MANIFEST, lambda folder: replace(folder / MANIFEST, b'\n    "seed": 1', b'\n    "seed": 9')),
    "renamed digest": (MANIFEST, lambda folder: replace(folder / MANIFEST, b',\n  "sha256"', b',\n  "sha512"')),
}


def replace(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert content.count(old) == 1
    path.write_bytes(content.replace(old, new))


@pytest.mark.parametrize("name", some(DAMAGES, ["swapped", "cut", "flipped format", "flipped seed"]))
def test_a_run_goes_back_to_the_checkpoint_before_and_ends_as_it_should(
    name: str, run: Run, whole: Run, tally: Tally
) -> None:
    file, damage = DAMAGES[name]
    damage(run.checkpoints.path(NEWEST))
    shutil.rmtree(run.folder / "model")
    outcome = run.go()
    assert outcome.code == 0, outcome
    notes = [line for line in outcome.err.splitlines() if line.startswith("note: ") and "resuming" in line]
    assert len(notes) == 1 and file in notes[0] and notes[0].endswith(f"from update {BEFORE}"), outcome.err
    assert differences(run.result(), whole.result()) == []
    tally("damaged checkpoints from which a run goes back one and ends bit-identical", 1)


def test_a_file_that_the_manifest_does_not_know_does_no_harm(run: Run) -> None:
    (run.checkpoints.path(NEWEST) / "notes.txt").write_text("mine")
    assert run.checkpoints.latest() == (NEWEST, [])


def test_when_none_is_whole_the_run_is_rejected_and_left_as_it_is(run: Run) -> None:
    for update in run.checkpoints.updates():
        cut(run.checkpoints.path(update))
    before = run.result()
    outcome = run.go()
    assert outcome.code == 65
    assert "no checkpoint is intact" in outcome.error and "model.safetensors" in outcome.error
    assert differences(run.result(), before) == []
