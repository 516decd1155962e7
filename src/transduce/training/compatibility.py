"""Checks that a model fits its settings, the machine and the corpus, made before any long work starts."""

from __future__ import annotations

import torch

from transduce.config import Config
from transduce.data.prepared import Prepared
from transduce.data.settings import DataConfig
from transduce.data.store import PairStore
from transduce.errors import SettingsError, brief
from transduce.inference.search.options import SearchOptions
from transduce.models import catalog
from transduce.models.ancestors.neural_gpu import relaxed_sets
from transduce.models.interface import Model, VocabularySizes
from transduce.training.config import TrainingConfig
from transduce.training.device import blocks_of
from transduce.training.memory import physical_bytes
from transduce.training.muon import hidden_matrices

NEED_ALIGNMENTS = ("guided_alignment", "recombination")
"""Settings of [training] for which the tokens of a corpus must be aligned."""


def check_model_settings(data: DataConfig, config: Config, training: TrainingConfig, search: SearchOptions) -> None:
    """Raise where settings do not apply to the model, before the corpus is prepared."""
    model, name = outline(config, VocabularySizes(1, 1)), catalog.name_of(config)
    lacking = [side for side in ("source", "target") if not hasattr(model, f"{side}_embedding")]
    reason = None
    if given := [f"{side}_vectors" for side in lacking if getattr(training, f"{side}_vectors")]:
        reason = f"training.{given[0]} needs an embedding that a {name} does not have; leave it out"
    elif search.coverage_penalty and model.has_target and not model.attends:
        reason = f"search.coverage_penalty needs cross-attention, and this {name} has none; leave it out"
    elif training.guided_alignment and not model.attends:
        reason = f"training.guided_alignment needs cross-attention, and this {name} has none; leave it out"
    elif training.optimizer == "muon" and not hidden_matrices(model):
        reason = f"training.optimizer = 'muon' is for linear layers inside blocks, and a {name} has none; use 'adamw'"
    elif training.relaxation_updates and not [*relaxed_sets(model)]:
        reason = f"training.relaxation_updates is for the weight sets of a Neural GPU; leave it out for a {name}"
    elif training.metric != "loss" and not data.of_split("validation") and not data.validation_fraction:
        reason = f"training.metric = '{training.metric}' needs validation data; give data.validation, or set "
        reason += "data.validation_fraction above 0"
    elif training.compile and training.device != "cuda":
        reason = "training.compile is for CUDA GPUs, and the CPU has kernels of its own here; leave it out"
    elif training.compile and not [*blocks_of(model)]:
        reason = f"training.compile is for blocks, and a {name} has none; leave it out"
    if reason is not None:
        raise SettingsError(reason)


def outline(config: Config, sizes: VocabularySizes) -> Model:
    """Return a model without memory for its weights."""
    with torch.device("meta"):
        return catalog.build(config, sizes)


def check_model_size(outlined: Model, training: TrainingConfig) -> None:
    """Raise if this machine cannot hold the model, instead of filling its memory to find out."""
    parameters = sum(parameter.numel() for parameter in outlined.parameters())
    # with frozen weights, the number of trained parameters is known only later
    here = training.device == "cpu" and not training.shard and not training.freeze
    needed = parameters * (16 if here else 4)  # weights; gradients and Adam's two moments, or Muon's one and its update
    there = physical_bytes()
    if needed > there > 0:
        raise SettingsError(
            f"the model has {parameters:,} parameters, which need {needed / 2**30:,.1f} GiB to train; this machine has "
            f"{there / 2**30:,.1f} GiB: choose smaller sizes in [model] (`transduce cost` shows their memory)"
        )


def check_validation_split(training: TrainingConfig, corpus: Prepared) -> None:
    """Raise if a metric is to select checkpoints and the prepared corpus has no validation split."""
    if training.metric != "loss" and corpus.validation is None:
        raise SettingsError(
            f"training.metric = '{training.metric}' needs validation data, and none of this corpus could be held out; "
            "give data.validation"
        )


def check_alignments(training: TrainingConfig, corpus: Prepared) -> None:
    """Raise if a corpus was prepared without the alignments that these settings need."""
    needing = [f"training.{name}" for name in NEED_ALIGNMENTS if getattr(training, name)]
    if needing and corpus.report.alignment is None:
        raise SettingsError(
            f"{corpus.folder}: was prepared without alignments, which {needing[0]} needs; prepare it with "
            f"`--set data.align=true`, or set {'=0 and '.join(needing)}=0"
        )


def check_lengths(model: Model, corpus: Prepared) -> None:
    """Raise if a text is longer than the model accepts, before training reaches it."""
    if model.image_size is not None:
        _check_pictures(model.image_size, corpus)
    for name, split in corpus.report.splits().items():
        for side, longest, limit in (
            ("source", split.source.longest, model.max_source),
            ("target", split.target.longest, model.max_target),
        ):
            if limit is not None and longest + 1 > limit:
                raise SettingsError(
                    f"a {side} of the {name} corpus has {longest:,} tokens, but the model has {limit:,} positions, "
                    f"including the start or end token; set data.max_length={limit - 1} or a larger max_positions"
                )


def _check_pictures(side: int, corpus: Prepared) -> None:
    """Raise if a source is not a picture of the model's size."""
    for name in corpus.report.splits():
        store: PairStore | None = getattr(corpus, name)
        if store is None:  # everything held out was filtered out
            continue
        lengths = store.source_lengths[:]
        wrong = (lengths != side * side).nonzero()[0].tolist()
        if wrong:
            raise SettingsError(
                f"kept pair {wrong[0] + 1:,} of the {name} corpus, {brief(store.text(wrong[0])[0])}, has a source of "
                f"{lengths[wrong[0]]:,} tokens, but the model needs pictures of {side} × {side} = {side * side:,} "
                f"pixels, one token each ({len(wrong):,} such pairs): fix or remove the pair, or set model.side, and "
                "tokenizer.source_kind = 'character'"
            )
