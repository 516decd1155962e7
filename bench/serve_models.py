"""Models of `bench/serve.py`: a small one that is trained, and one of the paper's base size with the same function.

A server's load depends on when translations end, so the model must be trained. A base model takes a day here, so the
small one is widened (Net2Net, Chen et al. 2016) without changing what it computes: the residual stream is tiled, what
reads it is divided by the number of copies, heads and feed-forward units are copied, and added layers write nothing.
Matrix products take the same time whatever their values, so its speed is that of any base model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from measuring import train_or_resume
from torch import Tensor

from transduce.config import Table, write_toml
from transduce.experiments.study_corpus import StudyCorpus
from transduce.inference.padding import source_batch, target_batch
from transduce.inference.translator import Translator
from transduce.model_folder import ModelFolder, load_model, put_weights, save_model, weights_of
from transduce.models.catalog import build
from transduce.models.transformer import Transformer, TransformerConfig
from transduce.nn.position import sinusoids
from transduce.recipe import Recipe, read_recipe
from transduce.training.reporter import Silent, Validation

UPDATES = 1200
POSITIONS = 512
"""Positions of the widened model, whose table holds the tiled sinusoids of the small one."""
TOLERANCE = 2e-4
"""Largest difference between the logits of the two models."""
BASE = {"model_dim": 512, "ffn_dim": 2048, "num_heads": 8, "num_layers": 6}
"""The paper's base model."""


class Lines(Silent):
    """Prints validation results."""

    def validation(self, validation: Validation) -> None:
        shown = {name: round(value, 3) for name, value in validation.measures().items()}
        print(f"small, update {validation.update:,}: {shown}", flush=True)

    def warn(self, message: str) -> None:
        print(f"small: {message}", flush=True)


def small_recipe(texts: StudyCorpus, updates: int) -> Table:
    """The settings of the small model: recipes/multi30k.toml, but pre-norm and trained for a quarter of an hour."""
    data = {
        split: {"source": str(source.resolve()), "target": str(target.resolve())}
        for split, (source, target) in texts.files.items()
    }
    languages = dict(zip(("source_language", "target_language"), texts.languages, strict=True))
    return {
        "data": {**data, **languages, "duplicates": "keep", "leakage": "keep"},
        "tokenizer": {"kind": "bpe", "vocab_size": 10_000, "joint": True},
        "model": {
            "name": "transformer",
            "model_dim": 128,
            "ffn_dim": 256,
            "num_heads": 4,
            "num_layers": 4,
            "norm": "pre",
            "attention_bias": True,
            "dropout": 0.1,
        },
        "training": {
            "threads": 1,
            "precision": "bfloat16",
            "batch_tokens": 4096,
            "updates": updates,
            "schedule": "linear",
            "learning_rate": 0.005,
            "warmup": max(1, updates // 6),
            "max_grad_norm": 1.0,
            "validate_every": max(1, updates // 4),
            "decode_examples": 50,
            "log_every": 50,
        },
        "search": {"length_normalization": "power", "length_penalty": 1.0, "stop_rule": "beam_finished"},
    }


def train_small(texts: StudyCorpus, folder: Path, updates: int = UPDATES) -> Path:
    """Train the small model, or reuse it."""
    return train_or_resume(partial(_read, small_recipe(texts, updates), folder), folder, Lines())


def _read(table: Table, folder: Path) -> Recipe:
    path = folder.with_suffix(".toml")
    path.write_text(write_toml(table), encoding="utf-8")
    return read_recipe(path)[0]


# Widening.


def widen(small: Transformer, shape: Table | None = None) -> Transformer:
    """Return a larger model that computes the same logits.

    The small one is pre-norm with sinusoidal positions and one matrix for all embeddings; sizes must be multiples.
    """
    before = small.config
    after = before.but(**(shape or BASE), positions="learned", max_positions=POSITIONS)
    assert before.norm == "pre" and before.positions == "sinusoidal" and before.tied_embeddings == "all"
    wide = build(after, small.sizes)
    assert isinstance(wide, Transformer)
    narrow = weights_of(small)
    copies = after.model_dim // before.model_dim
    # Scaled by sqrt(D) where it is read, so that every copy equals the small model's embedding.
    embedding_VD = narrow["source_embedding.weight"].repeat(1, copies) * (before.model_dim / after.model_dim) ** 0.5
    positions_PD = sinusoids(POSITIONS, before.model_dim).repeat(1, copies)
    weights = {
        "source_embedding.weight": embedding_VD,
        "source_positions.weight": positions_PD,
        "target_positions.weight": positions_PD,
    }
    for name in weights_of(wide):
        if name not in weights:
            weights[name] = _widened(name, narrow, before, after)
    for side in ("weight", "bias"):  # the output layer adds up all copies of a smaller embedding
        weights[f"decoder_norm.{side}"] = weights[f"decoder_norm.{side}"] * copies**-0.5
    put_weights(wide, weights, Path("widened"))
    return wide.eval()


def _widened(name: str, narrow: dict[str, Tensor], before: TransformerConfig, after: TransformerConfig) -> Tensor:
    """One weight of the larger model; the sub-layers of layers that the small one lacks add nothing."""
    copies, units = after.model_dim // before.model_dim, after.ffn_dim // before.ffn_dim
    match = re.match(r"(\w+)\.(\d+)\.", name)
    layer = 0 if match is None else int(match[2])
    own = name if match is None else name.replace(f".{layer}.", f".{layer % before.num_layers}.", 1)
    weight = narrow[own]
    if layer >= before.num_layers and (".out_proj." in name or ".down." in name):
        return _tiled(torch.zeros_like(weight), copies, units if ".down." in name else copies)
    if ".out_proj." in name:
        return _tiled(_head_columns(weight, before, after), copies, 1) / (copies if weight.dim() == 2 else 1)
    if "_proj." in name:  # queries, keys, values: the parts that are packed into one matrix
        parts = [_heads(part, before, after) for part in torch.split(weight, before.model_dim)]
        if own.split(".")[-2] in ("qkv_proj", "q_proj"):  # scores are sums over more dimensions, with another scale
            key_copies = after.head_dims[0] // before.head_dims[0]
            parts[0] = parts[0] * key_copies**-0.5
        return _read_by(torch.cat(parts), copies)
    if ".up." in name:
        return _read_by(_tiled(weight, units, 1), copies)
    if ".down." in name:
        return _tiled(weight, copies, units) / (units if weight.dim() == 2 else 1)
    return weight.repeat(copies)  # a norm


def _tiled(weight: Tensor, rows: int, columns: int) -> Tensor:
    return weight.repeat(rows, columns) if weight.dim() == 2 else weight.repeat(rows)


def _read_by(weight: Tensor, copies: int) -> Tensor:
    """Input columns for every copy of the residual stream, divided by their number; a bias stays."""
    return weight.repeat(1, copies) / copies if weight.dim() == 2 else weight


def _heads(part: Tensor, before: TransformerConfig, after: TransformerConfig) -> Tensor:
    """Copy the rows of each head within the head, then the heads.  (H·K …) -> (H'·K' …)."""
    within, heads = after.head_dims[0] // before.head_dims[0], after.num_heads // before.num_heads
    split = torch.unflatten(part, 0, (before.num_heads, -1))
    return torch.cat([split] * within, dim=1).repeat_interleave(heads, dim=0).flatten(0, 1)


def _head_columns(weight: Tensor, before: TransformerConfig, after: TransformerConfig) -> Tensor:
    """The same for the columns of an output projection; its bias stays."""
    return weight if weight.dim() == 1 else _heads(weight.T, before, after).T


def check_widened(small: ModelFolder, wide: Transformer, texts: Sequence[str]) -> float:
    """Compare logits and greedy translations; return the largest difference of logits."""
    original = small.transducer
    specials = small.source_tokenizer.specials
    sources = [list(small.source_tokenizer.encode(text)) for text in texts]
    tokens_BS, allowed_BS = source_batch(sources, specials, torch.device("cpu"))
    read_BT = target_batch(sources, specials, torch.device("cpu"))[0]
    with torch.inference_mode():
        logits = [
            model.logits(model(read_BT, model.encode(tokens_BS, allowed_BS)).flatten(0, 1))
            for model in (original, wide)
        ]
    difference = float((logits[0] - logits[1]).abs().max())
    assert difference < TOLERANCE, f"logits of the widened model differ by {difference:.1e}"
    return difference


def widen_folder(folder: Path, into: Path, texts: Sequence[str]) -> Path:
    """Widen the model of a run to the base size and save it, or reuse it."""
    if not into.exists():
        small = load_model(folder)
        assert isinstance(small.model, Transformer)
        wide = widen(small.model)
        difference = check_widened(small, wide, texts)
        larger = ModelFolder(wide, wide.config, small.source_tokenizer, small.target_tokenizer, small.notes)
        found = [Translator(one).translate(texts, method="greedy", split=False) for one in (small, larger)]
        same = sum(one == other for one, other in zip(*found, strict=True))
        print(f"base: logits differ by {difference:.1e}, {same} of {len(texts)} greedy translations are the same")
        assert same == len(texts), "the widened model translates differently"
        save_model(into, larger, f"# A small model, widened\n\nThe model of {folder.name} with the sizes of base.\n")
    return into
