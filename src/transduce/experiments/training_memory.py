"""Memory of training: activations by layer, gradient checkpointing, and gradient accumulation.

The backward pass needs the activations of the forward pass. Checkpointing stores the inputs of each block only and
computes the rest again (Chen et al. 2016); accumulation sums the gradients of micro-batches. Peaks are measured over
the tensors of one forward and backward pass, and compared with what autograd is known to save.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from transduce.experiments.finding import Chart, ClaimCheck, Finding, Report, Series, shortest_times, silent
from transduce.inspection.cost import kept_for_backward, tensors
from transduce.models.catalog import build
from transduce.models.gpt import GptConfig
from transduce.models.interface import LanguageModel, State, VocabularySizes
from transduce.rng import torch_generator

FLOAT = 4
"""Bytes per value."""
CLOSE = 0.25
"""Relative difference allowed between a measured peak and the computed one, which leaves out temporary values."""
SAME = 1e-4
"""Relative difference allowed between gradients."""
MODES = ("plain", "checkpointing", "accumulation", "both")


@dataclass(frozen=True)
class TrainingMemorySetting:
    """Sizes of the models and of a batch."""

    width: int = 128
    num_heads: int = 4
    vocabulary: int = 64
    layers: tuple[int, ...] = (2, 4, 8)
    """Numbers of layers, in rising order."""
    rows: int = 16
    length: int = 128
    micro_batches: int = 4
    """A batch is divided into so many for accumulation; divides `rows`."""
    repeats: int = 3
    """Timed rounds."""


DEFAULT = TrainingMemorySetting()


class PassCost(NamedTuple):
    """One forward and backward pass."""

    peak: int
    """Bytes at the peak, above what the model, its gradients and the batch take."""
    computed: int
    """Bytes of activations that are kept at once."""
    seconds: float
    difference: float
    """Largest difference of a gradient from that of the plain pass, relative to the largest gradient."""


class Passes:
    """The passes of one model over one batch, in every mode."""

    def __init__(self, num_layers: int, setting: TrainingMemorySetting, seed: int) -> None:
        config = GptConfig(
            model_dim=setting.width,
            num_heads=setting.num_heads,
            ffn_dim=4 * setting.width,
            num_layers=num_layers,
            positions="rotary",
            dropout=0.0,
        )
        sizes = VocabularySizes(setting.vocabulary, setting.vocabulary)
        self.model = cast("LanguageModel[State]", build(config, sizes, seed)).train()
        self.setting, self.num_layers = setting, num_layers
        shape = (setting.rows, setting.length + 1)
        self.token_BN = torch.randint(setting.vocabulary, shape, generator=torch_generator(seed))

    def run(self, mode: str) -> None:
        """Add the gradients of the batch to those of the model."""
        self.model.gradient_checkpointing = mode in ("checkpointing", "both")
        parts = self.setting.micro_batches if mode in ("accumulation", "both") else 1
        for part_BN in self.token_BN.chunk(parts):
            (self.loss(part_BN) / parts).backward()  # type: ignore[no-untyped-call]

    def loss(self, tokens: Tensor) -> Tensor:
        """Return the loss of the next tokens.  (B N + 1)."""
        nothing = tokens[:, :0]
        hidden_BND = self.model(tokens[:, :-1], self.model.encode(nothing, nothing.bool()))
        return F.cross_entropy(self.model.logits(hidden_BND).flatten(0, 1), tokens[:, 1:].flatten())

    def gradients(self, mode: str) -> Tensor:
        """Return the gradients of one pass as one vector."""
        for weight in self.model.parameters():
            weight.grad = torch.zeros_like(weight)
        self.run(mode)
        return torch.cat([cast(Tensor, weight.grad).flatten() for weight in self.model.parameters()])

    def kept(self, rows: int) -> int:
        """Return the bytes that autograd saves for so many rows, without checkpointing."""
        self.model.gradient_checkpointing = False
        with kept_for_backward(self.model) as kept:
            self.loss(self.token_BN[:rows])
        return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


class Allocations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of tensors that are alive, and their peak; what an operation frees inside itself is not seen."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.held = self.peak = 0
        self.storages: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {tensor.untyped_storage()._cdata for tensor in tensors([*args, *(kwargs or {}).values()])}
        outcome = func(*args, **(kwargs or {}))
        for tensor in tensors(outcome):
            storage = tensor.untyped_storage()
            if storage._cdata not in self.storages | given:
                self.storages.add(storage._cdata)
                self.held += storage.nbytes()
                weakref.finalize(storage, self._freed, storage._cdata, storage.nbytes())
        self.peak = max(self.peak, self.held)
        return outcome

    def _freed(self, storage: int, size: int) -> None:
        self.storages.discard(storage)
        self.held -= size


def peak_bytes(work: Callable[[], object]) -> int:
    """Return how much more memory the tensors take at the peak of a work than before it."""
    with Allocations() as allocations:
        work()
    return int(allocations.peak)


def computed_bytes(passes: Passes, deeper: Passes, mode: str) -> int:
    """Return the activations kept at once: of all layers, or the layers' inputs and one layer.

    One layer is the difference between two models, divided by the layers that one has more.
    """
    setting = passes.setting
    rows = setting.rows // (setting.micro_batches if mode in ("accumulation", "both") else 1)
    whole = passes.kept(rows)
    if mode in ("plain", "accumulation"):
        return whole
    layer = (deeper.kept(rows) - whole) // (deeper.num_layers - passes.num_layers)
    inputs = passes.num_layers * rows * setting.length * setting.width * FLOAT
    return whole - (passes.num_layers - 1) * layer + inputs


def measure(seed: int = 1, report: Report = silent, setting: TrainingMemorySetting = DEFAULT) -> Finding:
    """Measure a pass of every depth in every mode."""
    found: dict[tuple[int, str], PassCost] = {}
    for layers in setting.layers:
        report("layers", layers)
        found |= {(layers, mode): cost for mode, cost in costs(layers, setting, seed).items()}
    return Finding(
        title="Memory of training",
        claim="training stores the activations of every layer; checkpointing stores one layer's and the inputs of the "
        "others for a third more time, and accumulation divides all of it, without changing the gradients.",
        setting={
            "width": setting.width,
            "rows": setting.rows,
            "length": setting.length,
            "micro-batches": setting.micro_batches,
        },
        columns=("layers", "mode", "peak, MiB", "computed, MiB", "time, × plain", "difference of gradients"),
        rows=tuple(
            (
                *(layers, mode, cost.peak / 2**20, cost.computed / 2**20),
                *(cost.seconds / found[layers, "plain"].seconds, cost.difference),
            )
            for (layers, mode), cost in found.items()
        ),
        charts=(
            Chart(
                "Peak of one forward and backward pass",
                "layers",
                "MiB",
                tuple(
                    Series(
                        mode,
                        tuple(map(float, setting.layers)),
                        tuple(found[layers, mode].peak / 2**20 for layers in setting.layers),
                    )
                    for mode in MODES
                ),
            ),
        ),
        checks=checks(setting, found),
    )


def costs(layers: int, setting: TrainingMemorySetting, seed: int) -> dict[str, PassCost]:
    """Return the costs of a pass of one depth by mode, timed in turn."""
    passes, deeper = Passes(layers, setting, seed), Passes(layers + 1, setting, seed)
    plain = passes.gradients("plain")
    difference = {mode: ((passes.gradients(mode) - plain).abs().max() / plain.abs().max()).item() for mode in MODES}
    seconds = shortest_times({mode: lambda mode=mode: passes.run(mode) for mode in MODES}, setting.repeats)  # type: ignore[misc]
    return {
        mode: PassCost(
            peak_bytes(lambda mode=mode: passes.run(mode)),  # type: ignore[misc]
            computed_bytes(passes, deeper, mode),
            seconds[mode],
            difference[mode],
        )
        for mode in MODES
    }


def checks(setting: TrainingMemorySetting, found: Mapping[tuple[int, str], PassCost]) -> tuple[ClaimCheck, ...]:
    """Check the claim on peaks, times and gradients."""
    first, last = setting.layers[0], setting.layers[-1]
    plain, checkpointing, accumulation, both = (found[last, mode] for mode in MODES)
    growth = plain.peak / found[first, "plain"].peak
    off = max(abs(cost.peak / cost.computed - 1) for (layers, mode), cost in found.items() if mode == "plain")
    off_saved = max(abs(cost.peak / cost.computed - 1) for (_, mode), cost in found.items() if mode != "plain")
    changed = max(cost.difference for cost in found.values())
    return (
        ClaimCheck(
            f"from {first} to {last} layers, × {last / first:g}, the peak grows × {growth:.1f}",
            growth > 0.8 * last / first,
        ),
        ClaimCheck(f"it is what autograd saves (within {off:.0%})", off < CLOSE),
        ClaimCheck(f"with checkpointing and accumulation, too (within {off_saved:.0%})", off_saved < CLOSE),
        ClaimCheck(
            f"at {last} layers checkpointing needs {checkpointing.peak / plain.peak:.0%} of the memory, "
            f"{setting.micro_batches} micro-batches {accumulation.peak / plain.peak:.0%}, "
            f"both {both.peak / plain.peak:.0%}",
            both.peak < min(checkpointing.peak, accumulation.peak) and checkpointing.peak < plain.peak / 2,
        ),
        ClaimCheck(
            "checkpointing takes about a third more time "
            f"(× {checkpointing.seconds / plain.seconds:.2f} at {last} layers)",
            checkpointing.seconds < 1.45 * plain.seconds,
        ),
        ClaimCheck(
            f"accumulation takes no more time (× {accumulation.seconds / plain.seconds:.2f})",
            accumulation.seconds < 1.1 * plain.seconds,
        ),
        ClaimCheck(f"gradients are the same (within {changed:.1g})", changed < SAME),
    )
