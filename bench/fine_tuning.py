"""The gain of fine-tuning over training from scratch: `make bench-fine-tuning`.

German to English on Multi30k, cut into two halves. One model learns the first half. A second starts from it and learns
the second half; a third learns the second half from scratch, for as many updates. All are scored by BLEU on val and on
the test set of 2016, and the second also on held-out pairs of the first half, before and after: what it forgot.

Runs are kept in the work folder: the same command resumes an interrupted run, and only scores a finished one. The last
line is one JSON object.
"""

from __future__ import annotations

import argparse
import gzip
import json
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from measuring import require_files, train_or_resume

from transduce.config import Table, write_toml
from transduce.evaluation.metrics import bleu_metric
from transduce.evaluation.significance import compare, interval
from transduce.inference.load import load_translator
from transduce.recipe import Recipe, read_recipe
from transduce.storage.journal import read_journal
from transduce.training.reporter import Silent, Validation

HELD_OUT = 500
"""Held-out pairs at the end of each half."""
UPDATES = {"first": 900, "second": 400}
"""Updates on each half."""
RATE = 3e-3
"""Peak learning rate from scratch; fine-tuning uses a tenth of it."""
SPLITS = {"val": "val", "test": "test_2016_flickr"}
METRIC = bleu_metric()


class Lines(Silent):
    """Prints validation results."""

    def __init__(self, name: str) -> None:
        self.name = name

    def validation(self, validation: Validation) -> None:
        shown = {name: round(value, 3) for name, value in validation.measures().items()}
        print(f"{self.name}, update {validation.update:,}: {shown}", flush=True)

    def warn(self, message: str) -> None:
        print(f"{self.name}: {message}", flush=True)


def read(data: Path, name: str) -> list[str]:
    with gzip.open(data / f"{name}.gz", "rt", encoding="utf-8", newline="\n") as lines:
        return [line.rstrip("\n") for line in lines]


def write_halves(data: Path, work: Path) -> None:
    """Write the two halves of the training pairs, and the held-out end of each half."""
    work.mkdir(parents=True, exist_ok=True)
    for side in ("de", "en"):
        lines = read(data, f"train.{side}")
        middle = len(lines) // 2
        for half, mine in (("first", lines[:middle]), ("second", lines[middle:])):
            for part, some in (("train", mine[:-HELD_OUT]), ("held", mine[-HELD_OUT:])):
                (work / f"{half}.{part}.{side}").write_text("".join(f"{line}\n" for line in some), encoding="utf-8")


def recipe(work: Path, half: str, updates: int, threads: int | None) -> Table:
    """A run on one half, randomly initialised."""
    files = {
        part: {"source": str(work / f"{half}.{part}.de"), "target": str(work / f"{half}.{part}.en")}
        for part in ("train", "held")
    }
    return {
        "data": {
            "train": files["train"],
            "validation": files["held"],
            "source_language": "de",
            "target_language": "en",
            "copies": "drop",
        },
        "tokenizer": {"kind": "bpe", "vocab_size": 4000},
        "model": {"preset": "tiny", "norm": "pre"},
        "training": {
            **({} if threads is None else {"threads": threads}),
            "batch_tokens": 4096,
            "updates": updates,
            "schedule": "inverse_sqrt",
            "learning_rate": RATE,
            "warmup": max(1, updates // 5),
            "max_grad_norm": 1.0,
            "validate_every": max(1, updates // 5),
            "log_every": 50,
            "keep_last": 3,
            "average_checkpoints": 3,
        },
    }


def going_on(table: Table, first: Path) -> Table:
    """The same run initialised from the first; learning rate, warm-up and schedule are the fine-tuning defaults."""
    kept = {name: value for name, value in table["training"].items() if name not in ("schedule", "warmup")}
    training = {**kept, "initial_checkpoint": str(first), "learning_rate": RATE / 10}
    return {"data": {**table["data"], "extra_validation": {"prepared": str(first)}}, "training": training}


def chosen(table: Table, folder: Path) -> Recipe:
    """The recipe of these settings; prints the chosen defaults."""
    path = folder.with_suffix(".toml")
    path.write_text(write_toml(table), encoding="utf-8")
    found, reasons = read_recipe(path)
    for reason in reasons:
        print(f"{folder.name}: chosen: {reason}", flush=True)
    return found


def trained(table: Table, folder: Path) -> Path:
    return train_or_resume(partial(chosen, table, folder), folder, Lines(folder.name))


def scores(answers: dict[str, dict[str, list[str]]], references: dict[str, list[str]]) -> dict[str, Any]:
    """BLEU of each run on each split, and a comparison of the two runs on the second half."""
    found: dict[str, Any] = {}
    for name, translations in answers.items():
        for split, reference in references.items():
            score = METRIC.score(translations[split], reference)
            around = interval(METRIC, translations[split], reference)
            print(f"{name} on {split}: {score}  (95 % interval {around.low:.2f} to {around.high:.2f})")
            found.setdefault(name, {})[split] = round(score.value, 2)
    for split, reference in references.items():
        test = compare(METRIC, answers["tuned"][split], answers["alone"][split], reference)
        print(f"tuned against alone on {split}: {test.delta:+.2f} BLEU, p = {test.p_value:.4f}")
        found.setdefault("tuned - alone", {})[split] = {"delta": round(test.delta, 2), "p": round(test.p_value, 4)}
    return found


def watched(folder: Path) -> Table:
    """Validation of the second run on the first half, before its first update and at its end."""
    events = read_journal(folder / "journal.jsonl")
    before = next(event for event in events if event["event"] == "validation")
    names = ("extra_loss", "extra_bleu")
    return {"before": {n: round(before[n], 3) for n in names}, "after": {n: round(events[-1][n], 3) for n in names}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = Path(__file__).resolve().parents[1]
    parser.add_argument("--data", type=Path, default=here.parent / "shared/data/multi30k", help="the .gz files")
    parser.add_argument("--work", type=Path, default=here / "runs/fine-tuning", help="folder of the runs")
    parser.add_argument("--share", type=float, default=1.0, help="share of the updates; small for a quick run")
    parser.add_argument("--sentences", type=int, default=None, help="sentences of val and test; few for a quick run")
    parser.add_argument("--threads", type=int, default=None, help="threads; all cores by default")
    options = parser.parse_args()
    require_files(options.data, *(f"{part}.{side}.gz" for part in ("train", *SPLITS.values()) for side in ("de", "en")))
    if not (options.work / "second.held.en").is_file():
        write_halves(options.data, options.work)
    counts = {name: max(5, round(options.share * count)) for name, count in UPDATES.items()}
    first = trained(recipe(options.work, "first", counts["first"], options.threads), options.work / "first")
    alone = recipe(options.work, "second", counts["second"], options.threads)
    runs = {
        "first": first,
        "tuned": trained(going_on(alone, first), options.work / "tuned"),
        "alone": trained(alone, options.work / "alone"),
    }
    sources, references = (
        {split: list(islice(read(options.data, f"{name}.{side}"), options.sentences)) for split, name in SPLITS.items()}
        for side in ("de", "en")
    )
    answers = {
        name: {split: load_translator(run).translate(lines, split=False) for split, lines in sources.items()}
        for name, run in runs.items()
    }
    result: dict[str, Any] = {
        "updates": counts,
        "bleu": scores(answers, references),
        "old half": watched(runs["tuned"]),
    }
    result["signature"] = METRIC.score(["a"], ["a"]).signature
    print(json.dumps(result))


if __name__ == "__main__":
    main()
