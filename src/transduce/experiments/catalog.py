"""The claims by name. Each has a module with a function `measure`, imported on demand."""

from __future__ import annotations

import importlib
from dataclasses import replace
from types import ModuleType
from typing import Protocol, cast

from transduce.errors import SettingsError, suggestion
from transduce.experiments.finding import Finding, Given, Report, silent

CLAIMS = {
    "gradients": "Gradients through time: recurrent networks, gates, attention, by distance.",
    "complexity": "Operations, time and path length of each kind of layer, against length and width.",
    "norms": "LayerNorm, BatchNorm and InstanceNorm on padded batches: the influence of neighbours and padding.",
    "positions": "Sinusoidal and learned positions beyond the training length, 100 to 200 tokens.",
    "scaling": "With and without the division by √d_k: scores, softmax, gradients.",
    "teacher-forcing": "Trained on true tokens, decoding from its own: errors by position.",
    "heads": "One head against many of the same width, on a task that needs attention to two positions.",
    "head-roles": "What each head attends to: the token before, the first, the same word, far away; also of a --model.",
    "memory": "Size of the key-value cache against context length, compared with a recurrent state.",
}
"""One line per claim; `head-roles` is in the module `head_roles`."""


class Measure(Protocol):
    """Measures one claim; everything random follows from the seed."""

    def __call__(self, seed: int, report: Report) -> Finding: ...


def _module(name: str) -> ModuleType:
    """Import the module of a claim. It has the name of the claim, except that `memory` is in decoder_memory.py."""
    stem = "decoder_memory" if name == "memory" else name.replace("-", "_")
    return importlib.import_module(f"transduce.experiments.{stem}")


def find(name: str) -> Measure:
    """Return the function that measures a claim."""
    if name not in CLAIMS:
        raise SettingsError(f"unknown claim '{name}'{suggestion(name, CLAIMS)}")
    module = _module(name)
    return cast(Measure, module.measure)


def find_for_model(name: str, given: Given) -> Measure:
    """Return the function that measures a claim on a given model; raise if the claim has none."""
    find(name)
    module = _module(name)
    if not hasattr(module, "measure_model"):
        raise SettingsError(f"'{name}' trains its own models; leave out --model, or choose head-roles")
    return lambda seed, report: cast(Finding, module.measure_model(given, report))


def reproduce(
    name: str,
    seed: int = 1,
    threads: int = 1,
    report: Report = silent,
    given: Given | None = None,
) -> Finding:
    """Measure a claim with this number of threads, and restore the previous number afterwards.

    With one thread all numbers except times are reproducible. `given` is an existing model to measure, instead of
    models trained for the claim.
    """
    measure = find(name) if given is None else find_for_model(name, given)
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        finding = measure(seed=seed, report=report)
    finally:
        torch.set_num_threads(before)
    return replace(finding, setting={**finding.setting, "seed": seed, "threads": threads})
