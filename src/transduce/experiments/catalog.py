"""The claims by name. Each is a module of its own with a function `measure`, loaded when it is asked for."""

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
    "norms": "LayerNorm, BatchNorm and InstanceNorm on padded batches: what changes a sentence besides itself.",
    "positions": "Sinusoidal and learned positions beyond the training length, 100 to 200 tokens.",
    "scaling": "With and without the division by √d_k: scores, softmax, gradients.",
    "teacher-forcing": "Taught with true tokens, used with its own: errors by position.",
    "heads": "One head against many of the same width, on a task that needs attention to two positions.",
    "head-roles": "What each head attends to: the token before, the first, the same word, far away; also of a --model.",
    "memory": "Keys and values against context, beside a recurrent state.",
}
"""The claims and one line on each; `head-roles` would be in the module `head_roles`."""


class Measure(Protocol):
    """Measures one claim; everything random follows from the seed."""

    def __call__(self, seed: int, report: Report) -> Finding: ...


def _module(name: str) -> ModuleType:
    """Import the module that measures a claim, which has its name; only `memory` is in decoder_memory.py."""
    stem = "decoder_memory" if name == "memory" else name.replace("-", "_")
    return importlib.import_module(f"transduce.experiments.{stem}")


def find(name: str) -> Measure:
    """Return what measures a claim."""
    if name not in CLAIMS:
        raise SettingsError(f"unknown claim '{name}'{suggestion(name, CLAIMS)}")
    module = _module(name)
    return cast(Measure, module.measure)


def find_for_model(name: str, given: Given) -> Measure:
    """Return what measures a claim on a given model, where there is such a thing."""
    find(name)
    module = _module(name)
    if not hasattr(module, "measure_model"):
        raise SettingsError(f"'{name}' is measured on models of its own; leave out --model, or choose head-roles")
    return lambda seed, report: cast(Finding, module.measure_model(given, report))


def reproduce(
    name: str,
    seed: int = 1,
    threads: int = 1,
    report: Report = silent,
    given: Given | None = None,
) -> Finding:
    """Measure a claim with so many threads, and leave the process's own number of them as it was found.

    With one thread the numbers are the same each time, but for those that are times. `given` is a model to measure it
    on instead of on models of its own.
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
