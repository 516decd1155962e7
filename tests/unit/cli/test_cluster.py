"""What cannot be translated in shards is rejected before anything is read or written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.example import check_rejected


def test_options_that_do_not_go_with_shards_are_rejected(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("page.html").write_text("<html><p>a</p></html>")
    shard = ["a.txt", "--output", "out", "--shard", "1/2"]
    check_rejected(
        capsys,
        [
            ([*shard, "--ray", "auto"], "--shard and --ray exclude each other"),
            ([*shard, "--actors", "2"], "--shard and --actors exclude each other"),
            (["a.txt", "--output", "out", "--actors", "2"], "--actors needs --ray"),
            (["a.txt", "--output", "out", "--block-lines", "512"], "--block-lines needs --ray or --shard"),
            ([*shard, "--block-lines", "500"], "multiple of 512"),
            ([*shard, "--prefix-file", "b.txt"], "--prefix-file and --shard exclude each other"),
            (["a.txt", "--shard", "1/2"], "--shard needs --output FILE"),
            (["a.txt", "--shard", "1/2", "--stream"], "--stream and --shard exclude each other"),
            (["--output", "out", "--shard", "1/2"], "--shard needs a file"),
            (["page.html", "--output", "out", "--shard", "1/2"], "--shard needs plain text, not html"),
            ([*shard[:-1], "3/2"], "there is no shard 3 of 2"),
            (["missing.txt", "--output", "out", "--shard", "1/2"], "missing.txt: "),
            ([*shard, "--ensemble", "nowhere"], "nowhere"),
        ],
        "translate",
        "run",
        codes=(2, 66),
    )
    assert not Path("out.blocks").exists()
