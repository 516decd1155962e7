"""`transduce positions`: a picture of the position encodings; what it shows is tested with the inspection."""

from __future__ import annotations

from pathlib import Path

import pytest

from transduce.cli.main import run


def test_a_picture_is_written_and_named(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["positions", "--length", "7", "--dim", "5", "--output", "p.png"]) == 0
    assert capsys.readouterr() == ("p.png\n", "")
    assert (place / "p.png").read_bytes().startswith(b"\x89PNG")
