"""A run that is trained in a moment, and how an error must look."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from transduce.cli.main import run
from transduce.storage.layout import MANIFEST
from transduce.storage.manifest import save_manifest

RECIPE = """
[data]
train = {task = "reverse", size = 300, max_length = 6, symbols = 7}
validation = {task = "reverse", size = 20, seed = 2, max_length = 6, symbols = 7}

[tokenizer]
kind = "word"
min_frequency = 1

[model]
model_dim = 16
ffn_dim = 32
num_heads = 2
num_layers = 1

[training]
batch_tokens = 128
updates = 20
validate_every = 10
log_every = 5
threads = 1
learning_rate = 0.01
schedule = "constant"
warmup = 2
decode_examples = 5

[search]
beam_size = 2
max_extra = 5
"""
"""One layer of 16 learns a little about reversing seven letters."""

NOTES = ("note: ", "chosen: ", "  ", "update ", "5,552 parameters")
"""How the lines on standard error begin that are not errors."""


def complaint(captured: pytest.CaptureResult[str] | tuple[str, str], label: str = "error: ") -> str:
    """Return the message of an error, after checking that there is exactly one, last, and no traceback."""
    lines = captured[1].splitlines()
    others = [line for line in lines if not line.startswith(NOTES) and not line.endswith("…")]
    assert len(others) == 1, f"not one sentence: {captured[1]}"
    assert others[0].startswith(label) and lines[-1] == others[0]
    assert "Traceback" not in captured[1] and others[0].isprintable()
    return others[0]


def check_rejected(
    capsys: pytest.CaptureFixture[str],
    cases: Iterable[tuple[list[str], str]],
    *command: str,
    codes: Sequence[int] = (2,),
) -> None:
    """Check that each command line ends with one of these exit codes and one sentence that has these words."""
    for arguments, words in cases:
        code = run([*command, *arguments])
        shown = capsys.readouterr()
        assert code in codes, f"{arguments}: exit code {code}, {shown.err}"
        assert words in complaint(shown), arguments
        assert shown.out == ""


def snapshot(folder: Path) -> dict[str, str]:
    """Every file, link and folder below, with the hash of its content."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in sorted(folder.rglob("*"))
    }


def rewrite_manifest(folder: Path) -> None:
    """Write a valid manifest for changed files."""
    manifest = json.loads((folder / MANIFEST).read_text())
    for name in manifest["files"]:
        content = (folder / name).read_bytes()
        manifest["files"][name] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    save_manifest(folder, manifest)


def change_config(**changes: Any) -> Callable[[Path], None]:
    """Return a function that changes entries of a model's config.json and rewrites its manifest."""

    def change(folder: Path) -> None:
        path = folder / "config.json"
        config = json.loads(path.read_text())
        settings = changes.get("settings")
        if isinstance(settings, dict):
            config["settings"] |= settings
        config |= {name: value for name, value in changes.items() if not isinstance(value, dict) or name != "settings"}
        path.write_text(json.dumps(config))
        rewrite_manifest(folder)

    return change


def start(*arguments: str | Path, **extra: Any) -> subprocess.Popen[bytes]:
    """Start the program as a person does."""
    streams: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    }
    return subprocess.Popen([sys.executable, "-m", "transduce", *map(str, arguments)], **streams | extra)
