"""The demo: English spelling to pronunciation, from the corpus to a picture of attention.

The recipe is the best found for three minutes on two cores (docs/development/log.md has the trials): a small pre-norm
Transformer without dropout, because there are more words than it can memorise in that time.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from transduce.config import Table, merge, read_toml
from transduce.data.cmudict import write_demo_corpus
from transduce.errors import CannotCreate, TransduceError
from transduce.evaluation.metrics import select_metrics
from transduce.inference.load import load_translator
from transduce.recipe import Recipe
from transduce.run import train
from transduce.storage.atomic import atomic_file, write_json
from transduce.storage.filesystem import locked, remove, storage_errors
from transduce.storage.layout import LOCK, RECIPE
from transduce.tasks.translation.config import TranslationConfig
from transduce.tasks.translation.evaluation import TestSet, TranslationScores, read_test_set, score_translator
from transduce.training.reporter import Reporter

METRICS = ("word_error_rate", "phoneme_error_rate")
NUM_EXAMPLES = 12
INSPECTED_WORD = "thoroughly"

SETTINGS: Table = {
    "tokenizer": {"joint": False, "source_kind": "character", "target_kind": "word", "min_frequency": 1},
    "model": {
        "name": "transformer",
        "model_dim": 96,
        "ffn_dim": 384,
        "num_heads": 4,
        "num_layers": 2,
        "norm": "pre",
        "tied_embeddings": "target",
        "positions": "rotary",
        "dropout": 0.0,
    },
    "training": {
        "batch_tokens": 1200,
        "updates": 3000,
        "optimizer": "muon",
        "schedule": "linear",
        "learning_rate": 0.01,
        "warmup": 300,
        "max_grad_norm": 1.0,
        "label_smoothing": 0.1,
        "guided_alignment": 0.1,
        "validate_every": 600,
        "metric": "word_error_rate",
        "decode_examples": 200,
        "tune_search": True,
    },
    "search": {"beam_size": 4, "length_penalty": 0.6},
}


def run_demo(folder: Path, reporter: Reporter) -> Iterator[str]:
    """Train, test on unseen words, draw attention; yield lines to print. Replaces an earlier demo in the folder."""
    corpus = folder.parent / f"{folder.name}-corpus"
    remove_earlier(folder, corpus)
    data = TranslationConfig.from_table(
        {**write_demo_corpus(corpus), "source_language": "en", "target_language": "arpabet"}, "the demo"
    )
    recipe = Recipe.from_tables(merge({"data": data.to_table()}, SETTINGS), "the demo's recipe")
    yield f"learning to pronounce English in {folder}"
    began = time.monotonic()
    train(recipe, folder, reporter=reporter)
    seconds = time.monotonic() - began
    translator = load_translator(folder)
    test = read_test_set(None, (), str(corpus / "test.tsv"))
    found = score_translator(translator, test, select_metrics(METRICS))
    maps = translator.attention(INSPECTED_WORD)
    page, picture = folder / "attention.html", folder / "attention.png"
    maps.save_html(page)
    maps.save_png(picture)
    scores = {
        "word_accuracy": 1.0 - found.scores["word_error_rate"].value,
        "phoneme_error_rate": found.scores["phoneme_error_rate"].value,
        "train_seconds": round(seconds, 1),
        "test_words": len(test.sources),
    }
    with atomic_file(folder / "scores.json") as temporary:
        write_json(temporary, scores)
    yield from _sample_table(test, found)
    yield f"{len(test.sources):,} words the model has never seen (stress removed, any listed pronunciation counts):"
    yield f"  word accuracy      {100 * scores['word_accuracy']:.1f} %"
    yield f"  phoneme error rate {100 * scores['phoneme_error_rate']:.1f} %"
    yield f"  trained for        {seconds:.0f} s"
    yield f"attention of '{INSPECTED_WORD}': {picture}; every layer and head: {page}"
    yield "next steps:"
    program = program_name()
    yield f"  echo transformer | {program} translate {folder}"
    yield f'  {program} inspect {folder} "attention"'
    yield f"  {program} train --source your.txt --target theirs.txt --output runs/yours"


def program_name() -> str:
    """Return the command of this program: its name if the shell finds it, otherwise the path it was started from."""
    started = Path(sys.argv[0])
    is_itself = started.name == "transduce" and shutil.which("transduce") != str(started)
    return str(started) if is_itself else "transduce"


def remove_earlier(folder: Path, corpus: Path) -> None:
    """Remove an earlier demo, but nothing else: a run is a demo if its training data is the demo's corpus."""
    if not folder.exists():
        return
    if not folder.is_dir() or (any(folder.iterdir()) and not _is_demo(folder / RECIPE, corpus)):
        raise CannotCreate(f"{folder}: contains other files than an earlier demo; choose another folder with --output")
    with storage_errors(folder), locked(folder, "training"):
        for entry in folder.iterdir():
            if entry.name != LOCK:  # Windows cannot remove an open file; the next run takes the lock again
                remove(entry)


def _is_demo(path: Path, corpus: Path) -> bool:
    try:
        return Path(read_toml(path)["data"]["train"]["path"]).parts[-2:] == (corpus.name, "train.tsv")
    except (TransduceError, LookupError, TypeError):
        return False


def _sample_table(test: TestSet, found: TranslationScores) -> Iterator[str]:
    step = max(1, len(test.sources) // NUM_EXAMPLES)
    rows = [
        (test.sources[row], found.translations[row], " or ".join(test.references[row]))
        for row in range(0, len(test.sources), step)
    ][:NUM_EXAMPLES]
    rows = [("spelling", "predicted", "true"), *rows]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for spelling, predicted, true in rows:
        mark = " " if spelling == "spelling" else "✓" if predicted in true.split(" or ") else "✗"
        yield f"  {mark} {spelling:<{widths[0]}}  {predicted:<{widths[1]}}  {true}"
