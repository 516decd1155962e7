"""The copy task of the Neural Turing Machine (Graves et al. 2014, section 4.1): `make reproduce-ntm`.

Machines with both controllers, and an LSTM alone, learn to copy sequences of 1 to 20 vectors of eight bits, several
seeds each; then they copy sequences of 10, 20, 30, 50 and 120. Measures the paper's cost, bits per sequence (including
the end token, which the paper's machine does not predict), and the share of sequences copied without any wrong vector.
Each machine's memory access on a sequence of 50 is drawn. Finished runs are reused and interrupted runs are resumed.
The last line is one JSON object.

Hours on two cores; `--updates`, `--seeds` and `--models` shorten it.
"""

from __future__ import annotations

import argparse
import json
import math
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from measuring import train_or_resume

from transduce.data.synthetic import SyntheticTask
from transduce.inference.load import load_translator
from transduce.inference.translator import Translator
from transduce.recipe import Recipe

PRESETS = ("ntm_lstm", "ntm_feed_forward", "lstm_alone")
LENGTHS = (10, 20, 30, 50, 120)
CONVERGED = 0.1
"""Bits per sequence, for lengths up to 20."""


def recipe(preset: str, options: argparse.Namespace, seed: int) -> Recipe:
    """Return the published settings: batches of about 32 sequences, Adam, a maximum gradient norm of 50."""
    task = {"task": "copy", "symbols": 256, "min_length": 1, "max_length": 20}
    tables = {
        "data": {
            "train": {**task, "size": options.size},
            "validation": {**task, "size": 640, "seed": 2},
            "duplicates": "keep",
            "leakage": "keep",
        },
        "tokenizer": {"kind": "word", "min_frequency": 1},
        "model": {"preset": preset},
        "training": {
            "seed": seed,
            "batch_tokens": 32 * 12,
            "micro_batch_tokens": 32 * 12,
            "updates": options.updates,
            "schedule": "constant",
            "learning_rate": options.learning_rate,
            "warmup": 0,
            "betas": [0.9, 0.999],
            "epsilon": 1e-8,
            "max_grad_norm": 50.0,
            "label_smoothing": 0.0,
            "validate_every": max(1, options.updates // 25),
            "decode_examples": 64,
            "keep_last": 1,
        },
    }
    return Recipe.from_tables(tables, "the copy task")


def judge(translator: Translator, length: tuple[int, int], count: int) -> dict[str, float]:
    """Return bits per sequence and the share copied without error, for new sequences."""
    low, high = length
    task = SyntheticTask(task="copy", size=count, seed=99, symbols=256, min_length=low, max_length=high)
    texts = [pair.source for pair in task.pairs()]
    scores = translator.score([(text, text) for text in texts])
    copies = translator.translate(texts, method="greedy")
    wrong = [_wrong(text.split(), copy.split()) for text, copy in zip(texts, copies, strict=True)]
    return {
        "bits": -sum(score.log_probability for score in scores if score is not None) / len(texts) / math.log(2),
        "exact": sum(not errors for errors in wrong) / len(texts),
        "wrong_vectors": sum(wrong) / len(texts),
    }


def _wrong(true: list[str], copy: list[str]) -> int:
    """Number of wrong, missing or superfluous vectors."""
    return sum(one != other for one, other in zip_longest(true, copy))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/reproduce-ntm"), help="folder of the runs")
    parser.add_argument("--updates", type=int, default=31_250)
    parser.add_argument("--size", type=int, default=1_000_000, help="training sequences")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--models", nargs="+", choices=PRESETS, default=list(PRESETS))
    parser.add_argument("--count", type=int, default=100, help="test sequences of each length")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    summary: dict[str, list[dict[str, Any]]] = {}
    for preset in options.models:
        for seed in range(1, options.seeds + 1):
            folder = train_or_resume(partial(recipe, preset, options, seed), options.work / f"{preset}-{seed}")
            translator = load_translator(folder)
            learnt = judge(translator, (1, 20), options.count)
            found = {str(length): judge(translator, (length, length), options.count) for length in LENGTHS}
            summary.setdefault(preset, []).append(
                {"converged": learnt["bits"] < CONVERGED, "bits": learnt["bits"], "lengths": found}
            )
            shown = ", ".join(f"{name}: {100 * one['exact']:.0f} %" for name, one in found.items())
            print(f"{preset}, seed {seed}: {learnt['bits']:.3f} bits per sequence; copied without error: {shown}")
            if preset != "lstm_alone":
                long = SyntheticTask(task="copy", size=1, seed=7, symbols=256, min_length=50, max_length=50)
                translator.tape(next(long.pairs()).source, method="greedy").save_png(folder / "tape.png")
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
