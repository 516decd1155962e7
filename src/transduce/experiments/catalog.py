"""The experiments by name: claims that take seconds, and studies that train many models. Imported on demand."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Protocol, cast

from transduce.errors import SettingsError, suggestion
from transduce.experiments.finding import Conditions, Finding, Report


@dataclass(frozen=True)
class Experiment:
    """One entry of the catalog."""

    line: str
    """What it measures, for the list of experiments."""
    module: str
    """Module in this package. A claim has `measure(seed, report)`, a study `run(conditions)`; an experiment that
    can take an existing model also has `measure_model(given, report)`."""
    is_study: bool = False
    """A study trains many models: its runs are kept in a folder, and interrupted ones are resumed."""
    has_quick: bool = False
    """The study has a form that takes minutes, on smaller models and less data."""
    takes_data: bool = False
    """The study can use a corpus from a folder instead of its default data."""


EXPERIMENTS = {
    "gradients": Experiment("Gradients through time: recurrent networks, gates, attention, by distance.", "gradients"),
    "complexity": Experiment(
        "Operations, time and path length of each kind of layer, against length and width.", "complexity"
    ),
    "norms": Experiment(
        "LayerNorm, BatchNorm and InstanceNorm on padded batches: the influence of neighbours and padding.", "norms"
    ),
    "positions": Experiment(
        "Sinusoidal and learned positions beyond the training length, 100 to 200 tokens.", "positions"
    ),
    "scaling": Experiment("With and without the division by √d_k: scores, softmax, gradients.", "scaling"),
    "teacher-forcing": Experiment(
        "Trained on true tokens, decoding from its own: errors by position.", "teacher_forcing"
    ),
    "heads": Experiment(
        "One head against many of the same width, on a task that needs attention to two positions.", "heads"
    ),
    "head-roles": Experiment(
        "What each head attends to: the token before, the first, the same word, far away; also of a --model.",
        "head_roles",
    ),
    "memory": Experiment(
        "Size of the key-value cache against context length, compared with a recurrent state.", "decoder_memory"
    ),
    "decoding": Experiment(
        "Prefill against decode, time per token with and without the key-value cache, cost of context.", "decoding"
    ),
    "batching": Experiment("Throughput against latency while decoding, by batch size and context.", "batching"),
    "tokenization": Experiment(
        "Characters, bytes and BPE of several sizes: length, vocabulary, bits per character, speed.", "tokenization"
    ),
    "quantization": Experiment(
        "Weights in int8 and fewer bits: size, speed, and what a language model loses.", "quantization"
    ),
    "bottleneck": Experiment(
        "One vector against attention in recurrent translators: BLEU by sentence length.", "bottleneck"
    ),
    "label-smoothing": Experiment(
        "With and without label smoothing: perplexity, BLEU, accuracy, confidence.", "label_smoothing"
    ),
    "warmup": Experiment(
        "Learning rates with and without warm-up: post-norm and pre-norm Transformers, ConvS2S.", "warmup"
    ),
    "efficient-attention": Experiment(
        "What windowed, strided, low-rank, linear, Performer and hashed attention lose on three tasks.",
        "efficient_attention",
    ),
    "ambiguity": Experiment(
        "Generated sentences with ambiguous words: which head resolves them, found by ablation.", "ambiguity"
    ),
    "training-memory": Experiment(
        "Activations by layer, gradient checkpointing and accumulation: peak memory and time.", "training_memory"
    ),
    "table-2": Experiment(
        "Table 2 of the paper in small: every translator with the same counted operations of training.",
        "table_2",
        is_study=True,
        has_quick=True,
        takes_data=True,
    ),
    "table-3": Experiment(
        "Table 3 of the paper in small: heads, key size, depth, width, dropout, smoothing, learned positions.",
        "table_3",
        is_study=True,
        has_quick=True,
        takes_data=True,
    ),
    "table-4": Experiment(
        "Table 4 of the paper in small: parsing as translation into brackets, Transformer against RNN with attention.",
        "table_4",
        is_study=True,
        has_quick=True,
        takes_data=True,
    ),
    "long-clause": Experiment(
        "A deciding word n words back: RNN, LSTM, GRU and Transformer, accuracy and gradients by distance.",
        "long_clause",
        is_study=True,
        has_quick=True,
    ),
}


class Measure(Protocol):
    """Measures one claim; everything random follows from the seed."""

    def __call__(self, seed: int, report: Report) -> Finding: ...


def find(name: str) -> Experiment:
    """Return the experiment of this name."""
    if name not in EXPERIMENTS:
        raise SettingsError(f"unknown experiment '{name}'{suggestion(name, EXPERIMENTS)}")
    return EXPERIMENTS[name]


def module_of(experiment: Experiment) -> ModuleType:
    """Import the module that carries the experiment out."""
    return importlib.import_module(f"transduce.experiments.{experiment.module}")


def check(name: str, conditions: Conditions) -> None:
    """Raise if the experiment would ignore one of the conditions."""
    experiment = find(name)
    if conditions.given is not None and not hasattr(module_of(experiment), "measure_model"):
        raise SettingsError(f"'{name}' trains its own models; leave out --model, or choose head-roles")
    if conditions.quick and not experiment.has_quick:
        raise SettingsError(f"'{name}' has no quick form; leave out --quick")
    if conditions.data is not None and not experiment.takes_data:
        raise SettingsError(f"'{name}' makes its own data; leave out --data")


def reproduce(name: str, conditions: Conditions | None = None) -> Finding:
    """Carry out an experiment with the given number of threads, and restore the previous number afterwards.

    With one thread all numbers except times are reproducible.
    """
    conditions = conditions or Conditions()
    check(name, conditions)
    experiment, seed, threads = find(name), conditions.seed, conditions.threads
    module = module_of(experiment)
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        if conditions.given is not None:
            finding = cast(Finding, module.measure_model(conditions.given, conditions.report))
        elif experiment.is_study:
            finding = cast(Finding, module.run(conditions))
        else:
            finding = cast(Measure, module.measure)(seed=seed, report=conditions.report)
    finally:
        torch.set_num_threads(before)
    return replace(finding, setting={**finding.setting, "seed": seed, "threads": threads})
