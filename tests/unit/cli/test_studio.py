"""`transduce studio`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from transduce.cli import studio
from transduce.cli.main import run
from transduce.serving import launch as launching
from transduce.serving.launch import LaunchSettings


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[LaunchSettings]:
    found: list[LaunchSettings] = []
    monkeypatch.setattr(launching, "launch", lambda settings, _: found.append(settings))
    return found


def test_it_serves_this_machine_alone_on_a_free_port_and_opens_the_browser(launched: list[LaunchSettings]) -> None:
    run(["studio", "runs/a", "b=runs/c"])
    run(["studio", "runs/a", "--no-browser", "--port", "8123"])
    first, second = launched
    assert (first.host, first.port, first.folders) == ("127.0.0.1", 0, ("runs/a", "b=runs/c"))
    assert first.studio and first.unfinished_runs and first.on_ready is studio._open_browser
    assert (second.port, second.on_ready) == (8123, None)


@pytest.mark.parametrize(("display", "opened"), [(":0", True), (None, False)])
def test_a_browser_opens_only_where_there_is_a_display(
    monkeypatch: pytest.MonkeyPatch, display: str | None, opened: bool
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    if display is not None:
        monkeypatch.setenv("DISPLAY", display)
    monkeypatch.setattr(sys, "platform", "linux")
    called, addresses = threading.Event(), list[str]()

    def open_page(address: str) -> None:
        addresses.append(address)
        called.set()

    monkeypatch.setattr(studio.webbrowser, "open", open_page)
    studio._open_browser("http://127.0.0.1:9")
    assert called.wait(5 if opened else 0.05) == opened
    assert addresses == ["http://127.0.0.1:9/"] * opened


def test_a_run_without_a_model_shows_its_training(tmp_path: Path) -> None:
    folder = tmp_path / "young"
    folder.mkdir()
    lines = [{"event": "began"}, {"event": "update", "update": 7, "loss": 3.0}]
    (folder / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = [sys.executable, "-m", "transduce", "studio", str(folder), "--no-browser"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        printed = ""
        while "stop with" not in printed:
            line = process.stderr.readline()
            assert line, printed
            printed += line
        try:
            address = re.search(r"http://127\.0\.0\.1:\d+", printed)
            assert address is not None and "no run has a model yet" in printed
            found: dict[str, Any] = json.load(urlopen(f"{address[0]}/studio/api/runs", timeout=10))
            assert [(one["name"], one["updates"]) for one in found["runs"]] == [("young", 7)]
            assert json.load(urlopen(f"{address[0]}/studio/api/models", timeout=10))["models"] == []
            assert urlopen(f"{address[0]}/", timeout=10).status == 200
        finally:
            process.terminate()
    assert process.returncode == 0
