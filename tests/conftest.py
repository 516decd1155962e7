"""One thread for every test process, pytest-xdist's workers too: the models of the tests are too small for a second.

Results differ between thread counts, so this also makes a test say the same on every machine.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings

from tests.browser.served import MISSING, browser, chromium_path
from tests.unit.cli.example import RECIPE
from tests.unit.training.example import recipe
from transduce.cli.main import run
from transduce.data.prepared import Prepared
from transduce.tasks.catalog import load_prepared, prepare

torch.set_num_threads(1)
# What a machine is busy with is no fault of a property: no example is timed.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
# What a script starts in the background, or nohup, ignores these signals, and so would what the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


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


@pytest.fixture(scope="session")
def prepared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    small, folder = recipe(), tmp_path_factory.mktemp("corpus") / "data"
    prepare(small.data, small.tokenizer, folder)
    return folder


@pytest.fixture(scope="session")
def prepared(prepared_folder: Path) -> Prepared:
    return load_prepared(prepared_folder)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A headless Chromium; skips where there is none. It is closed with the module: playwright keeps an event loop
    running in this thread meanwhile, so that no other test could start one, nor a second playwright."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed; `make test-browser` installs it"
    )
    path = chromium_path()
    if path is None:
        pytest.skip(MISSING)
    with browser(sync_api.sync_playwright, path) as found:
        yield found
