"""The name of every file in a run, model, checkpoint and prepared-corpus folder, spelled once.

    RUN/                        recipe.toml, journal.jsonl, timing.jsonl, .lock
        data/                   a prepared corpus, or a link to one
        checkpoints/update-N/   model.safetensors, optimizer.safetensors, average.safetensors, progress.json
        model/                  config.json, model.safetensors, tokenizer.json, README.md
        texts/                  the corpus, if a program passed it as lists of strings
    CORPUS/                     report.json, tokenizer.json, a folder per split

Checkpoints, models and prepared corpora also have a `manifest.json` (`storage.manifest`).
"""

from __future__ import annotations

FORMAT = 2
"""Format of model folders, checkpoints and prepared corpora. Folders of format 2 and later must load forever."""

MANIFEST = "manifest.json"
LOCK = ".lock"

# a run
RECIPE, JOURNAL, TIMING = "recipe.toml", "journal.jsonl", "timing.jsonl"
DATA, CHECKPOINTS, MODEL, TEXTS = "data", "checkpoints", "model", "texts"

# a model folder
CONFIG, WEIGHTS, MODEL_CARD = "config.json", "model.safetensors", "README.md"
TOKENIZER = "tokenizer.json"
SOURCE_TOKENIZER, TARGET_TOKENIZER = "source.tokenizer.json", "target.tokenizer.json"
SHORTLIST = "shortlist.safetensors"

# a checkpoint, besides the weights
OPTIMIZER, AVERAGE, PROGRESS = "optimizer.safetensors", "average.safetensors", "progress.json"

# a prepared corpus, besides the tokenizers
REPORT = "report.json"

# kinds of folders in a manifest
MODEL_KIND = "transduce model"
CHECKPOINT_KIND = "transduce checkpoint"
CORPUS_KIND = "transduce prepared corpus"
CTRANSLATE2_KIND = "transduce CTranslate2 model"


def checkpoint_name(update: int) -> str:
    """Name of the checkpoint folder of an update."""
    return f"update-{update:08d}"
