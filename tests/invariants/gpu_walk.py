"""A training step and a decoding step of the models of the catalog on the stand-in GPU."""

from __future__ import annotations

import traceback
from typing import Any

import numpy as np
import torch

from tests.invariants.stand_in_gpu import NAME, device
from transduce.data.batching import Batch, PairBatch
from transduce.models import catalog, rnn
from transduce.models.interface import EncoderModel, Model, VocabularySizes
from transduce.nn.cpu import cross_entropy
from transduce.tasks.text_encoding.batches import EncoderBatch, encoder_loss
from transduce.tasks.transducer import transducer_loss
from transduce.training import step
from transduce.training.config import TrainingConfig
from transduce.training.step import TrainStep
from transduce.training.update import HostUpdate

VOCABULARY = 2048
TRAINING: dict[str, Any] = {"precision": "bfloat16", "max_grad_norm": 1.0, "optimizer": "adamw", "threads": 1}
HEADED = ("bert", "universal_encoder", "neural_gpu")
"""Text encoders, which need a head to be trained."""
DEEP = ("transformer", "gpt", "t5", "bert")
"""Models whose layers are alike: one is walked through, but where FLOPs are counted."""
EXCEPTIONS = {
    "rnn": "packed sequences need their lengths on the CPU: `encode` waits once; walked without padding",
    "memory_network": "only tokens that have a slot are looked up: a micro-batch waits twice; not walked",
}
"""Models that ask for a value in a micro-batch, and why."""


def build(preset: str, vocabulary: int = VOCABULARY, **changes: Any) -> Model:
    """A model of a preset with its weights on the stand-in."""
    name, config = catalog.preset(preset)
    if name in HEADED:
        changes = {"head": "tags", **changes}
    if getattr(config, "cell", None) == "gru":  # the stand-in knows no fused GRU
        changes = {"cell": "lstm", **changes}
    if name in DEEP and not vocabulary > VOCABULARY:
        changes = {"num_layers": 1, **changes}
    return catalog.build(config.but(**changes), VocabularySizes(vocabulary, vocabulary))


def pairs(rows: int, source: int, target: int) -> PairBatch:
    """Pairs of one length, with nothing to be known about padding."""
    return PairBatch(
        source=torch.ones(rows, source, dtype=torch.long),
        source_allowed=torch.ones(rows, source, dtype=torch.bool),
        target=torch.ones(rows, target + 1, dtype=torch.long),
        target_lengths=torch.full((rows,), target),
        num_target_tokens=rows * target,
        num_picked=np.full(rows, target),
        rows=np.arange(rows),
    )


def texts(rows: int, length: int) -> EncoderBatch:
    """Texts of which three tokens each have a label."""
    return EncoderBatch(
        tokens=torch.ones(rows, length, dtype=torch.long),
        allowed=torch.ones(rows, length, dtype=torch.bool),
        segments=torch.zeros(rows, length, dtype=torch.long),
        labels=torch.ones(rows, length, dtype=torch.long),
        num_target_tokens=rows * 3,
        num_picked=np.full(rows, 3),
        num_rows=rows,
        rows=np.arange(rows),
    )


def batch_for(model: Model, rows: int, length: int) -> Batch:
    """A batch of what the model reads."""
    if isinstance(model, EncoderModel):
        return texts(rows, length)
    side = model.image_size
    return pairs(rows, side * side if side else length if model.has_source else 0, length)


def train(preset: str, rows: int = 4, length: int = 6, model: dict[str, Any] | None = None, **changes: Any) -> Any:
    """Two updates, the second of two micro-batches: what it made the host wait for, and its FLOPs by dtype."""
    with device() as watch:
        made = build(preset, **(model or {}))
        loss = encoder_loss if isinstance(made, EncoderModel) else transducer_loss
        train_step = TrainStep(made, loss, TrainingConfig(**{**TRAINING, **changes}))
        assert train_step.device.type == NAME
        batch = batch_for(made, rows, length)
        train_step.run([batch], 1, 0.1, rows * batch.width)  # the optimizer's state and tables of positions are made
        watch.waits.clear()
        watch.flops.clear()
        result = train_step.run([batch], 2, 0.1, rows * batch.width // 2)
        devices = {parameter.grad.device.type for parameter in made.parameters() if parameter.grad is not None}
        devices |= {value.device.type for state in train_step.optimizer.state.values() for value in state.values()}
        return {"waits": watch.waits, "flops": watch.flops, "devices": sorted(devices), "result": type(result).__name__}


def decode(preset: str, rows: int = 4, length: int = 5) -> Any:
    """One decoding step with its scores, after a source was encoded and a first step made room."""
    with device() as watch, torch.no_grad():
        model: Any = build(preset).eval()
        batch = batch_for(model, rows, length)
        assert isinstance(batch, PairBatch)
        state = model.start(model.encode(batch.source, batch.source_allowed), 2)
        tokens = torch.ones(rows * 2, dtype=torch.long)
        _, state = model.step(tokens, state)
        watch.waits.clear()
        hidden, state = model.step(tokens, state)
        scores = model.logits(hidden)
        return {"waits": watch.waits, "flops": watch.flops, "devices": [scores.device.type]}


def report(names: list[str]) -> dict[str, Any]:
    """Walk through all presets, or the named ones."""
    rnn.is_full = lambda _: True  # type: ignore[assignment]  # see EXCEPTIONS
    found: dict[str, Any] = {}
    for name, entry in catalog.MODELS.items():
        for preset in entry.presets:
            if name == "memory_network" or (names and preset not in names):
                continue
            for kind, walk in {"train": train, **({"step": decode} if entry.model.has_target else {})}.items():
                try:
                    found[f"{preset} {kind}"] = walk(preset)
                except Exception:
                    found[f"{preset} {kind}"] = {"error": traceback.format_exc()[-900:]}
    return found


def control() -> dict[str, Any]:
    """What the walk must find: an output layer in float32, an update decided on the host, a tensor left on the CPU."""
    found: dict[str, Any] = {}
    right = cross_entropy._is_autocast
    cross_entropy._is_autocast = lambda _: False
    found["float32 loss"] = train("tiny")
    cross_entropy._is_autocast = right
    step.build_update, right = (
        (lambda model, optimizer, config, _: HostUpdate(model, optimizer, config)),
        step.build_update,
    )
    found["host update"] = train("tiny")
    step.build_update = right
    with device():
        try:
            torch.ones(3) + torch.ones(3, device="cpu")
        except Exception as error:
            found["other device"] = {"error": str(error)}
    return found


def flops(preset: str, rows: int = 64, length: int = 30, vocabulary: int = 37_000) -> Any:
    """FLOPs of a training step by dtype, at a realistic size."""
    return train(preset, rows, length, model={"vocabulary": vocabulary})["flops"]
