"""The recipes of benchmarks that take too long to be run by tests: their settings exist."""

from __future__ import annotations

import argparse
import gzip
import importlib
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module


def test_tagging(bench: Any, tmp_path: Path) -> None:
    for split in ("train", "valid"):
        with gzip.open(tmp_path / f"wiki.{split}.raw.gz", "wt") as file:
            file.write(" = Title = \n A sentence . Another one . \n")
    with gzip.open(tmp_path / "en_lines-ud-train.conllu.gz", "wt") as file:
        file.write("1\tDogs\tdog\tNOUN\n\n")
    options = argparse.Namespace(wikitext=tmp_path, treebank=tmp_path, updates=20, tagging_updates=20)
    tagging = bench("tagging")
    masked = tagging.pre_training(options, tmp_path)
    assert tagging.chosen(masked).data.objective == "mask"
    tagged = tagging.tagging(options, tmp_path, seed=1, started=False) | {"tokenizer": masked["tokenizer"]}
    assert tagging.chosen(tagged).data.objective == "tag"


def test_the_ladder(bench: Any) -> None:
    ladder = bench("ladder")
    options = argparse.Namespace(data=Path("data"), epochs=3, set=[])
    assert all(ladder.recipe(options, name).training.updates == 3 * ladder.EPOCH for name in ladder.SYSTEMS)


def test_memory_networks(bench: Any, tmp_path: Path) -> None:
    babi = bench("babi")
    (tmp_path / "en-qa1_single-supporting-fact_train.txt.gz").touch()
    assert bench("turing_machine").recipe("ntm_lstm", argparse.Namespace(size=7, updates=50, learning_rate=1e-3), 1)
    assert babi.recipe(argparse.Namespace(data=tmp_path, updates=50), 3, 1).model.hops == 3


def test_the_universal_transformer(bench: Any) -> None:
    options = argparse.Namespace(updates=50, threads=1)
    assert bench("universal_length").recipe("copy", "universal", options).model.num_layers == 6
