"""Default settings for pairs, chosen by the size and kind of the corpus, with reasons.

The rules follow publications about small data (Araabi and Monz 2020; Wu et al. 2021; Sennrich and Zhang 2019): small
models with much dropout and few BPE merges, larger ones as the corpus grows; and our own measurements
(docs/explanation/decisions/0018-small-corpus-defaults.md).
"""

from __future__ import annotations

import math
from typing import Any

from transduce.config import Table
from transduce.data.settings import DataConfig
from transduce.models.ancestors.captioner import CaptionerConfig
from transduce.tasks.translation.survey import (
    MAX_PAIRS,
    Side,
    Survey,
    fitting_metrics,
    is_spaced_spelling,
    recognise,
    recognise_source,
)
from transduce.text.image_file import ImageFilesConfig
from transduce.text.tokenizer.special import LETTERS
from transduce.training.compatibility import NEED_ALIGNMENTS
from transduce.training.initial_checkpoint import InitialCheckpoint
from transduce.training.task import Defaults

VERY_SMALL, SMALL, LARGE = 10_000, 50_000, 300_000
"""Pairs: up to SMALL a width of 128 learns as much per update as 256; from LARGE on there is little overfitting."""
NAMES = {"bpe": "BPE", "unigram": "Unigram", "wordpiece": "WordPiece"}
"""Kinds of tokenizer that cut text into subwords, as they are called."""
SUBWORDS = tuple(NAMES)
SIDES = {"source_kind", "target_kind"}
"""Settings of [tokenizer] for the kind of token of one side."""
FEWEST_EPOCHS, MOST_EPOCHS = 10, 300
FEWEST_VALIDATED, DECODED = 100, 500
"""Validation pairs of which exact matches are a fraction fine enough to select checkpoints, and how many are translated
then."""
HELD_OUT, ENOUGH_HELD_OUT = 0.05, 100
"""Fraction of a small corpus that is held out for validation, up to so many pairs: a hundredth of 300 pairs tells
nothing."""
RIGHT_OR_WRONG = {"exact_match", "word_error_rate"}
"""Metrics of texts that are right or wrong as a whole; a sentence that is spelled is not."""
GUIDED = 0.1
"""Weight of guided alignment for words that are spelled."""
FEW_SPELLED = 2_500
"""Pairs of few words that are spelled, with symbols: between 800, which were measured, and 8,000, which were not."""
FOR_FEW = {"guided_alignment": 0.5, "recombination": 0.25, "r_drop": 1.0}
"""Settings of [training] for few words with symbols."""
EPOCHS_FOR_FEW = 200
"""Most epochs with R-Drop, for which an update takes half as long again."""
FEW_TOKENS, MANY_TOKENS = 300_000, 10_000_000
"""Target tokens of small and large corpora for fine-tuning."""
CAPTIONER_EPOCHS = 20
CAPTIONER_PIXELS = 32 * 32**2
"""Pixels of an update: 32 images of 32 × 32, as in recipes/captions.toml."""
IMAGE_TOKENIZER = {"joint": False, "source_kind": "character", "target_kind": "word"}
"""Settings of [tokenizer] for images: a token per pixel."""


def choose_settings(found: Survey, given: Table | None = None, validated: int = 0, aligned: bool = True) -> Defaults:
    """Choose tokenizer, model and training for a corpus.

    `given` is the table [tokenizer] as written, `validated` the number of validation pairs, up to a bound. `aligned`:
    the pairs have alignments or will get them.
    """
    chosen = choose_tokenizer(found, given)
    tokenizer, reasons = chosen.tables["tokenizer"], chosen.reasons
    tokens = {**tokenizer, **(given or {})}
    source, target = (tokens.get(f"{side}_kind") or tokens.get("kind", "bpe") for side in ("source", "target"))
    symbols = target not in SUBWORDS
    spelled = symbols and (source in LETTERS or (source == "word" and is_spaced_spelling(found.source)))
    few = source in LETTERS and target == "word" and found.pairs < FEW_SPELLED
    most_epochs = EPOCHS_FOR_FEW if few else MOST_EPOCHS
    model, training = _model(found.pairs, _tokens_per_pair(found, tokens), symbols, most_epochs, reasons)
    if symbols and validated >= FEWEST_VALIDATED and fitting_metrics(found)[0] in RIGHT_OR_WRONG:
        training |= {"metric": "exact_match", "decode_examples": DECODED}
        reasons.append("the checkpoint with most exact matches is kept: they grow on when the loss hardly falls")
    if spelled and found.pairs < LARGE:
        _spell(found.pairs, few, model, training, reasons)
    elif symbols and source == "word" and found.pairs < LARGE:
        model |= {"positions": "rotary"} if found.pairs < VERY_SMALL else {"positions": "rotary", "dropout": 0.1}
        reasons.append("rotary positions, as symbols on both sides follow rules")
    reasons.append(f"dropout {model.get('dropout', 0.3 if found.pairs < LARGE else 0.1)}")
    if not aligned and {*NEED_ALIGNMENTS} & training.keys():
        training = {name: value for name, value in training.items() if name not in NEED_ALIGNMENTS}
        reasons.append("without alignments: the corpus was prepared without `--set data.align=true`")
    if not tokens["joint"]:
        model["tied_embeddings"] = "target"
    return Defaults({"tokenizer": tokenizer, "model": model, "training": training}, reasons)


def _spell(pairs: int, few: bool, model: Table, training: Table, reasons: list[str]) -> None:
    """Choose what a spelled source with a target of characters or symbols needs: letters follow each other in order."""
    inner = 0.2 if pairs < VERY_SMALL else 0.1
    model |= {"positions": "rotary", "attention_dropout": inner, "activation_dropout": inner}
    training |= FOR_FEW if few else {"guided_alignment": GUIDED}
    reasons.append(f"rotary positions, dropout {inner} of attention weights and activations, guided alignment")
    if few:
        reasons.append("recombination: each epoch has new words made of parts of others; R-Drop")


def choose_validation(pairs: int) -> Defaults:
    """Choose the fraction of a corpus without validation pairs that is held out."""
    fraction = math.ceil(1000 * min(HELD_OUT, ENOUGH_HELD_OUT / max(1, pairs))) / 1000
    if fraction <= DataConfig.model_fields["validation_fraction"].default:
        return Defaults({}, [])
    reason = (
        f"about {max(1, round(fraction * pairs))} pairs are held out for validation, as no validation files are given"
    )
    return Defaults({"data": {"validation_fraction": fraction}}, [reason])


def choose_captioner(found: Survey, images: ImageFilesConfig, given: Table) -> Defaults:
    """Choose tokenizer, model and training for image files with captions: the settings of recipes/captions.toml.

    `given` is the table [tokenizer] as written.
    """
    size = images.size or CaptionerConfig().side
    per_update = max(1, CAPTIONER_PIXELS // size**2)
    per_epoch = max(1, found.pairs // per_update)
    updates = max(500, min(100_000, CAPTIONER_EPOCHS * per_epoch))
    reasons = [f"{found.pairs:,} training pairs"]
    kind = _kind(found, "target", given, reasons)
    tokenizer = {**IMAGE_TOKENIZER, "target_kind": kind, "min_frequency": 1}
    reasons.append(f"images: a captioner that reads {size} × {size} pixels, a token for each")
    reasons.append(
        f"about {CAPTIONER_EPOCHS} epochs: at most {updates:,} updates of {per_update:,} image{'s' * (per_update > 1)}"
    )
    training = {
        "batch_tokens": per_update * (size**2 + 1),
        "micro_batch_tokens": per_update * (size**2 + 1),
        "updates": updates,
        "schedule": "linear",
        "learning_rate": 2e-3,
        "warmup": min(100, updates // 5),
        "max_grad_norm": 1.0,
        "validate_every": max(50, min(2000, per_epoch, updates // 10)),
        "patience": 10,
    }
    model = {"preset": "captioner_small", "side": size}
    return Defaults({"tokenizer": tokenizer, "model": model, "training": training}, reasons)


def choose_tokenizer(found: Survey, given: Table | None = None) -> Defaults:
    """Choose the tokenizer alone, to complete the settings of [tokenizer] that are given."""
    given = given or {}
    reasons = [f"{found.pairs:,} training pairs" + (" or more" if found.pairs == MAX_PAIRS else "")]
    source, target = (_kind(found, side, given, reasons) for side in ("source", "target"))
    if given.get("joint") and source != target and not SIDES & given.keys():
        source = target = "bpe"
    size = 4000 if found.pairs < 20_000 else 10_000 if found.pairs < 300_000 else 32_000
    table: Table = {"vocab_size": size if {source, target} & {*SUBWORDS} else 4000}
    if not {source, target} <= {*SUBWORDS}:
        table["min_frequency"] = 1
    if source != target or not given.get("joint", source in SUBWORDS or "kind" in given):
        kinds = {} if "kind" in given else {"source_kind": source, "target_kind": target}
        return Defaults({"tokenizer": {"joint": False, **kinds, **table}}, reasons)
    if source in SUBWORDS:
        reasons.append(f"one joint {NAMES[source]} vocabulary of {size:,} tokens")
    return Defaults({"tokenizer": {"joint": True, "kind": source, **table}}, reasons)


def _kind(found: Survey, side: str, given: Table, reasons: list[str]) -> str:
    """Return the kind of token of one side: as given, or else as recognised, which is noted."""
    return str(given.get(f"{side}_kind") or given.get("kind") or _noted(found, side, reasons) or "bpe")


def _noted(found: Survey, name: str, reasons: list[str]) -> str | None:
    """Return the kind of token of one side, None for BPE, and note what it was recognised as."""
    side = recognise_source(found) if name == "source" else recognise(found.target, found.pairs)
    reasons.append(f"the {name} {side.what}")
    return side.kind


def choose_fine_tuning(checkpoint: InitialCheckpoint, amount: str, target_tokens: float, given: Table) -> Defaults:
    """Choose [training] for fine-tuning a model on a corpus of about `target_tokens`.

    A low learning rate, so that the model does not forget, with a short warmup, because the optimizer's moments start
    at zero; linear decay to zero over a few epochs. `amount` describes the corpus, `given` is [training] as written.
    """
    rate, why = checkpoint.peak_rate()
    tokens = given.get("batch_tokens", 2048 if target_tokens < FEW_TOKENS else 4096)
    epochs = 20 if target_tokens < FEW_TOKENS else 10 if target_tokens < MANY_TOKENS else 3
    size = tokens if isinstance(tokens, int) else 4096
    per_epoch = max(1, int(target_tokens / size))
    updates = given.get("updates", max(200, min(20_000, epochs * per_epoch)))
    every = min(updates, max(20, min(1000, per_epoch, updates // 10)))
    training: dict[str, Any] = {
        "batch_tokens": tokens,
        "updates": updates,
        "schedule": "linear",
        "learning_rate": rate,
        "warmup": min(500, updates // 10),
        "max_grad_norm": 1.0,
        "validate_every": every,
        "patience": 5,
        "keep_last": 5,
        "average_checkpoints": 5,
    }
    reasons = [amount, *([] if "learning_rate" in given else [f"learning rate {rate:.2g}: {why}"])]
    chosen = {**training, **given}
    reasons.append(
        f"at most {updates:,} updates of {tokens} tokens, {chosen['warmup']:,} of warmup, "
        f"validated every {chosen['validate_every']:,}"
    )
    return Defaults({"training": {**training, **checkpoint.kept_settings}}, reasons)


def _tokens_per_pair(found: Survey, tokenizer: Table) -> float:
    """Estimate the tokens of a pair on its longer side, with the end; BPE pieces have about four characters."""
    sides = (("source", found.source), ("target", found.target))
    return 1 + max(_tokens(side, tokenizer.get(f"{name}_kind") or tokenizer.get("kind", "bpe")) for name, side in sides)


def _tokens(side: Side, kind: str) -> float:
    if kind == "word":
        return side.words
    return side.characters / {"character": 1, "byte": 1, "feature": 2}.get(kind, 4)


def choose_epochs(tokens_per_epoch: float, most_tokens: float, most_epochs: int = MOST_EPOCHS) -> int:
    """Return the epochs after which a corpus has been seen often enough, rounded to two digits."""
    epochs = max(FEWEST_EPOCHS, min(most_epochs, most_tokens / max(1.0, tokens_per_epoch)))
    return int(float(f"{epochs:.2g}"))


def _model(
    pairs: int, tokens_per_pair: float, symbols: bool, most_epochs: int, reasons: list[str]
) -> tuple[Table, Table]:
    """`symbols`: the target is written in characters or symbols, whose corpora need more updates and fewer tokens."""
    if pairs < VERY_SMALL:
        model: Table = {"name": "transformer", "preset": "small", "num_layers": 3, "model_dim": 128, "ffn_dim": 512}
        rate, total, what = 5e-3, 20e6, "a very small corpus: 3 + 3 layers of width 128, pre-norm"
    elif pairs < SMALL:
        model = {"name": "transformer", "preset": "small", "model_dim": 128, "ffn_dim": 512}
        rate, total, what = 5e-3, 20e6, "a small corpus: 4 + 4 layers of width 128, pre-norm"
    elif pairs < LARGE:
        model = {"name": "transformer", "preset": "small"}
        rate, total, what = 4e-3, 40e6, "a medium corpus: 4 + 4 layers of width 256, pre-norm"
    else:
        model = {"name": "transformer", "preset": "paper_base", "norm": "pre"}
        rate, total, what = 7e-4, 60e6, "a large corpus: the paper's base model, pre-norm"
    epochs = choose_epochs(pairs * tokens_per_pair, total / 2 if symbols else total, most_epochs)
    tokens = 1024 if pairs < VERY_SMALL else 2048 if symbols and pairs < SMALL else 4096
    reasons.append(what)
    reasons.append(f"at most {epochs} epochs in batches of {tokens:,} tokens, Muon, a learning rate that ends at zero")
    training: dict[str, Any] = {
        "batch_tokens": tokens,
        "epochs": float(epochs),
        "optimizer": "muon",
        "schedule": "linear",
        "learning_rate": rate,
        "warmup": 0.1,
        "max_grad_norm": 1.0,
        "validate_every": 0.05,
        "patience": 10,
        "keep_last": 5,
        "average_checkpoints": 5,
        "tune_search": True,
    }
    return model, training
