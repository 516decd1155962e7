"""The progress of a run in a notebook: what the cell shows."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import transduce
from tests.unit.training.example import recipe
from transduce.training.notebook import in_notebook


class Cell:
    """What `IPython.display` is asked to show, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kernel: object) -> None:
        self.shown: list[dict[str, str]] = []
        shell = SimpleNamespace(kernel=kernel) if kernel else SimpleNamespace()
        display = SimpleNamespace(display=self.display)
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell, display=display))  # type: ignore[arg-type]
        monkeypatch.setitem(sys.modules, "IPython.display", display)  # type: ignore[arg-type]

    def display(self, content: dict[str, str], raw: bool, **_: Any) -> Any:
        self.shown.append(content)
        return SimpleNamespace(update=self.display)


def test_a_notebook_shows_a_bar_and_a_row_for_each_validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell(monkeypatch, object())
    transduce.train(recipe(), tmp_path / "run <b>")
    last = cell.shown[-1]
    assert "17 of 17 updates" in last["text/plain"] and last["text/plain"].endswith(f"done: {tmp_path}/run <b>")
    assert "<progress value='17' max='17'>" in last["text/html"] and "run &lt;b&gt;" in last["text/html"]
    assert last["text/html"].count("<tr>") == 1 + 4  # the head, and updates 5, 10, 15, 17
    assert last["text/html"].count("<td>best</td>") >= 1


def test_a_terminal_shows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell(monkeypatch, None)
    assert not in_notebook()
    transduce.train(recipe(training={"updates": 1}), tmp_path / "run")
    assert cell.shown == []
