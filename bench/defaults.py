"""What a person gets who gives files and nothing else: `make bench-defaults`.

Each task is trained by the settings that are chosen from its files, with its validation files where it has some (else a
part of the training files is held out), and scored once on its test files, with confidence intervals. Finished tasks
are reused and interrupted ones resumed. `--tasks` selects some, `--time` gives each a time budget, `--quick` a minute:
then scores say only that all of it works. The last line is one JSON object.

Published figures are single small models or the shared tasks' best systems, as named in the table. CMUdict's split is
only about the published one; Tatoeba has none, so that one is drawn by the hash of the English sentence. For the
tokenised BLEU of Multi30k run bench/multi30k.py on the run of this program.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measuring import require_files, train_or_resume

from transduce.config import Table
from transduce.recipe import Recipe, read_recipe
from transduce.run import EvaluationOptions, evaluate
from transduce.storage.journal import read_journal

Pairs = list[tuple[str, str]]
Splits = dict[str, Pairs]
HELD_OUT = 1000
"""Pairs of Tatoeba's validation and test splits, each."""


@dataclass(frozen=True)
class Task:
    """A corpus, its metric, and a published figure of it, None where there is none."""

    write: Callable[[Path, Path], Table]
    """(corpora, folder) -> [data] with the files that a person would give, and `test`; new files are in the folder."""
    metric: str
    published: float | None
    note: str


def lines(path: Path) -> list[str]:
    """Read a gzip file."""
    require_files(path.parent, path.name)
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return [line.rstrip("\n") for line in file if line.strip()]


def multi30k(data: Path) -> Splits:
    names = {"train": "train", "validation": "val", "test": "test_2016_flickr"}
    folder = data / "multi30k"
    return {
        split: list(zip(lines(folder / f"{name}.en.gz"), lines(folder / f"{name}.de.gz"), strict=True))
        for split, name in names.items()
    }


def tatoeba(most: int | None, data: Path) -> Splits:
    """Sentences with one English text are in one split."""
    rows = [line.split("\t")[:2] for line in lines(data / "tatoeba-eng-fra/eng-fra.tsv.gz")]
    pairs = sorted(((row[0], row[1]) for row in rows), key=lambda pair: hashlib.sha256(pair[0].encode()).digest())
    test, validation = pairs[:HELD_OUT], pairs[HELD_OUT : 2 * HELD_OUT]
    seen = {source for source, _ in (*test, *validation)}
    return {
        "train": [pair for pair in pairs if pair[0] not in seen][:most],
        "validation": validation,
        "test": test,
    }


def cmudict(data: Path) -> Splits:
    def read(name: str) -> Pairs:
        rows = (line.split(None, 1) for line in lines(data / f"cmudict-g2p/cmudict-0.7b.{name}.gz"))
        return [(word.split("(")[0], phones.strip()) for word, phones in rows]

    return {"train": read("train"), "test": read("test")}


def pronunciation(name: str, data: Path) -> Splits:
    folder, names = data / "sigmorphon2021-g2p", {"train": "train", "validation": "dev", "test": "test"}
    rows = {split: lines(folder / f"{name}_{part}.tsv.gz") for split, part in names.items()}
    return {split: [(row[0], row[1]) for row in (line.split("\t") for line in found)] for split, found in rows.items()}


def inflection(language: str, data: Path) -> Splits:
    folder = data / "conll-sigmorphon2017-inflection"
    names = {"train": "train-high", "validation": "dev", "test": "test"}
    rows = {split: lines(folder / f"{language}-{part}.gz") for split, part in names.items()}
    parts = {split: [line.split("\t") for line in found] for split, found in rows.items()}
    return {split: [(f"{lemma} {features}", form) for lemma, form, features in found] for split, found in parts.items()}


def scan(data: Path) -> Splits:
    def read(part: str) -> Pairs:
        rows = lines(data / f"scan/tasks_{part}_simple.txt.gz")
        return [(source, target) for source, target in (row.removeprefix("IN: ").split(" OUT: ") for row in rows)]

    return {"train": read("train"), "test": read("test")}


def tagging(data: Path, folder: Path) -> Table:
    """Parts of speech of UD English-LinES."""
    names = {"train": "train", "validation": "dev", "test": "test"}
    files = {split: data / f"ud-english-lines/en_lines-ud-{part}.conllu.gz" for split, part in names.items()}
    require_files(data / "ud-english-lines", *(path.name for path in files.values()))
    return {"objective": "tag", **{split: {"path": str(path)} for split, path in files.items()}}


def babi(data: Path, folder: Path) -> Table:
    """All tasks together, 1,000 questions each; the test questions in one file."""
    train, test = (
        sorted((data / "babi").glob(f"en-qa*_{part}.txt.gz"), key=lambda path: int(path.name[5:].partition("_")[0]))
        for part in ("train", "test")
    )
    if len(train) != 20 or len(test) != 20:
        raise SystemExit(f"{data / 'babi'}: 20 files of each split were expected; CONTRIBUTING.md lists the corpora")
    together = folder / "test.txt"
    together.write_text("".join(f"{line}\n" for path in test for line in lines(path)), encoding="utf-8")
    return {
        "objective": "classify",
        "train": [{"path": str(path), "format": "babi"} for path in train],
        "test": {"path": str(together), "format": "babi"},
    }


def shakespeare(data: Path, folder: Path) -> Table:
    """The last tenth is for validation, as in nanoGPT; there is no other test."""
    require_files(data / "tinyshakespeare", "input.txt.gz")
    with gzip.open(data / "tinyshakespeare/input.txt.gz", "rt", encoding="utf-8", newline="\n") as file:
        text = file.read()
    cut = int(0.9 * len(text))
    paths = {"train": folder / "train.txt", "validation": folder / "validation.txt"}
    for path, part in zip(paths.values(), (text[:cut], text[cut:]), strict=True):
        path.write_text(part, encoding="utf-8")
    return {split: {"text": str(path), "document": "file"} for split, path in paths.items()}


def pairs_of(read: Callable[..., Splits], *arguments: Any) -> Callable[[Path, Path], Table]:
    """Return what writes the files of a corpus of pairs."""
    return lambda data, folder: write_files(read(*arguments, data), folder)


LOW = ("ady", "gre", "ice", "ita", "khm")
MEDIUM = ("fre", "hun", "kor")
BEST_INFLECTION = {"spanish": 0.97, "russian": 0.92, "hungarian": 0.87, "arabic": 0.94}
TASKS: dict[str, Task] = {
    **{
        f"g2p-{name}": Task(
            pairs_of(pronunciation, f"low-{name}"), "word_error_rate", None, "mean of the ensemble 0.216"
        )
        for name in LOW
    },
    **{
        f"g2p-{name}": Task(
            pairs_of(pronunciation, f"medium-{name}"), "word_error_rate", None, "mean of the ensemble 0.0887"
        )
        for name in MEDIUM
    },
    **{
        f"inflection-{name}": Task(pairs_of(inflection, name), "exact_match", best, "best system of 2017, from memory")
        for name, best in BEST_INFLECTION.items()
    },
    "scan": Task(pairs_of(scan), "exact_match", 0.99, "simple split"),
    "cmudict": Task(
        pairs_of(cmudict), "word_error_rate", 0.202, "Transformer of two layers; the split is only about the same"
    ),
    "multi30k": Task(pairs_of(multi30k), "bleu", None, "13a on raw text; tokenised BLEU by bench/multi30k.py"),
    "tatoeba-10k": Task(pairs_of(tatoeba, 10_000), "bleu", None, "split by hash"),
    "tatoeba-50k": Task(pairs_of(tatoeba, 50_000), "bleu", None, "split by hash"),
    "tatoeba": Task(pairs_of(tatoeba, None), "bleu", None, "split by hash"),
    "tagging": Task(tagging, "word_accuracy", None, "from random initialisation; no other text"),
    "babi": Task(babi, "label_accuracy", 0.876, "MemN2N, joint, three hops: mean error 12.4 %"),
    "shakespeare": Task(
        shakespeare, "loss", 1.88, "nanoGPT's setting for a CPU; per character, of the validation text"
    ),
}


def write_files(splits: Splits, folder: Path) -> Table:
    """Write files of pairs; return the table [data] that names them."""
    table: Table = {}
    for split, pairs in splits.items():
        paths = {"source": folder / f"{split}.source", "target": folder / f"{split}.target"}
        for side, path in enumerate(paths.values()):
            path.write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
        table[split] = {name: str(path) for name, path in paths.items()}
    test = folder / "test.jsonl"  # lines with one source are several references
    test.write_text("".join(json.dumps({"source": a, "target": b}) + "\n" for a, b in splits["test"]), encoding="utf-8")
    return {**table, "test": {"path": str(test)}}


def score(run: Path, test: Table | None, metric: str) -> tuple[float, Table | None]:
    """Score a finished run on its test file once, with a confidence interval where there is one."""
    if test is None:
        final = read_journal(run / "journal.jsonl")[-1]
        return float(final[metric]), None
    columns = {name: value for name, value in test.items() if name != "path"}
    found = evaluate(run, path=test["path"], options=EvaluationOptions(metrics=(metric,), columns=columns))
    table = found.to_json()
    return found[metric], table["intervals"][metric]


def measure(name: str, task: Task, options: argparse.Namespace) -> Table:
    """Train and score one task, or return what was measured before."""
    folder = options.work / name
    result = folder / "result.json"
    if result.is_file():
        found: Table = json.loads(result.read_text(encoding="utf-8"))
        return found
    (folder / "files").mkdir(parents=True, exist_ok=True)
    data = task.write(options.data, folder / "files")
    test = data.pop("test", None)
    changes = [f"training.time_budget='{options.time}'"] if options.time else []
    began = time.monotonic()

    def recipe() -> Recipe:
        chosen, reasons = read_recipe(None, changes, {"data": data})
        print(*(f"{name}: {reason}" for reason in reasons), sep="\n", flush=True)
        return chosen

    resumed = (folder / "run/recipe.toml").exists()
    run = train_or_resume(recipe, folder / "run")
    seconds = time.monotonic() - began
    value, bounds = score(run, test, task.metric)
    found = {
        "metric": task.metric,
        "score": value,
        "interval": bounds,
        "published": task.published,
        "note": task.note,
        "seconds": None if resumed else round(seconds),
    }
    result.write_text(json.dumps(found), encoding="utf-8")
    return found


def table(results: Table) -> Iterable[str]:
    """Lines of a Markdown table."""
    yield "| task | metric | score | published | seconds |"
    yield "|---|---|---|---|---|"
    for name, found in results.items():
        cells = (found["metric"], f"{found['score']:.4f}", found["published"] or found["note"], found["seconds"])
        yield f"| {name} | {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with the corpora")
    parser.add_argument("--work", type=Path, default=Path("runs/bench-defaults"), help="folder for runs and results")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=list(TASKS), metavar="TASK")
    parser.add_argument("--time", help="time budget of each task, as 20m")
    parser.add_argument("--quick", action="store_true", help="a minute for each task, in a folder of its own")
    options = parser.parse_args()
    if options.quick:
        options.time, options.work = "60s", options.work.with_name(f"{options.work.name}-quick")
    results = {}
    for name in options.tasks:
        results[name] = measure(name, TASKS[name], options)
        print(f"{name}: {results[name]}", flush=True)
    print(*table(results), sep="\n")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
