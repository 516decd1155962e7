"""A whole pipeline on a generated corpus, what is reused, and what is carried out again."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from transduce.cli.main import run
from transduce.config import write_toml

WORDS = {"red": "rot", "dog": "hund", "big": "gross", "cat": "katze", "runs": "rennt", "sees": "sieht", "the": "der"}
TINY: dict[str, Any] = {"model_dim": 16, "ffn_dim": 24, "num_heads": 2, "num_layers": 1, "dropout": 0.0}
SHORT = {"updates": 6, "batch_tokens": 256, "validate_every": 6, "threads": 1, "tune_search": False}


def write(path: Path, lines: list[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def corpus(folder: Path, name: str, count: int, seed: int) -> dict[str, str]:
    """Sentences of words that are translated one by one."""
    draw = random.Random(seed)
    sources = [[draw.choice([*WORDS]) for _ in range(draw.randint(4, 9))] for _ in range(count)]
    targets = [" ".join(WORDS[word] for word in words) for words in sources]
    return {
        "source": write(folder / f"{name}.en", [" ".join(words) for words in sources]),
        "target": write(folder / f"{name}.de", targets),
    }


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    train = corpus(tmp_path, "train", 300, seed=1)
    mono = corpus(tmp_path, "mono", 40, seed=2)["target"]
    tokenizer = {"kind": "word", "joint": False, "min_frequency": 1}
    model = {**TINY, "name": "transformer", "norm": "pre", "tied_embeddings": "target"}
    stage = {"tokenizer": tokenizer, "model": model, "training": SHORT}
    tuned = {"training": {**SHORT, "learning_rate": 0.001, "warmup": 1, "schedule": "linear"}}
    return {
        "data": {
            "train": train,
            "validation": corpus(tmp_path, "validation", 10, seed=3),
            "test": corpus(tmp_path, "test", 12, seed=4),
            "monolingual": mono,
        },
        "clean": {"language": False},
        "teacher": stage,
        "reverse": stage,
        "mix": tuned,
        "finish": tuned,
        "distillation": {"method": "interpolated", "n_best": 2, "beam_size": 2},
        "augmentation": {"upper": 0.5},
        "student": {**stage, "model": {**model, "num_layers": 2, "decoder_layers": 1}},
        "evaluation": {"samples": 20},
    }


def carry_out(settings: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    """Run the command; return its JSON and what it printed on standard error."""
    path = tmp_path / "pipeline.toml"
    path.write_text(write_toml(settings), encoding="utf-8")
    output = str(tmp_path / "out")
    assert run(["pipeline", str(path), "--output", output, "--format", "json", *options]) == 0
    printed = capsys.readouterr()
    return json.loads(printed.out), printed.err


def test_a_pipeline_ends_with_a_table_and_is_reused(
    settings: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, _ = carry_out(settings, tmp_path, capsys)
    assert [*first] == [
        *("clean", "teacher", "reverse", "back-translate", "mix"),
        *("finish", "distil", "augment", "student", "compress", "evaluate"),
    ]
    assert not any(stage["reused"] for stage in first.values())
    rows = first["evaluate"]["rows"]
    assert [row["name"] for row in rows] == ["finish", "mix", "teacher", "student", "student int8"]
    assert all(row["bleu"]["low"] <= row["bleu"]["score"] <= row["bleu"]["high"] for row in rows)
    assert first["distil"]["pairs"] < first["augment"]["pairs"] < 2 * first["distil"]["pairs"]
    back = Path(first["back-translate"]["folder"])
    assert all(line.startswith("<BT> ") for line in (back / "source.txt").read_text().splitlines())

    second, notes = carry_out(settings, tmp_path, capsys)
    assert all(stage["reused"] for stage in second.values())
    assert "nothing to do" in notes

    changed = {**settings, "compression": {"per_token": 3}}
    third, _ = carry_out(changed, tmp_path, capsys)
    again = [name for name, stage in third.items() if not stage["reused"]]
    assert again == ["compress", "evaluate"]


def test_a_damaged_result_is_made_again_and_a_stage_can_be_the_last(
    settings: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, _ = carry_out(settings, tmp_path, capsys, "--until", "clean")
    assert [*first] == ["clean"]
    target = Path(first["clean"]["folder"]) / "target.txt"
    before = target.read_text()
    target.write_text(before + "more\n")
    again, _ = carry_out(settings, tmp_path, capsys, "--until", "clean")
    assert not again["clean"]["reused"]
    assert target.read_text() == before
    Path(settings["data"]["train"]["source"]).touch()
    assert carry_out(settings, tmp_path, capsys, "--until", "clean")[0]["clean"]["reused"]
