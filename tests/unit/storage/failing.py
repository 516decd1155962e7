"""Disks that fail on command, and what is left on them."""

from __future__ import annotations

from pathlib import Path

import pytest


def everything(folder: Path) -> dict[str, str]:
    """Every file below a folder, hidden ones too, with its text."""
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


class Stop(BaseException):
    """What Ctrl-C is like: no Exception."""


def fail_at(monkeypatch: pytest.MonkeyPatch, place: object, name: str, call: int, error: BaseException) -> None:
    """Let the call of this number fail, and those before and after it succeed."""
    real, calls = getattr(place, name), 0

    def failing(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls == call:
            raise error
        return real(*arguments)

    monkeypatch.setattr(place, name, failing)
