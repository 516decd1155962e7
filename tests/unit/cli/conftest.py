"""One run for all tests of the command line, trained through the command line."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.cli.example import RECIPE
from transduce.cli.main import run


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder; nobody may change it."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "recipe.toml").write_text(RECIPE)
    stderr, sys.stderr = sys.stderr, io.StringIO()
    try:
        assert run(["train", "--recipe", str(folder / "recipe.toml"), "--output", str(folder / "run")]) == 0
    finally:
        sys.stderr = stderr
    return folder / "run"


@pytest.fixture
def place(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An own folder to work in, with a run, a recipe and some text; it is also the current one."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "recipe.toml").write_text(RECIPE)
    (tmp_path / "a.txt").write_text("a b c\nd e\n")
    (tmp_path / "b.txt").write_text("c b a\ne d\n")
    return tmp_path


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], None]]:
    """Put bytes on standard input."""
    with contextlib.ExitStack() as opened:

        def put(content: bytes) -> None:
            read, write = os.pipe()
            with os.fdopen(write, "wb") as file:
                file.write(content)  # small enough for a pipe to hold
            monkeypatch.setattr(sys, "stdin", opened.enter_context(os.fdopen(read, encoding="utf-8")))

        yield put
