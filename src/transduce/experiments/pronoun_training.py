"""Training in the pronoun experiment: sizes, corpora on disk, recipes, and runs, reused if they are finished."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from transduce.config import Table
from transduce.errors import TransduceError
from transduce.experiments.pronoun_corpus import DEFAULT_VARIETY, Variety, draw_scenes
from transduce.experiments.pronoun_words import Language
from transduce.model_folder import find_model
from transduce.recipe import Recipe, fill_in, resume_recipe
from transduce.run import train
from transduce.storage.atomic import atomic_file, read_json, write_json
from transduce.storage.layout import RECIPE
from transduce.training.reporter import Reporter

SECONDS_FILE = "seconds.json"
"""How long a run was trained."""


@dataclass(frozen=True)
class PronounSizes:
    """How much is generated, trained and measured."""

    train: int = 12_000
    validation: int = 400
    test: int = 1_000
    probe: int = 300
    """Test sentences for each causal test."""
    updates: int = 1000
    validate_every: int = 50
    model_dim: int = 64
    batch_tokens: int = 1024
    per_length: int = 200
    """Test sentences for each length of the comparison."""
    length_updates: int = 1200
    """Updates of each model of the comparison."""


STANDARD = PronounSizes()
QUICK = PronounSizes(
    train=300,
    validation=20,
    test=40,
    probe=20,
    updates=4,
    validate_every=2,
    model_dim=16,
    batch_tokens=256,
    per_length=8,
    length_updates=2,
)
"""Some seconds: everything runs, nothing is learned."""


def transformer(width: int) -> Table:
    """The Transformer: three encoder layers, where *it* can find its noun, and one decoder layer; two heads in each."""
    return {
        "name": "transformer",
        "model_dim": width,
        "ffn_dim": 2 * width,
        "num_heads": 2,
        "num_layers": 3,
        "decoder_layers": 1,
        "norm": "pre",
        "tied_embeddings": "target",
        "dropout": 0.0,
    }


def write_corpus(
    folder: Path,
    language: Language,
    sizes: PronounSizes,
    variety: Variety = DEFAULT_VARIETY,
) -> None:
    """Write train.tsv, validation.tsv (other sentences of the training combinations) and test.tsv (held-out ones)."""
    known = draw_scenes("train", sizes.train + sizes.validation, language, lambda s: s.is_for_training, variety)
    held_out = draw_scenes("test", sizes.test, language, lambda s: s.is_held_out, variety)
    parts = {"train": known[sizes.validation :], "validation": known[: sizes.validation], "test": held_out}
    for name, scenes in parts.items():
        lines = [f"{scene.source()}\t{scene.target(language)}\n" for scene in scenes]
        with atomic_file(folder / f"{name}.tsv") as temporary:
            temporary.write_text("".join(lines), encoding="utf-8")


def make_recipe(corpus: Path, language: Language, model: Table, seed: int, sizes: PronounSizes, updates: int) -> Recipe:
    """Return the recipe of one run."""
    data: Table = {name: {"path": str(corpus / f"{name}.tsv")} for name in ("train", "validation", "test")}
    tables: Table = {
        "data": {**data, "source_language": "en", "target_language": language},
        "tokenizer": {"kind": "bpe", "joint": False, "min_frequency": 1, "vocab_size": 4000},
        "model": model,
        "training": {
            "seed": seed,
            "batch_tokens": sizes.batch_tokens,
            "updates": updates,
            "schedule": "linear",
            "learning_rate": 0.003,
            "warmup": min(100, updates),
            "max_grad_norm": 1.0,
            "validate_every": sizes.validate_every,
            "decode_examples": 0,
            "keep_last": -(-updates // sizes.validate_every),
            "log_every": min(50, sizes.validate_every),
        },
        "search": {"method": "greedy"},
    }
    return Recipe.from_tables(tables, "the pronoun demo's recipe")


def train_or_reuse(recipe: Recipe, folder: Path, reporter: Reporter) -> float:
    """Train, unless the folder holds a finished run of the same recipe; return the seconds that training took."""
    if is_finished(recipe, folder):
        return float(read_json(folder / SECONDS_FILE)["train_seconds"])
    began = time.monotonic()
    train(recipe, folder, reporter=reporter)
    seconds = round(time.monotonic() - began, 1)
    with atomic_file(folder / SECONDS_FILE) as temporary:
        write_json(temporary, {"train_seconds": seconds})
    return seconds


def is_finished(recipe: Recipe, folder: Path) -> bool:
    """Whether a run folder holds a trained model of this recipe."""
    if not (folder / RECIPE).is_file() or not (folder / SECONDS_FILE).is_file():
        return False
    try:
        find_model(folder)
        return fill_in(resume_recipe(folder)).without_labels() == fill_in(recipe).without_labels()
    except TransduceError:
        return False
