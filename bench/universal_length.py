"""Copy and reverse beyond the training lengths: `make reproduce-universal`.

The Universal Transformer and the Transformer are trained on sources of up to 40 symbols and tested on longer ones, up
to 400 (Dehghani et al. 2019, whose table has the Universal Transformer ahead on both tasks). Finished runs are reused
and interrupted runs are resumed. For each length: the share of correct symbols by position, of entirely correct
outputs, and of correct symbols with teacher forcing. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

from measuring import train_or_resume

from transduce.data.synthetic import SyntheticTask
from transduce.inference.load import load_translator
from transduce.inference.search.options import Request
from transduce.inference.translator import Translator
from transduce.recipe import Recipe

LENGTHS = (40, 50, 60, 80, 160, 400)
TASKS = {"copy": 2000, "reverse": 12_000}
"""Tasks, and the updates that each needs."""
SIZES = {"model_dim": 64, "num_heads": 4, "ffn_dim": 256, "norm": "pre", "dropout": 0.0}
MODELS: dict[str, dict[str, Any]] = {
    "universal": {"name": "universal", "num_layers": 6, "max_offset": 400, "ponder_cost": 0.001, **SIZES},
    "transformer": {"name": "transformer", "num_layers": 4, **SIZES},
}


def recipe(task: str, model: str, options: argparse.Namespace) -> Recipe:
    """The same data and training for both models; the validation pairs are as long as the training pairs."""
    updates = options.updates or TASKS[task]
    lengths = {"task": task, "min_length": 1, "max_length": 40, "symbols": 10}
    return Recipe.from_tables(
        {
            "data": {"train": {**lengths, "size": 200_000}, "validation": {**lengths, "size": 300, "seed": 2}},
            "tokenizer": {"kind": "word", "min_frequency": 1},
            "model": MODELS[model],
            "training": {
                "batch_tokens": 2048,
                "updates": updates,
                "threads": options.threads,
                "schedule": "linear",
                "learning_rate": 0.002,
                "warmup": max(1, min(1000, updates // 10)),
                "max_grad_norm": 1.0,
                "label_smoothing": 0.0,
                "validate_every": max(1, updates // 20),
                "metric": "exact_match",
                "decode_examples": 100,
            },
        },
        "bench/universal_length.py",
    )


def accuracy(translator: Translator, task: str, length: int, count: int) -> dict[str, float]:
    """Accuracy on new sources of one length."""
    asked = SyntheticTask(task=task, size=count, seed=777, min_length=length, max_length=length, symbols=10)  # type: ignore[arg-type]
    pairs = list(asked.pairs())
    options = translator.options(method="greedy", max_length=length + 10)
    sources = translator.source.encode_batch([pair.source for pair in pairs])
    requests = [Request(number, source, options) for number, source in enumerate(sources)]
    answers = translator.engine.translate(requests)  # a translator would cut long texts into parts
    right, whole, forced = 0, 0, 0
    for pair, (answer, *_) in zip(pairs, answers, strict=True):
        expected, written = pair.target.split(), translator.target.decode(answer.tokens).split()
        right += sum(one == other for one, other in zip(expected, written, strict=False))
        whole += expected == written
    for scored in translator.score([(pair.source, pair.target) for pair in pairs]):
        assert scored is not None
        forced += sum(scored.hits[:length])
    shares = {"symbols": right / (count * length), "whole": whole / count, "forced": forced / (count * length)}
    return {name: round(share, 4) for name, share in shares.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("runs/universal-length"))
    parser.add_argument("--updates", type=int, help="updates of every run; default: 2,000 for copy, 12,000 for reverse")
    parser.add_argument("--threads", type=int, help="threads of each run; all cores by default")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--count", type=int, default=100, help="sources of each length")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    options = parser.parse_args()
    found: dict[str, dict[str, dict[int, dict[str, float]]]] = {}
    for task in options.tasks:
        for model in options.models:
            learning = partial(recipe, task, model, options)
            translator = load_translator(train_or_resume(learning, options.folder / f"{task}-{model}"))
            scores = {length: accuracy(translator, task, length, options.count) for length in options.lengths}
            found.setdefault(task, {})[model] = scores
            shown = ", ".join(
                f"{length}: {' / '.join(f'{share:.3f}' for share in shares.values())}"
                for length, shares in scores.items()
            )
            print(f"{task:8} {model:12} {shown}", flush=True)
    longest = max(options.lengths)
    ahead = {
        task: by_model["universal"][longest]["symbols"] > by_model["transformer"][longest]["symbols"]
        for task, by_model in found.items()
        if len(by_model) == len(MODELS)
    }
    print(json.dumps({"accuracy": found, "universal_ahead": ahead}))


if __name__ == "__main__":
    main()
