"""Loads a model folder for a server: the runner of its task, and what the server tells about it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import torch

from transduce.config import Table
from transduce.errors import SettingsError
from transduce.inference.ctranslate2.engine import Parallelism
from transduce.inference.generator import Generator
from transduce.inference.load import load
from transduce.inference.padding import source_batch
from transduce.inference.text_encoder import TextEncoder
from transduce.inference.translator import Translator
from transduce.inspection.cost import size, tensors
from transduce.models.interface import AnyTransducer, move
from transduce.serving.job import ModelInfo, Task
from transduce.serving.process import EngineSettings
from transduce.serving.runner import EncoderRunner, GeneratorRunner, Runner, TranslatorRunner
from transduce.serving.scheduler import Capacity
from transduce.serving.studio.inspector import CHECKPOINT_BYTES, Loaded, LoadedCheckpoints
from transduce.serving.studio.runs import run_of
from transduce.text.tokenizer.special import Specials

BASE_BYTES = 400 << 20
"""What the process needs besides the model: Python, PyTorch and its buffers."""
JOB_BYTES = 1 << 20
"""What one job needs besides its search: its thread, its text and its answer."""
INSPECTION_BYTES = 128 << 20
"""What one view of the studio needs; one is computed at a time."""
SAMPLED = 32
"""Tokens of source and target from which the size of a decoding state is measured."""


def load_runner(settings: EngineSettings) -> tuple[Runner, ModelInfo]:
    """Load a model folder and start its schedulers; raises TransduceError."""
    torch.set_num_threads(settings.threads)
    loaded = load(settings.folder)
    if settings.engine == "ctranslate2" and not isinstance(loaded, Translator):
        raise SettingsError(f"{settings.folder}: CTranslate2 serves translation models only; use --engine torch")
    device = move(loaded.model, settings.device)
    if device != "cpu" and settings.precision == "int8":
        raise SettingsError(f"--precision int8 needs a CPU, and the model is on {device}; leave out one of them")
    if isinstance(loaded, Translator):
        loaded.engine.set_parallelism(Parallelism(settings.threads))
        loaded.use(settings.engine, settings.precision)
        loaded.engine.load()
    elif settings.precision == "int8":
        loaded.model.freeze("int8")
    runner = _runner(loaded, _capacity(settings), LoadedCheckpoints(Path(settings.folder)))
    return runner, replace(_info(settings, loaded), inspection=runner.inspector.describe())


def _capacity(settings: EngineSettings) -> Capacity:
    """What the schedulers hold."""
    return Capacity(settings.max_active_rows, max_queue_tokens=settings.max_queue_tokens, threads=settings.threads)


def _runner(loaded: Loaded, capacity: Capacity, checkpoints: LoadedCheckpoints) -> Runner:
    if isinstance(loaded, Translator):
        return TranslatorRunner(loaded, capacity, checkpoints)
    if isinstance(loaded, Generator):
        return GeneratorRunner(loaded, capacity, checkpoints)
    return EncoderRunner(loaded, capacity, checkpoints)


def _info(settings: EngineSettings, loaded: Loaded) -> ModelInfo:
    model = loaded.model
    task: Task = "text_encoding"
    engine, languages, specials = "torch", {}, None
    if isinstance(loaded, Translator):
        task, languages, specials = "translation", _languages(loaded), loaded.source.specials
        engine = "ctranslate2" if loaded.engine.has_ctranslate2 else "torch"
    elif isinstance(loaded, Generator):
        task, specials = "language_modeling", loaded.tokenizer.specials
    state = 0 if specials is None else state_bytes(cast("AnyTransducer", model), specials)
    weights = size(model.parameters())
    return ModelInfo(
        name=settings.name,
        task=task,
        engine=engine,
        precision=settings.precision,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        head=loaded.head if isinstance(loaded, TextEncoder) else None,
        architecture=type(model).__name__,
        max_source=model.max_source,
        max_target=getattr(model, "max_target", None),
        memory_bytes=_memory_bound(settings, weights, state, model.sizes.target),
        **languages,
    )


def _languages(translator: Translator) -> Table:
    """The languages of a translator, as fields of ModelInfo."""
    known = translator.languages
    sources = known.tags.source_tokens if known.tags is not None else {}
    targets = known.tags.target_tokens if known.tags is not None else {}
    return {
        "source_languages": tuple(sources) or tuple(filter(None, [known.source])),
        "target_languages": tuple(targets) or tuple(filter(None, [known.target])),
        "default_source": known.source,
        "default_target": known.target,
    }


@torch.inference_mode()
def state_bytes(model: AnyTransducer, specials: Specials) -> int:
    """Bytes of a decoding state for each token of source and target, measured."""
    read, written = (
        SAMPLED if limit is None else min(SAMPLED, limit - 1) for limit in (model.max_source, model.max_target)
    )
    if model.image_size is not None:
        read = model.image_size**2
    state = model.start(model.encode(*source_batch([[specials.start] * read], specials, model.device)), 1)
    tokens = torch.full((1, written), specials.start, device=model.device)
    _, state = model.extend(tokens, torch.full((1,), written, device=model.device), state)
    return size(tensors(state)) // (read + 1 + written)


def _memory_bound(settings: EngineSettings, weights: int, state: int, vocabulary: int) -> int:
    """Bytes that the process may need: everything that grows with requests is bounded by the capacity."""
    packed = weights if settings.precision == "float32" else weights // 4
    capacity = _capacity(settings)
    caches = 2 * capacity.max_tokens * state  # selecting rows makes a copy
    scores = 4 * 4 * capacity.max_rows * vocabulary
    run = run_of(Path(settings.folder))
    checkpoints = 0 if run is None else 2 * max(weights, CHECKPOINT_BYTES)  # with packed weights
    inspected = checkpoints + INSPECTION_BYTES
    return BASE_BYTES + weights + packed + caches + scores + inspected + JOB_BYTES * settings.max_requests
