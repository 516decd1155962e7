"""Whether a model fits its machine, its corpus and what is asked of it; if not, that is said before it costs time."""

from __future__ import annotations

import os

import torch

from transduce.config import Config
from transduce.data.config import DataConfig
from transduce.data.prepared import Prepared
from transduce.data.store import PairStore
from transduce.errors import SettingsError, brief
from transduce.inference.search.options import SearchOptions
from transduce.models import catalog
from transduce.models.interface import Model, Transducer, VocabularySizes
from transduce.nn.active_memory import relaxed_sets
from transduce.training.config import TrainingConfig


def refuse_unfit(
    data: DataConfig, config: Config, training: TrainingConfig, search: SearchOptions
) -> None:
    """Say no, before hours go into preparing, to what could not be done or would mean nothing."""
    model, name = outline(config, VocabularySizes(1, 1)), catalog.name_of(config)
    lacking = [side for side in ("source", "target") if not hasattr(model, f"{side}_embedding")]
    reason = None
    if asked := [f"{side}_vectors" for side in lacking if getattr(training, f"{side}_vectors")]:
        reason = f"training.{asked[0]} is for models with such an embedding, which a {name} has not; leave it out"
    elif search.coverage_penalty and isinstance(model, Transducer) and not model.attends:
        reason = (
            f"search.coverage_penalty judges what an answer looked at, and this {name} has no attention to its source"
        )
        reason += "; leave it out"
    elif training.relaxation_updates and not [*relaxed_sets(model)]:
        reason = f"training.relaxation_updates joins the sets of weights of a Neural GPU, and a {name} has none; leave it out"
    elif training.metric != "loss" and not data.of_split("validation") and not data.validation_fraction:
        reason = f"training.metric = '{training.metric}' chooses by validation, and there is none; give data.validation"
        reason += ", or set data.validation_fraction above 0"
    if reason is not None:
        raise SettingsError(reason)


def outline(config: Config, sizes: VocabularySizes) -> Model:
    """Return a model without the memory of its weights."""
    with torch.device("meta"):
        return catalog.build(config, sizes)


def refuse_too_large(outlined: Model, training: TrainingConfig) -> None:
    """Say no to a model that this machine cannot hold, instead of filling its memory to find out."""
    parameters = sum(parameter.numel() for parameter in outlined.parameters())
    here = training.device == "cpu" and not training.shard and not training.freeze  # how many learn is known later
    needed = parameters * (16 if here else 4)  # weights; gradients and Adam's two moments
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there > 0:
        raise SettingsError(
            f"the model has {parameters:,} parameters, which take {needed / 2**30:,.1f} GiB to train; this machine has "
            f"{there / 2**30:,.1f} GiB: choose smaller sizes in [model] (`transduce cost` shows what they take)"
        )


def refuse_unmeasured(training: TrainingConfig, corpus: Prepared) -> None:
    """Say no to choosing by a metric where nothing came of the validation pairs that were to be held out."""
    if training.metric != "loss" and corpus.validation is None:
        raise SettingsError(
            f"training.metric = '{training.metric}' chooses by validation, and no pairs of this corpus could be "
            "held out; give data.validation"
        )


def refuse_too_long(model: Model, corpus: Prepared) -> None:
    """Say no to a text that the model cannot read before training comes to it."""
    if isinstance(model, Transducer) and model.picture_side is not None:
        _refuse_no_pictures(model.picture_side, corpus)
    for name, split in corpus.report.splits().items():
        for side, longest, limit in (
            ("source", split.source.longest, model.max_source),
            ("target", split.target.longest, model.max_target),
        ):
            if limit is not None and longest + 1 > limit:
                raise SettingsError(
                    f"a {side} of the {name} corpus has {longest:,} tokens, but the model learns {limit:,} positions, "
                    f"the start or end token's among them; set data.max_length={limit - 1} or a larger max_positions"
                )


def _refuse_no_pictures(side: int, corpus: Prepared) -> None:
    """Say no to sources that are no pictures of the model's size."""
    for name in corpus.report.splits():
        store: PairStore | None = getattr(corpus, name)
        if store is None:  # all that was held out was left out
            continue
        lengths = store.source_lengths[:]
        wrong = (lengths != side * side).nonzero()[0].tolist()
        if wrong:
            raise SettingsError(
                f"pair {wrong[0] + 1:,} of those kept of the {name} corpus, {brief(store.text(wrong[0])[0])}, has a "
                f"source of {lengths[wrong[0]]:,} tokens, but the model reads pictures of {side} × {side} = "
                f"{side * side:,} pixels, a token for each ({len(wrong):,} pairs are no such pictures): mend or leave "
                "out the pair, or set model.side, and tokenizer.source_kind = 'character'"
            )
