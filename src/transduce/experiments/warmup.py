"""Robustness of training: which learning rates a model bears, with and without warm-up.

Post-norm and pre-norm Transformers and ConvS2S, of similar size, learn to reverse short sequences at every learning
rate of a grid. With warm-up the rate rises linearly over the first updates; both schedules then keep it constant until
a linear decay at the end, so that they differ in the beginning only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from transduce.config import Config
from transduce.experiments.finding import Chart, ClaimCheck, Finding, Report, Series, fit, silent
from transduce.experiments.pairs import batch_of, build_translator, greedy, loss, random_rows, share_correct
from transduce.models.ancestors.conv_seq2seq import ConvSeq2SeqConfig
from transduce.models.transformer import TransformerConfig
from transduce.rng import torch_generator

LEARNED = 0.9
"""Share of correct symbols from which on a run has learned the task."""
POST, PRE, CONVOLUTION = "Transformer, post-norm", "Transformer, pre-norm", "ConvS2S"


@dataclass(frozen=True)
class WarmupSetting:
    """The grid, and sizes of models and task."""

    rates: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03)
    """Learning rates in rising order."""
    warmup: int = 60
    """Updates of the warm-up."""
    updates: int = 240
    width: int = 32
    num_layers: int = 4
    symbols: int = 8
    length: int = 8
    batch: int = 32
    tested: int = 64
    tries: int = 1
    """Runs of each kind, with different seeds."""


DEFAULT = WarmupSetting()
Place = tuple[str, bool, float]
"""(model, with warm-up, learning rate)."""


def configs(setting: WarmupSetting) -> dict[str, Config]:
    """Return the models by name."""
    post = TransformerConfig(
        model_dim=setting.width,
        num_heads=4,
        ffn_dim=4 * setting.width,
        num_layers=setting.num_layers,
        dropout=0.0,
    )
    convolution = ConvSeq2SeqConfig(
        embedding_dim=setting.width,
        hidden_dim=2 * setting.width,
        num_layers=setting.num_layers,
        max_positions=setting.length + 2,
        dropout=0.0,
    )
    return {POST: post, PRE: post.but(norm="pre"), CONVOLUTION: convolution}


def measure(seed: int = 1, report: Report = silent, setting: WarmupSetting = DEFAULT) -> Finding:
    """Train every model at every learning rate, with and without warm-up."""
    found = {
        (name, warm, rate): [
            accuracy((name, warm, rate), setting, seed + attempt, report) for attempt in range(setting.tries)
        ]
        for name in configs(setting)
        for warm in (False, True)
        for rate in setting.rates
    }
    mean = {place: sum(values) / len(values) for place, values in found.items()}
    kinds = [(name, warm) for name in configs(setting) for warm in (False, True)]
    return Finding(
        title="Learning rates and warm-up",
        claim="Transformers are less robust in training than convolutional networks: they need a warm-up, post-norm "
        "ones most of all.",
        setting={
            "layers": setting.num_layers,
            "width": setting.width,
            "updates": setting.updates,
            "warm-up": setting.warmup,
            "length": setting.length,
            "runs of each kind": setting.tries,
        },
        columns=("model", "warm-up", *(f"rate {rate:g}" for rate in setting.rates), "runs that learn"),
        rows=tuple(
            (
                *(name, "yes" if warm else "no", *(mean[name, warm, rate] for rate in setting.rates)),
                learned_share(found, name, warm),
            )
            for name, warm in kinds
        ),
        charts=tuple(
            Chart(
                "With warm-up" if warm else "Without warm-up",
                "learning rate",
                "share of symbols correct",
                tuple(
                    Series(name, setting.rates, tuple(mean[name, warm, rate] for rate in setting.rates))
                    for name in configs(setting)
                ),
                log_x=True,
            )
            for warm in (False, True)
        ),
        checks=checks(found),
    )


def learned_share(found: Mapping[Place, list[float]], name: str, warm: bool) -> float:
    """Return the share of runs that learned the task."""
    runs = [value for place, values in found.items() if place[:2] == (name, warm) for value in values]
    return sum(value >= LEARNED for value in runs) / len(runs)


def accuracy(place: Place, setting: WarmupSetting, seed: int, report: Report) -> float:
    """Train one model; return the share of symbols that it writes correctly in new sequences."""
    name, warm, rate = place
    model = build_translator(configs(setting)[name], setting.symbols, setting.symbols, seed)

    def batch_loss(generator: torch.Generator) -> Tensor:
        rows = random_rows(setting.batch, setting.length, setting.symbols, generator)
        return loss(model, batch_of(rows, [row[::-1] for row in rows]))

    def schedule(update: int) -> float:
        rising = min(1.0, update / setting.warmup) if warm else 1.0
        return rate * min(rising, 4 * (1 - (update - 1) / setting.updates))

    stage = f"{name}, rate {rate:g}, {'with' if warm else 'no'} warm-up"
    fit(model, batch_loss, setting.updates, seed, report, stage, schedule)
    rows = random_rows(setting.tested, setting.length, setting.symbols, torch_generator(seed + 1000))
    truth = [row[::-1] for row in rows]
    return share_correct(greedy(model, batch_of(rows, truth).source, setting.length), truth)


def checks(found: Mapping[Place, list[float]]) -> tuple[ClaimCheck, ...]:
    """Check the claim on the shares of runs that learn."""
    share = {(name, warm): learned_share(found, name, warm) for name, warm, _ in found}
    return (
        ClaimCheck(
            "warm-up lets a post-norm Transformer learn at more learning rates "
            f"({share[POST, True]:.0%} of the runs, without {share[POST, False]:.0%})",
            share[POST, True] > share[POST, False],
        ),
        ClaimCheck(
            f"without warm-up, pre-norm bears more than post-norm ({share[PRE, False]:.0%}, {share[POST, False]:.0%})",
            share[PRE, False] > share[POST, False],
        ),
        ClaimCheck(
            f"without warm-up, ConvS2S bears more than a post-norm Transformer ({share[CONVOLUTION, False]:.0%})",
            share[CONVOLUTION, False] > share[POST, False],
        ),
        ClaimCheck(
            f"and more than a pre-norm one ({share[CONVOLUTION, False]:.0%}, {share[PRE, False]:.0%})",
            share[CONVOLUTION, False] > share[PRE, False],
        ),
        ClaimCheck(
            f"ConvS2S needs no warm-up ({share[CONVOLUTION, False]:.0%} without, {share[CONVOLUTION, True]:.0%} with)",
            share[CONVOLUTION, False] >= share[CONVOLUTION, True],
        ),
    )
