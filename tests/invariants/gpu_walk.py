"""A training step and a decoding step of every model of the catalog on the stand-in GPU."""

from __future__ import annotations

import traceback
from typing import Any

import numpy as np
import torch

from tests.invariants.stand_in_gpu import NAME, device
from transduce.data.batching import Batch, PairBatch
from transduce.models import catalog
from transduce.models.interface import EncoderModel, Model, VocabularySizes
from transduce.tasks.text_encoding.batches import EncoderBatch, encoder_loss
from transduce.tasks.transducer import transducer_loss
from transduce.training.config import TrainingConfig
from transduce.training.step import TrainStep

SIZES = VocabularySizes(8192, 8192)
TRAINING: dict[str, Any] = {"precision": "bfloat16", "max_grad_norm": 1.0, "optimizer": "adamw", "threads": 1}


def build(preset: str, **changes: Any) -> Model:
    """A model of a preset with its weights on the stand-in."""
    _, config = catalog.preset(preset)
    return catalog.build(config.but(**changes), SIZES)


def pairs(rows: int, source: int, target: int, side: int | None = None) -> PairBatch:
    source = source if side is None else side * side
    lengths = np.full(rows, target)
    return PairBatch(
        source=torch.ones(rows, source, dtype=torch.long),
        source_allowed=torch.ones(rows, source, dtype=torch.bool),
        target=torch.ones(rows, target + 1, dtype=torch.long),
        target_lengths=torch.full((rows,), target),
        num_target_tokens=rows * target,
        num_picked=lengths,
        rows=np.arange(rows),
    )


def texts(rows: int, length: int, labels: int) -> EncoderBatch:
    """`labels` per text: 1, or one for each token."""
    return EncoderBatch(
        tokens=torch.ones(rows, length, dtype=torch.long),
        allowed=torch.ones(rows, length, dtype=torch.bool),
        segments=torch.zeros(rows, length, dtype=torch.long),
        labels=torch.ones(rows, labels, dtype=torch.long),
        num_target_tokens=rows * 3,
        num_picked=np.full(rows, 3),
        num_rows=rows,
        rows=np.arange(rows),
    )


def batch_for(model: Model, rows: int, length: int) -> Batch:
    if isinstance(model, EncoderModel):
        return texts(rows, length, labels=length)
    side = model.image_size
    return pairs(rows, 0 if not model.has_source else length, length, side)


def train(preset: str, rows: int = 6, length: int = 24, model: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Two updates of two micro-batches each; what happened in the second."""
    with device() as watch:
        made = build(preset, **(model or {}))
        loss = encoder_loss if isinstance(made, EncoderModel) else transducer_loss
        config = TrainingConfig(**{**TRAINING, **changes})
        step = TrainStep(made, loss, config)
        assert step.device.type == NAME
        batch = batch_for(made, rows, length)
        step.run([batch], 1, 0.1, rows * length // 2)
        watch.waits.clear()
        watch.flops.clear()
        result = step.run([batch], 2, 0.1, rows * length // 2)
        devices = {str(parameter.grad.device.type) for parameter in made.parameters() if parameter.grad is not None}
        kept = {str(value.device.type) for state in step.optimizer.state.values() for value in state.values()}
        return {"waits": watch.waits, "flops": watch.flops, "devices": sorted(devices | kept), "result": type(result).__name__}


def decode(preset: str, rows: int = 4, length: int = 11) -> dict[str, Any]:
    """One decoding step after a source was encoded, as search calls it."""
    with device() as watch, torch.inference_mode():
        model: Any = build(preset).eval()
        side = model.image_size
        batch = pairs(rows, 0 if not model.has_source else length, 1, side)
        state = model.start(model.encode(batch.source, batch.source_allowed), 2)
        tokens = torch.ones(rows * 2, dtype=torch.long)
        _, state = model.step(tokens, state)
        watch.waits.clear()
        hidden, state = model.step(tokens, state)
        scores = model.logits(hidden)
        return {"waits": watch.waits, "flops": watch.flops, "devices": [scores.device.type]}


def report(names: list[str]) -> dict[str, Any]:
    """Walk through all presets, or the named ones."""
    found: dict[str, Any] = {}
    for name, entry in catalog.MODELS.items():
        for preset in entry.presets:
            if names and preset not in names:
                continue
            walks = {"train": train} | ({"step": decode} if entry.model.has_target else {})
            for kind, walk in walks.items():
                try:
                    found[f"{name}/{preset}/{kind}"] = walk(preset)
                except Exception as error:
                    found[f"{name}/{preset}/{kind}"] = {"error": f"{type(error).__name__}: {error}"[:600], "at": traceback.format_exc()[-700:]}
    return found
