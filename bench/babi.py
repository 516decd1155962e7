"""The twenty tasks of bAbI together, 1,000 questions each, by memory networks: `make reproduce-babi`.

Networks of one, two and three hops are trained with `recipes/babi.toml`, several restarts each; the restart with the
best validation accuracy counts, as in the paper (Sukhbaatar et al. 2015, section 4.2). Reports the test error of every
task in per cent; a task above 5 % counts as failed. Published, for three hops with position encoding, linear start and
random noise: 12.4 % mean error, 11 tasks failed. Finished runs are reused and interrupted runs are resumed. The last
line is one JSON object.

An hour or more on two cores; `--updates`, `--restarts` and `--hops` make it shorter.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from statistics import mean

from measuring import train_or_resume

from transduce.inference.load import load_text_encoder
from transduce.recipe import Recipe, read_recipe
from transduce.tasks.text_encoding.evaluation import score_encoder

ROOT = Path(__file__).resolve().parents[1]
FAILED = 0.05


def tasks(folder: Path, split: str) -> list[Path]:
    """Return the files of a split, by the tasks' numbers."""
    found = folder.glob(f"en-qa*_{split}.txt.gz")
    return sorted(found, key=lambda path: int(path.name.removeprefix("en-qa").partition("_")[0]))


def recipe(options: argparse.Namespace, hops: int, seed: int) -> Recipe:
    """The repository's recipe with `hops` hops."""
    files = ", ".join(f"{{path='{path}', format='babi'}}" for path in tasks(options.data, "train"))
    changes = [f"data.train=[{files}]", f"model.hops={hops}", f"training.seed={seed}"]
    if options.updates:
        changes += [f"training.updates={options.updates}", f"training.validate_every={max(1, options.updates // 20)}"]
        changes += [f"model.linear_updates={options.updates * 6 // 13}"]
    return read_recipe(ROOT / "recipes" / "babi.toml", changes)[0]


def validated(folder: Path) -> float:
    """Return the validation accuracy of the kept checkpoint."""
    last = (folder / "journal.jsonl").read_text(encoding="utf-8").splitlines()[-1]
    return float(json.loads(last)["label_accuracy"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "babi", help="bAbI's files")
    parser.add_argument("--work", type=Path, default=Path("runs/reproduce-babi"), help="folder of the runs")
    parser.add_argument("--updates", type=int, help="updates of each run; the recipe's by default")
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--hops", type=int, nargs="+", default=[1, 2, 3])
    options = parser.parse_args()
    if len(tasks(options.data, "train")) != 20 or len(tasks(options.data, "test")) != 20:
        raise SystemExit(f"{options.data}: lacks some of the twenty tasks, en-qaN_NAME_train.txt.gz and …_test.txt.gz")
    options.work.mkdir(parents=True, exist_ok=True)
    summary: dict[str, dict[str, float | int]] = {}
    for hops in options.hops:
        runs = [
            train_or_resume(partial(recipe, options, hops, seed), options.work / f"hops-{hops}-seed-{seed}")
            for seed in range(1, options.restarts + 1)
        ]
        reader = load_text_encoder(max(runs, key=validated))
        errors = {}
        for path in tasks(options.data, "test"):
            errors[path.name.partition("_")[0].removeprefix("en-")] = (
                1 - score_encoder(reader, str(path))["label_accuracy"]
            )
        shown = "  ".join(f"{name} {100 * error:.1f}" for name, error in errors.items())
        failed = sum(error > FAILED for error in errors.values())
        print(
            f"{hops} hops: mean error {100 * mean(errors.values()):.2f} %, {failed} tasks above 5 %\n  {shown}",
            flush=True,
        )
        summary[str(hops)] = {"mean_error": round(mean(errors.values()), 4), "failed": failed, **errors}
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
