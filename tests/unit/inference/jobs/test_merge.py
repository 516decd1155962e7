"""Merging: what is missing, doubled, damaged or foreign is one sentence, and nothing is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.example import complaint
from tests.unit.inference.jobs.test_shards import many_lines, shard
from transduce.cli.main import run


@pytest.fixture
def translated(place: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A folder with all blocks of a file."""
    many_lines(place / "big.txt", 1200)
    assert shard("1/1") == 0
    capsys.readouterr()
    return place / "out.blocks"


def test_what_is_wrong_with_blocks_is_one_sentence(translated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    block, manifest = translated / "000001", translated / "000001.json"
    content, table = block.read_bytes(), manifest.read_bytes()
    other = json.dumps({**json.loads(table), "block": 2})
    foreign = json.dumps({**json.loads(table), "job": "0" * 16})
    damaged = content.replace(content[:1], b"x", 1)
    for changed, words in (
        ({manifest: b""}, "000001.json: is not valid JSON; delete"),
        ({manifest: b"{}"}, "000001.json: is damaged"),
        ({manifest: other.encode()}, "belongs to another block or translation"),
        ({manifest: foreign.encode()}, "belongs to another block or translation"),
        ({block: content[:-1]}, "000001: has"),
        ({block: damaged}, "000001: is damaged (its SHA-256 differs); delete out.blocks/000001.json"),
        ({translated / "000003": content}, "000003: is a block that out.blocks/plan.json does not list"),
    ):
        for path, bad in changed.items():
            path.write_bytes(bad)
        assert run(["merge", "out"]) == 65, words
        assert words in complaint(capsys.readouterr())
        assert not Path("out").exists() and not list(translated.parent.glob(".out*"))
        (translated / "000003").unlink(missing_ok=True)
        block.write_bytes(content)
        manifest.write_bytes(table)
    assert run(["merge", "out.blocks"]) == 66
    assert "out.blocks: is the folder of the blocks; give the output itself, out" in complaint(capsys.readouterr())
    block.unlink()
    assert run(["merge", "out"]) == 65
    assert "1 of 3 blocks are missing (1; the first has lines 513 to 1,024)" in complaint(capsys.readouterr())
    manifest.unlink()
    assert shard("1/1") == 0
    assert block.read_bytes() == content and manifest.read_bytes() == table


def test_without_a_plan_there_is_nothing_to_merge(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["merge", "out"]) == 66
    assert "out.blocks/plan.json: does not exist; translate with --shard" in complaint(capsys.readouterr())
    (place / "out").write_text("done\n")
    assert run(["merge", "out"]) == 66
    assert "it was merged and removed before" in complaint(capsys.readouterr())
    (place / "out.blocks").mkdir()
    for bad in ("", "[]", "{}", '{"kind": "transduce translation in blocks", "size": "x"}'):
        (place / "out.blocks/plan.json").write_text(bad)
        assert run(["merge", "out"]) == 73
        assert "delete out.blocks to start over" in complaint(capsys.readouterr())


def test_the_output_may_lead_to_another_folder(translated: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    Path("out").symlink_to(elsewhere / "result")
    (elsewhere / "result").write_text("before\n")
    assert run(["merge", "out"]) == 0
    translated.rename(elsewhere / "blocks")
    translated.symlink_to(elsewhere / "blocks")
    for name in ("mine", "000001.part", "000001.progress.json.new", ".000001.json.77.writing", ".plan.json.77.writing"):
        (elsewhere / "blocks" / name).write_text("")
    assert run(["merge", "out", "--remove"]) == 0
    assert [path.name for path in (elsewhere / "blocks").iterdir()] == ["mine"]
    assert Path("out").is_symlink() and (elsewhere / "result").read_text().count("\n") == 1200
