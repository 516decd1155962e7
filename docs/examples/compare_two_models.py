"""Train a Transformer and a recurrent model on the same pairs, and test whether they differ significantly.

    python docs/examples/compare_two_models.py [FOLDER]

The command `transduce evaluate RUN --against RUN2 --path test.tsv` does the second half for any two runs.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import transduce
from transduce.data.synthetic import SyntheticTask
from transduce.evaluation.metrics import select_metrics
from transduce.recipe import Recipe
from transduce.tasks.translation.evaluation import TestSet, compare_scores, score_translator

TASK: dict[str, Any] = {"task": "copy", "max_length": 4, "symbols": 6}
MODELS: dict[str, dict[str, Any]] = {
    "transformer": {"model_dim": 32, "num_heads": 2, "ffn_dim": 64, "num_layers": 1, "norm": "pre", "dropout": 0.0},
    "rnn": {"embedding_dim": 16, "hidden_dim": 32, "dropout": 0.0},
}


def recipe(name: str) -> Recipe:
    """Return the same recipe with another model in it."""
    tables = {
        "data": {"train": {**TASK, "size": 1000, "seed": 1}, "validation": {**TASK, "size": 100, "seed": 2}},
        "tokenizer": {"kind": "word"},
        "model": {"name": name, **MODELS[name]},
        "training": {
            "batch_tokens": 512,
            "updates": 120,
            "schedule": "linear",
            "learning_rate": 0.01,
            "warmup": 20,
            "validate_every": 120,
            "threads": 1,
        },
    }
    return Recipe.from_tables(tables, f"the recipe of the {name}")


def main(folder: Path) -> None:
    """Train both, translate one test set with both, compare."""
    pairs = list(SyntheticTask(**TASK, size=100, seed=3).pairs())
    test = TestSet([pair.source for pair in pairs], [[pair.target] for pair in pairs])
    metrics = select_metrics(["exact_match", "chrf"])
    found = {}
    for name in MODELS:
        run = transduce.train(recipe(name), folder / name)
        found[name] = score_translator(transduce.load(run), test, metrics, samples=200)
        print(name)
        for line in found[name].lines(metrics):
            print(f"  {line}")
    first, second = found.values()
    for name, comparison in compare_scores(first, second, test, metrics, samples=200).items():
        print(f"{name}: p = {comparison.p_value:.3f}, better: {comparison.better}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
