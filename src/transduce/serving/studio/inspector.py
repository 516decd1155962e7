"""Carries out the jobs of the studio with a loaded model, in the engine's process.

A pass is recorded by the search that all clients share. Views need a twin of the model, which is hooked: they are
computed one after the other, admitted by tokens as searches are, while the search goes on. Nothing is kept between two
jobs, so that every process of a model can answer, and one that ends loses nothing.
"""

from __future__ import annotations

import contextvars
import math
import secrets
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from torch import nn

from transduce.config import Config, Table
from transduce.errors import MissingInput, SettingsError
from transduce.inference.generator import Generator as TextGenerator
from transduce.inference.load import load
from transduce.inference.search.options import SearchOptions
from transduce.inference.text_encoder import TextEncoder
from transduce.inference.translator import Translator
from transduce.inspection.maps import Kind
from transduce.inspection.record import map_paths
from transduce.inspection.replay import DecodingStep
from transduce.model_folder import checkpoint_weights, put_weights
from transduce.nn.hook import hook_points
from transduce.serving.caller import results_of
from transduce.serving.job import InspectJob, RecordJob, Result
from transduce.serving.process import MAX_LINE
from transduce.serving.scheduler import Capacity
from transduce.serving.studio.requests import MAX_TOKENS
from transduce.serving.studio.runs import run_of
from transduce.serving.window_scheduler import WindowScheduler
from transduce.storage.checkpoints import SavedCheckpoints

KINDS: tuple[Kind, ...] = ("encoder", "decoder", "cross", "causal")
TOP = 8
"""Likeliest tokens of each step of a pass."""
CHECKPOINT_BYTES = 1 << 28
"""Weights of checkpoints that are kept in memory; the one in use is kept in any case."""

Loaded = Translator | TextGenerator | TextEncoder
LoadedT = TypeVar("LoadedT", bound=Translator | TextGenerator | TextEncoder)
T = TypeVar("T")


class LoadedCheckpoints:
    """Models with the weights of a run's checkpoints; those used last stay in memory, bounded by bytes."""

    def __init__(self, folder: Path | None) -> None:
        """`folder` is that of the run or model; a model alone has no checkpoints."""
        self._folder = folder
        self._models: OrderedDict[int, Loaded] = OrderedDict()

    def load(self, update: int) -> Loaded:
        """Return the model at an update; raises MissingInput and ModelFolderError."""
        if update not in self._models:
            self._models[update] = self._read(update)
        self._models.move_to_end(update)
        size = sum(weight.nbytes for weight in self._models[update].model.parameters())
        while len(self._models) > max(1, CHECKPOINT_BYTES // max(1, size)):
            self._models.popitem(last=False)
        return self._models[update]

    def _read(self, update: int) -> Loaded:
        run = run_of(self._folder)
        if run is None or update not in SavedCheckpoints(run).updates():
            raise MissingInput(f"the run has no checkpoint of update {update:,} any more; choose another")
        loaded = load(run)
        put_weights(loaded.model, checkpoint_weights(run, update), SavedCheckpoints(run).path(update))
        if not isinstance(loaded, TextEncoder):
            loaded.model.freeze()  # packed weights are copies of those before
        if isinstance(loaded, Translator):
            loaded.images = None
        return loaded


@dataclass(frozen=True, eq=False)
class InspectionWork:
    """Something to compute on a twin, and the tokens that it reads and writes."""

    tokens: int
    compute: Callable[[], Any]


class Inspector(ABC, Generic[LoadedT]):
    """Records passes of one model and computes views of them."""

    def __init__(self, loaded: LoadedT, capacity: Capacity, checkpoints: LoadedCheckpoints | None = None) -> None:
        self._loaded, self._checkpoints = loaded, checkpoints or LoadedCheckpoints(None)
        self.scheduler: WindowScheduler[InspectionWork] = WindowScheduler(
            lambda works: [work.compute() for work in works],
            cost=lambda work: work.tokens,
            kind=id,  # one at a time
            tokens=lambda work, _: (work.tokens, 0),
            capacity=capacity,
        )

    @abstractmethod
    def record(self, job: RecordJob) -> Result:
        """Record a pass."""

    @abstractmethod
    def stream(self, job: RecordJob) -> Generator[str, None, Result]:
        """Record the passes of a text and yield events of the studio as JSON; returns the whole text."""

    @abstractmethod
    def inspect(self, job: InspectJob) -> Result:
        """Compute a view."""

    @abstractmethod
    def describe(self) -> Table:
        """What the studio can show of this model, for `ModelInfo.inspection`."""

    def _admitted(self, tokens: int, compute: Callable[[], T]) -> T:
        """Compute something on a twin when it is this caller's turn."""
        context = contextvars.copy_context()
        found: T = results_of(self.scheduler, [InspectionWork(tokens, lambda: context.run(compute))])[0]
        return found

    def _model(self, job: RecordJob) -> LoadedT:
        """The model, or the one with the weights of a checkpoint."""
        if job.checkpoint is None:
            return self._loaded
        found = self._checkpoints.load(job.checkpoint)
        assert isinstance(found, type(self._loaded))
        return found


def check_length(tokens: int) -> None:
    """Reject a text that is too long to be recorded."""
    if tokens > MAX_TOKENS:
        raise SettingsError(f"the text has {tokens:,} tokens; the studio records at most {MAX_TOKENS:,}; shorten it")


def with_seed(search: Table, options: SearchOptions) -> Table:
    """Return search options of a pass; those of a sample get a seed, so that it can be repeated."""
    if options.method != "sample" or options.seed is not None:
        return search
    return {**search, "seed": secrets.randbits(31)}


def settings_of(model: nn.Module) -> Table:
    """The settings of a model, where it keeps them."""
    config = getattr(model, "config", None)
    return config.to_table() if isinstance(config, Config) else {}


def kinds_of(model: nn.Module) -> Table:
    """The number of layers and heads of each kind of attention map that a model has."""
    found: Table = {}
    for kind in KINDS:
        paths = map_paths(model, kind)
        if paths:
            attention: Any = model.get_submodule(paths[0].rpartition(".")[0])
            heads = getattr(getattr(attention, "shape", None), "num_heads", 1)
            found[kind] = {"layers": len(paths), "heads": heads}
    return found


def feed_forward_of(model: nn.Module) -> dict[str, int]:
    """The number of feed-forward networks of each stack."""
    found: dict[str, int] = {}
    for point in hook_points(model, ("output",), "feed_forward"):
        stack = point.partition(".")[0]
        found[stack] = found.get(stack, 0) + 1
    return found


def check_array(heads: int, rows: int, columns: int) -> None:
    """Reject an attention layer that does not fit into one message: 16 bits each, in base64."""
    if heads * rows * columns * 8 // 3 > MAX_LINE - (1 << 16):
        longest = math.isqrt((MAX_LINE - (1 << 16)) * 3 // 8 // heads)
        raise SettingsError(
            f"the attention of a layer has {heads} × {rows:,} × {columns:,} weights, too many to be sent; "
            f"shorten the text to about {longest:,} tokens"
        )


def steps_json(steps: Sequence[DecodingStep]) -> list[Table]:
    """Next-token distributions; `probability`, `log_probability` and `rank` are null where no token followed."""
    return [_step_json(step) for step in steps]


def _step_json(step: DecodingStep) -> Table:
    best, chosen = step.top[0], step.chosen
    log_probability = None
    if chosen is not None:  # by logits: the probability itself may be too small for a number of 32 bits
        log_probability = chosen.logit - best.logit + math.log(best.probability)
    return {
        "position": step.position,
        "token": None if chosen is None else chosen.token,
        "probability": None if chosen is None else chosen.probability,
        "log_probability": log_probability,
        "rank": step.rank,
        "entropy": step.entropy,
        "top": [{"token": one.token, "piece": one.piece, "probability": one.probability} for one in step.top],
    }


def attention_json(model: nn.Module, names: dict[str, tuple[Sequence[str], Sequence[str]]]) -> Table:
    """The attention maps that a pass has; `names` are the pieces of rows and columns, by kind."""
    return {
        kind: {**sizes, "rows": list(names[kind][0]), "columns": list(names[kind][1])}
        for kind, sizes in kinds_of(model).items()
        if kind in names
    }
