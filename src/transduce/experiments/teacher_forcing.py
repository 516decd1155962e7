"""Teacher forcing against free running: trained on the true tokens, decoding from its own (section 3.1).

The first task is a running sum modulo the number of symbols: each target symbol is the previous one plus the next
source symbol. Some source symbols are hidden, so that a model can only guess there. With teacher forcing, the next step
sees the true sum, and the error is gone. In free running the error persists. In the second task a target symbol is a
copy of the source symbol, and does not depend on earlier targets.

For an optimal model both errors are known: h (V - 1) / V at every position, where h is the share of hidden symbols, and
for running sums in free running (1 - (1 - h)^t) (V - 1) / V at position t.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.experiments.finding import Chart, ClaimCheck, Finding, Report, Series, fit, silent
from transduce.models.catalog import build
from transduce.models.interface import AnyTransducer, VocabularySizes
from transduce.models.transformer import TransformerConfig
from transduce.rng import torch_generator

TASKS = ("running sum", "copy")
SPECIAL = 1
"""Number of special tokens: 0 starts a target, and replaces a hidden source symbol."""
SAME = 1e-4
"""Difference allowed between the scores of `forward` and of `step`."""
CLOSE = 0.03
"""Difference allowed between an error rate and the optimal one."""


@dataclass(frozen=True)
class TeacherForcingSetting:
    """Sizes of the model and of the tasks."""

    width: int = 64
    num_heads: int = 4
    symbols: int = 8
    length: int = 16
    hidden: float = 0.05
    """Share of source symbols that are hidden."""
    batch: int = 64
    updates: int = 700
    tested: int = 2000


DEFAULT = TeacherForcingSetting()


class Errors(NamedTuple):
    """Share of wrong tokens by position."""

    forced: Tensor
    """(T), with true previous tokens."""
    free: Tensor
    """(T), with the model's own previous tokens."""
    max_difference: float
    """Largest difference between the scores of the whole target at once and step by step, for the same tokens."""


def measure(seed: int = 1, report: Report = silent, setting: TeacherForcingSetting = DEFAULT) -> Finding:
    """Train a Transformer on each task by teacher forcing; count its errors so and in free running."""
    found = {task: errors(task, setting, seed, report) for task in TASKS}
    optimal = optimal_errors(setting)
    position = tuple(range(1, setting.length + 1))
    shown = sorted({1, 2, 4, 8, setting.length // 2, setting.length} & set(position))
    return Finding(
        title="Teacher forcing against free running",
        claim="teacher forcing trains all steps of a target at once, and what is learned holds when the model "
        "continues from its own tokens.",
        setting={
            "symbols": setting.symbols,
            "length": setting.length,
            "hidden share": setting.hidden,
            "updates": setting.updates,
            "sequences": setting.tested,
        },
        columns=(
            "task",
            "position",
            "error, teacher forcing",
            "error, free running",
            "free running, optimal",
        ),
        rows=tuple(
            (task, at, *(float(error[at - 1]) for error in (one.forced, one.free)), float(optimal[task][at - 1]))
            for task, one in found.items()
            for at in shown
        ),
        charts=tuple(
            Chart(
                task.capitalize(),
                "position",
                "error rate",
                (
                    Series("teacher forcing", position, tuple(one.forced.tolist())),
                    Series("free running", position, tuple(one.free.tolist())),
                    Series("free running, optimal", position, tuple(optimal[task].tolist())),
                ),
            )
            for task, one in found.items()
        ),
        checks=_checks(setting, found, optimal),
    )


def sample_pairs(
    task: str, setting: TeacherForcingSetting, size: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return sources with hidden symbols, and targets after a start token.  -> (B N), (B N + 1)."""
    shape = (size, setting.length)
    symbol_BN = torch.randint(setting.symbols, shape, generator=generator)
    hidden_BN = torch.rand(shape, generator=generator) < setting.hidden
    output_BN = symbol_BN.cumsum(dim=1) % setting.symbols if task == "running sum" else symbol_BN
    source_BN = (symbol_BN + SPECIAL).masked_fill(hidden_BN, 0)
    return source_BN, F.pad(output_BN + SPECIAL, (1, 0))


def optimal_errors(setting: TeacherForcingSetting) -> dict[str, Tensor]:
    """Return the errors by position of an optimal model in free running.  -> (T) each."""
    wrong = (setting.symbols - 1) / setting.symbols
    visible_T = (1 - setting.hidden) ** torch.arange(1, setting.length + 1, dtype=torch.float64)
    return {
        "running sum": wrong * (1 - visible_T),
        "copy": torch.full((setting.length,), wrong * setting.hidden, dtype=torch.float64),
    }


def errors(task: str, setting: TeacherForcingSetting, seed: int, report: Report = silent) -> Errors:
    """Train a model on one task and count its errors on new sequences."""
    vocabulary = setting.symbols + SPECIAL
    config = TransformerConfig(
        model_dim=setting.width,
        num_heads=setting.num_heads,
        ffn_dim=4 * setting.width,
        num_layers=1,
        norm="pre",
        dropout=0.0,
    )
    model = cast("AnyTransducer", build(config, VocabularySizes(vocabulary, vocabulary), seed))
    fit(model, partial(_loss, model, task, setting), setting.updates, seed, report, f"{task}: updates")
    return count_errors(model, *sample_pairs(task, setting, setting.tested, torch_generator(seed + 1000)))


def count_errors(model: AnyTransducer, source: Tensor, target: Tensor) -> Errors:
    """Compare targets with the predictions of teacher forcing and of free running.  (B N), (B T + 1)."""
    with torch.no_grad():
        memory = model.encode(source, torch.ones_like(source, dtype=torch.bool))
        forced_BTV = model.logits(model(target[:, :-1], memory))
        stepwise_BTV = _step_by_step(model, model.start(memory), target[:, :-1])
        free_BT = _step_by_step(model, model.start(memory), target[:, :1], target.shape[1] - 1).argmax(dim=-1)
    wrong_BT = [predicted != target[:, 1:] for predicted in (forced_BTV.argmax(dim=-1), free_BT)]
    forced_T, free_T = (wrong.double().mean(dim=0) for wrong in wrong_BT)
    return Errors(forced_T, free_T, (forced_BTV - stepwise_BTV).abs().max().item())


def _step_by_step(model: AnyTransducer, state: object, tokens: Tensor, length: int | None = None) -> Tensor:
    """Score step by step: the given tokens, then the best token of the previous step.  (B T) -> (B length V)."""
    scores: list[Tensor] = []
    for position in range(length or tokens.shape[1]):
        token_B = tokens[:, position] if position < tokens.shape[1] else scores[-1].argmax(dim=-1)
        hidden_BD, state = model.step(token_B, state)
        scores.append(model.logits(hidden_BD))
    return torch.stack(scores, dim=1)


def _loss(model: AnyTransducer, task: str, setting: TeacherForcingSetting, generator: torch.Generator) -> Tensor:
    source_BN, target_BT = sample_pairs(task, setting, setting.batch, generator)
    memory = model.encode(source_BN, torch.ones_like(source_BN, dtype=torch.bool))
    score_BTV = model.logits(model(target_BT[:, :-1], memory))
    return F.cross_entropy(score_BTV.flatten(0, 1), target_BT[:, 1:].flatten())


def _checks(
    setting: TeacherForcingSetting, found: dict[str, Errors], optimal: dict[str, Tensor]
) -> tuple[ClaimCheck, ...]:
    summed, copied = found["running sum"], found["copy"]
    difference = max(one.max_difference for one in found.values())
    forced, free, last = summed.forced.mean().item(), summed.free.mean().item(), summed.free[-1].item()
    gap = (copied.forced - copied.free).abs().max().item()
    least = optimal["copy"][0].item()
    return (
        ClaimCheck(
            f"all steps at once give the same scores as step by step (within {difference:.1g})", difference < SAME
        ),
        ClaimCheck(
            f"with teacher forcing, the model is optimal: {forced:.1%} wrong, and {least:.1%} cannot be avoided",
            forced < least + CLOSE,
        ),
        ClaimCheck(f"copying, free running is as good as teacher forcing (errors within {gap:.1%})", gap < CLOSE),
        ClaimCheck(
            f"so it is for running sums: {free:.1%} wrong in free running, {forced:.1%} with teacher forcing; "
            f"at the last position {last:.1%}",
            free < forced + CLOSE,
        ),
    )
