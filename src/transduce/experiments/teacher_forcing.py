"""Taught with the true tokens, used with its own (section 3.1 and every decoder since).

Running sums, modulo the number of symbols: each target symbol is the one before it plus the next source symbol. Some
source symbols are hidden, and nobody can know these: there a model is wrong whatever it has learned. While it is told
the true sum before each step, the mistake is forgotten at once. When it goes on from its own, the mistake stays. In
the second task a target symbol is the source symbol itself, and needs nothing of what was written before.

For a model that has learned all there is to learn, both errors are known: h (V - 1) / V at every position where h is
the share of hidden symbols, and for running sums in free running (1 - (1 - h)^t) (V - 1) / V at position t.
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
"""Token 0 starts a target, and hides a symbol of the source."""
SAME = 1e-4
"""How far scores of the two faces may be apart."""
CLOSE = 0.03
"""How far an error may be from what is known of it."""


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
    """(T), with the true tokens before."""
    free: Tensor
    """(T), with the model's own."""
    apart: float
    """The largest difference between scores of the whole target at once and of the same tokens one by one."""


def measure(seed: int = 1, report: Report = silent, setting: TeacherForcingSetting = DEFAULT) -> Finding:
    """Train a Transformer on each task with true tokens, and count its errors with those and with its own."""
    found = {task: errors(task, setting, seed, report) for task in TASKS}
    ideal = known(setting)
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
            "error, true tokens before",
            "error, its own before",
            "its own, if all is learned",
        ),
        rows=tuple(
            (task, at, *(float(error[at - 1]) for error in (one.forced, one.free)), float(ideal[task][at - 1]))
            for task, one in found.items()
            for at in shown
        ),
        charts=tuple(
            Chart(
                task.capitalize(),
                "position",
                "share of wrong tokens",
                (
                    Series("true tokens before", position, tuple(one.forced.tolist())),
                    Series("its own tokens before", position, tuple(one.free.tolist())),
                    Series("its own, if all is learned", position, tuple(ideal[task].tolist())),
                ),
            )
            for task, one in found.items()
        ),
        checks=_checks(setting, found, ideal),
    )


def draw(task: str, setting: TeacherForcingSetting, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return sources with hidden symbols and targets behind a start token.  -> (B N), (B N + 1)."""
    shape = (size, setting.length)
    symbol_BN = torch.randint(setting.symbols, shape, generator=generator)
    hidden_BN = torch.rand(shape, generator=generator) < setting.hidden
    answer_BN = symbol_BN.cumsum(dim=1) % setting.symbols if task == "running sum" else symbol_BN
    source_BN = (symbol_BN + SPECIAL).masked_fill(hidden_BN, 0)
    return source_BN, F.pad(answer_BN + SPECIAL, (1, 0))


def known(setting: TeacherForcingSetting) -> dict[str, Tensor]:
    """Return the errors by position, in free running, of a model that has learned all there is.  -> (T) each."""
    wrong = (setting.symbols - 1) / setting.symbols
    unhidden_T = (1 - setting.hidden) ** torch.arange(1, setting.length + 1, dtype=torch.float64)
    return {
        "running sum": wrong * (1 - unhidden_T),
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
    return count(model, *draw(task, setting, setting.tested, torch_generator(seed + 1000)))


def count(model: AnyTransducer, source: Tensor, target: Tensor) -> Errors:
    """Let a model write targets with the true tokens before each of its own, then with its own.  (B N), (B T + 1)."""
    with torch.no_grad():
        memory = model.encode(source, torch.ones_like(source, dtype=torch.bool))
        forced_BTV = model.logits(model(target[:, :-1], memory))
        told = _one_by_one(model, model.start(memory), target[:, :-1])
        free_BT = _one_by_one(model, model.start(memory), target[:, :1], target.shape[1] - 1).argmax(dim=-1)
    wrong_BT = [answer != target[:, 1:] for answer in (forced_BTV.argmax(dim=-1), free_BT)]
    forced_T, free_T = (wrong.double().mean(dim=0) for wrong in wrong_BT)
    return Errors(forced_T, free_T, (forced_BTV - told).abs().max().item())


def _one_by_one(model: AnyTransducer, state: object, tokens: Tensor, length: int | None = None) -> Tensor:
    """Score step by step: what is given first, then the likeliest token of the step before.  (B T) -> (B length V)."""
    scores: list[Tensor] = []
    for place in range(length or tokens.shape[1]):
        read_B = tokens[:, place] if place < tokens.shape[1] else scores[-1].argmax(dim=-1)
        hidden_BD, state = model.step(read_B, state)
        scores.append(model.logits(hidden_BD))
    return torch.stack(scores, dim=1)


def _loss(model: AnyTransducer, task: str, setting: TeacherForcingSetting, generator: torch.Generator) -> Tensor:
    source_BN, target_BT = draw(task, setting, setting.batch, generator)
    memory = model.encode(source_BN, torch.ones_like(source_BN, dtype=torch.bool))
    score_BTV = model.logits(model(target_BT[:, :-1], memory))
    return F.cross_entropy(score_BTV.flatten(0, 1), target_BT[:, 1:].flatten())


def _checks(
    setting: TeacherForcingSetting, found: dict[str, Errors], ideal: dict[str, Tensor]
) -> tuple[ClaimCheck, ...]:
    total, copied = found["running sum"], found["copy"]
    apart = max(one.apart for one in found.values())
    forced, free, last = total.forced.mean().item(), total.free.mean().item(), total.free[-1].item()
    alike = (copied.forced - copied.free).abs().max().item()
    least = ideal["copy"][0].item()
    return (
        ClaimCheck(f"all steps at once give the scores of one by one (at most {apart:.1g} apart)", apart < SAME),
        ClaimCheck(
            f"with true tokens before, it has learned all that can be known: {forced:.1%} wrong, where {least:.1%} "
            "must be",
            forced < least + CLOSE,
        ),
        ClaimCheck(
            f"copying, its own tokens do as well as the true ones (errors at most {alike:.1%} apart)", alike < CLOSE
        ),
        ClaimCheck(
            f"running sums too: {free:.1%} wrong with its own tokens, {forced:.1%} with the true ones; at the last "
            f"position {last:.1%}",
            free < forced + CLOSE,
        ),
    )
