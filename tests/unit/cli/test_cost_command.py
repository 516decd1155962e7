"""`transduce cost` as a person types it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli.example import check_rejected
from transduce.cli.cost import aligned, in_bytes
from transduce.cli.main import run

BASE = ["cost", "--preset", "paper_base", "--vocab-size"]


def test_json_has_the_paper_s_65_million(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*BASE, "41100", "--format", "json"]) == 0
    out = capsys.readouterr().out
    cost = json.loads(out)
    assert cost["parameters"] == 44_101_632 + 41_100 * 512 == sum(cost["parts"].values())
    assert set(cost["flops_per_token"]) >= {"train", "decode"}
    assert {row["complexity"] for row in cost["table_1"]} == {"n²·d", "n·d²", "k·n·d²", "r·n·d"}
    assert cost["memory_bytes"]["train"]["total"] > 16 * cost["parameters"]
    assert out.count("\n") == 1


def test_settings_change_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*BASE, "41100", "--set", "model.num_layers=2", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] == 44_101_632 // 3 + 41_100 * 512


def test_a_recipe_gives_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text('[data]\nseed = 3\n[model]\nname = "rnn"\nhidden_dim = 19\n', encoding="utf-8")
    assert (
        run(["cost", "--recipe", str(recipe), "--vocab-size", "53", "--source-vocab-size", "59", "--format", "json"])
        == 0
    )
    assert json.loads(capsys.readouterr().out)["parts"]["embeddings"] == (53 + 59) * 256


def test_people_get_aligned_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["cost", "--preset", "tiny", "--vocab-size", "9712", "--source-length", "50", "--batch-tokens", "997"]) == 0
    )
    out = capsys.readouterr().out
    assert "  total                    2,568,192\n" in out
    assert "batches of 997 target tokens" in out
    assert "n = 50, d = 128" in out
    assert "\x1b" not in out


def test_impossible_options_are_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    cases = [
        ([*BASE, "100", "--set", "model.num_heads=0"], "num_heads"),
        ([*BASE, "100", "--set", "model.num_layers=1000000"], "num_layers"),
        ([*BASE, "100", "--set", "model.num_head=4"], "did you mean 'num_heads'?"),
        ([*BASE, "100", "--set", "model.dropout=-1"], "dropout"),
        ([*BASE, "100", "--set", "training.batch_tokens=4"], "--set training.batch_tokens=4"),
        ([*BASE, "100", "--set", "nonsense"], "--set nonsense"),
        ([*BASE, "-5"], "-5"),
        ([*BASE, "0"], "--vocab-size"),
        ([*BASE, "many"], "'many'"),
        ([*BASE, "100", "--source-length", "0"], "--source-length"),
        ([*BASE, "100", "--source-vocab-size", "99"], "tied_embeddings"),
        ([*BASE, "100", "--recipe", "also.toml"], "either --preset or --recipe"),
        (["cost", "--vocab-size", "7"], "either --preset or --recipe"),
        (["cost", "--preset", "paper_bass", "--vocab-size", "7"], "did you mean 'paper_base'?"),
        (["cost", "--preset", "tiny"], "--vocab-size"),
    ]
    check_rejected(capsys, cases)


def test_broken_recipes_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "--recipe", str(tmp_path / "none.toml"), "--vocab-size", "7"]) == 66
    broken = tmp_path / "broken.toml"
    broken.write_bytes(b"\xff\x00[model")
    assert run(["cost", "--recipe", str(broken), "--vocab-size", "7"]) == 2
    flat = tmp_path / "flat.toml"
    flat.write_text("model = 3\n", encoding="utf-8")
    assert run(["cost", "--recipe", str(flat), "--vocab-size", "7"]) == 2
    assert capsys.readouterr().err.count("error: ") == 3


def test_help_loads_no_torch() -> None:
    code = "import sys; from transduce.cli.main import run; run(['cost', '--help']); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_numbers_are_written_for_people() -> None:
    assert [in_bytes(n) for n in (0, 1023, 1024, 260_579_328, 3 * 2**40)] == [
        "0 B",
        "1023 B",
        "1.00 KiB",
        "249 MiB",
        "3.00 TiB",
    ]
    assert aligned([["a", "10"], ["bcd", "7"]]) == "  a    10\n  bcd   7"
