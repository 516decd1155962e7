"""What TensorBoard and Weights & Biases are told, read back by their own readers."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.example import complaint
from transduce.cli.main import run
from transduce.storage.journal import read_journal


def read_back(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """The scalars of event files, as tensorboard itself reads them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def journal_of(folder: Path, event: str, name: str) -> list[tuple[int, Any]]:
    return [(line["update"], line[name]) for line in read_journal(folder / "journal.jsonl") if line["event"] == event]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_shows_what_the_journal_has(place: Path) -> None:
    train = ["train", "--recipe", "recipe.toml", "--log", "tensorboard", "--quiet"]
    assert run([*train, "--output", "new"]) == 0
    found = read_back(place / "new" / "tensorboard")
    expected = {
        "train/loss": journal_of(place / "new", "update", "loss"),
        "train/learning_rate": journal_of(place / "new", "update", "learning_rate"),
        "train/gradient_norm": journal_of(place / "new", "update", "gradient_norm"),
        "validation/loss": journal_of(place / "new", "validation", "loss"),
        "validation/exact_match": journal_of(place / "new", "validation", "exact_match"),
        "validation/perplexity": journal_of(place / "new", "validation", "perplexity"),
    }
    for name, values in expected.items():
        assert [update for update, _ in found[name]] == [update for update, _ in values]
        assert [value for _, value in found[name]] == pytest.approx([value for _, value in values], rel=1e-5), name
    assert len(found["train/tokens_per_second"]) == len(found["train/loss"])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_run_that_is_extended_continues_its_curves(place: Path) -> None:
    assert run(["train", "--resume", "run", "--updates", "30", "--log", "tensorboard", "--quiet"]) == 0
    found = read_back(place / "run" / "tensorboard")
    assert [update for update, _ in found["train/loss"]] == [25, 30]


def test_a_missing_package_is_one_sentence_before_anything_is_done(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, module in (("tensorboard", "tensorboardX"), ("wandb", "wandb")):
        monkeypatch.setitem(sys.modules, module, None)
        assert run(["train", "--recipe", "recipe.toml", "--log", name, "--output", "new"]) == 2
        assert f"pip install 'transduce[{name}]'" in complaint(capsys.readouterr())
    assert not (place / "new").exists()


READER = """
import json, sys
from pathlib import Path
from wandb.proto import wandb_internal_pb2

data, place, parts, rows = Path(sys.argv[1]).read_bytes(), 7, b"", []
while place + 7 <= len(data):
    if 32768 - place % 32768 < 7:  # LevelDB's log: blocks of 32 KiB, each fragment with checksum, length and type
        place += 32768 - place % 32768
        continue
    length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
    parts, place = parts + data[place + 7 : place + 7 + length], place + 7 + length
    if kind in (1, 4):
        record, parts = wandb_internal_pb2.Record.FromString(parts), b""
        if record.HasField("history"):
            items = record.history.item
            rows.append({".".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items})
print(json.dumps(rows))
"""
"""Reads the file of an offline run with W&B's own messages; its Python package has no reader."""


@pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="wandb is not installed: pip install wandb")
def test_wandb_keeps_a_run_offline(place: Path) -> None:
    """In a process of its own, because wandb starts another one."""
    environment = {**os.environ, "WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    command = ["-m", "transduce", "train", "--recipe", "recipe.toml", "--log", "wandb", "--output", "new", "--quiet"]
    subprocess.run([sys.executable, *command], env=environment, check=True, capture_output=True, timeout=250)
    (file,) = (place / "new" / "wandb").glob("offline-run-*/run-*.wandb")
    found = subprocess.run([sys.executable, "-c", READER, str(file)], check=True, capture_output=True, text=True)
    rows = json.loads(found.stdout)
    losses = [(row["_step"], row["train/loss"]) for row in rows if "train/loss" in row]
    assert [update for update, _ in losses] == [5, 10, 15, 20]
    expected = [value for _, value in journal_of(place / "new", "update", "loss")]
    assert [loss for _, loss in losses] == pytest.approx(expected, rel=1e-5)
