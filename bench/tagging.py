"""The gain of pre-training for tagging: `make bench-tagging`.

A small BERT is pre-trained on WikiText-2 by masked language modelling, then fine-tuned for part-of-speech tagging (UD
English-LinES), and compared with a randomly initialised one: the same model, tokenizer and number of updates, three
seeds each. Both are scored on the treebank's test sentences. Finished runs are reused and interrupted runs are resumed.
The last line is one JSON object; `gain` is the mean difference of word accuracy, pre-trained minus from scratch.

About a quarter of an hour on two cores; `--updates` and `--tagging-updates` shorten it.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from measuring import require_files, train_or_resume

from transduce.config import Table
from transduce.inference.load import load_text_encoder
from transduce.recipe import Recipe, read_recipe
from transduce.tasks.text_encoding.evaluation import score_encoder

MODEL: Table = {"name": "bert", "model_dim": 128, "num_heads": 4, "ffn_dim": 512, "num_layers": 3, "max_positions": 96}
RATES: dict[str, Table] = {
    "mask": {"dropout": 0.0, "attention_dropout": 0.0},  # it never sees a text twice with the same pieces hidden
    "tag": {"dropout": 0.1, "attention_dropout": 0.0},
}
LEARNING: Table = {
    "optimizer": "adamw",
    "weight_decay": 0.01,
    "betas": [0.9, 0.98],
    "epsilon": 1e-6,
    "schedule": "linear",
    "max_grad_norm": 1.0,
}


def documents(path: Path) -> Iterator[list[str]]:
    """Yield WikiText's articles, one sentence per line, with split numbers and words joined again."""
    article: list[str] = []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            text = line.strip()
            for mark in ("-", ",", "."):
                text = text.replace(f" @{mark}@ ", mark)
            if text.startswith("= ") and not text.startswith("= ="):  # a title begins an article
                if article:
                    yield article
                article = []
            elif text and not text.startswith("="):
                article += [f"{sentence} ." for sentence in text.removesuffix(" .").split(" . ")]
    if article:
        yield article


def write_plain(source: Path, place: Path) -> None:
    """Write articles in the task's format, separated by blank lines."""
    if not place.exists():
        aside = place.with_suffix(".writing")
        text = "\n".join("\n".join(article) + "\n" for article in documents(source))
        aside.write_text(text, encoding="utf-8")
        aside.replace(place)


def pre_training(options: argparse.Namespace, work: Path) -> Table:
    for split in ("train", "valid"):
        write_plain(options.wikitext / f"wiki.{split}.raw.gz", work / f"wiki.{split}.txt")
    return {
        "data": {
            "objective": "mask",
            "train": {"path": str(work / "wiki.train.txt")},
            "validation": {"path": str(work / "wiki.valid.txt")},
            "max_length": 64,
            "next_sentence": False,
        },
        "tokenizer": {"kind": "wordpiece", "vocab_size": 6000},
        "model": MODEL | RATES["mask"],
        "training": {
            **LEARNING,
            "batch_tokens": 4096,
            "updates": options.updates,
            "learning_rate": 1e-3,
            "warmup": max(1, options.updates // 10),
            "validate_every": max(1, options.updates // 4),
            "keep_last": 1,
        },
    }


def tagging(options: argparse.Namespace, work: Path, seed: int, started: bool) -> Table:
    pre_trained = str(work / "pre-trained")
    return {
        "data": {
            "objective": "tag",
            "train": {"path": str(options.treebank / "en_lines-ud-train.conllu.gz")},
            "validation": {"path": str(options.treebank / "en_lines-ud-dev.conllu.gz")},
            "max_length": 96,
        },
        "tokenizer": {"folder": pre_trained},
        "model": RATES["tag"] if started else MODEL | RATES["tag"],
        "training": {
            **LEARNING,
            **({"initial_checkpoint": pre_trained} if started else {}),
            "seed": seed,
            "batch_tokens": 2048,
            "updates": options.tagging_updates,
            "learning_rate": 1e-3,
            "warmup": max(1, options.tagging_updates // 10),
            "validate_every": max(1, options.tagging_updates // 4),
            "metric": "word_accuracy",
            "keep_last": 1,
        },
    }


def chosen(tables: Table) -> Recipe:
    """The recipe of these settings, with defaults for the rest."""
    return read_recipe(None, base=tables)[0]


def main() -> None:
    data = Path(__file__).resolve().parents[2] / "shared" / "data"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wikitext", type=Path, default=data / "wikitext2-raw", help="folder with wiki.*.raw.gz")
    parser.add_argument("--treebank", type=Path, default=data / "ud-english-lines", help="folder with *.conllu.gz")
    parser.add_argument("--work", type=Path, default=Path("runs/bench-tagging"), help="folder of the runs")
    parser.add_argument("--updates", type=int, default=2400, help="updates of pre-training")
    parser.add_argument("--tagging-updates", type=int, default=400, help="updates of each run on the treebank")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    require_files(options.wikitext, "wiki.train.raw.gz", "wiki.valid.raw.gz")
    require_files(options.treebank, *(f"en_lines-ud-{part}.conllu.gz" for part in ("train", "dev", "test")))
    work = options.work
    work.mkdir(parents=True, exist_ok=True)
    train_or_resume(partial(chosen, pre_training(options, work)), work / "pre-trained")
    test = str(options.treebank / "en_lines-ud-test.conllu.gz")
    scores: dict[str, list[float]] = {"from scratch": [], "pre-trained": []}
    for seed in range(1, options.seeds + 1):
        for name, found in scores.items():
            tables = tagging(options, work, seed, started=name == "pre-trained")
            folder = train_or_resume(partial(chosen, tables), work / f"{name.replace(' ', '-')}-{seed}")
            found.append(score_encoder(load_text_encoder(folder), test)["word_accuracy"])
            print(f"{name}, seed {seed}: {100 * found[-1]:.2f} % of the test words are tagged correctly", flush=True)
    journal = (work / "pre-trained" / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    last: dict[str, Any] = json.loads(journal[-1])
    gains = [one - other for one, other in zip(scores["pre-trained"], scores["from scratch"], strict=True)]
    summary = {
        "gain": round(mean(gains), 5),
        "gains": [round(gain, 5) for gain in gains],
        "pre_trained": [round(score, 5) for score in scores["pre-trained"]],
        "from_scratch": [round(score, 5) for score in scores["from scratch"]],
        "masked_loss": round(last["loss"], 4),
        "masked_accuracy": round(last["accuracy"], 4),
        "updates": options.updates,
        "tagging_updates": options.tagging_updates,
    }
    print(f"pre-training adds {100 * summary['gain']:.2f} points of word accuracy (mean of {options.seeds} seeds)")
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
