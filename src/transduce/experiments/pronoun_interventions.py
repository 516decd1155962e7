"""Causal tests of the pronoun experiment: what happens to the pronoun when attention is cut, ablated or patched.

- *Cut* (attention knockout, Geva et al. 2023): no attention between the clause with *it* and the rest of the sentence,
  in the encoder; or none from the step that predicts the pronoun to anything outside of that clause, in the decoder.
- *Ablate*: replace the output of heads by its mean over all sentences, in the encoder at the words of that clause and
  at both nouns, in the decoder at the step that predicts the pronoun.
- *Patch* (Vig et al. 2020): replace the encoder's output at some words by that of the same sentence with the other
  ending, and see whether the pronoun follows.

All hooks are attached to a twin of the model.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace as but
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from transduce.experiments.pronoun_probe import Probe
from transduce.inspection.component import ATTENTION_NAMES, HeadName, all_heads, attention_kind, attention_path
from transduce.models.interface import AnyTransducer, Memory
from transduce.nn.hook import Replacement, hook_points, replace

SUFFICES = 0.75
"""Accuracy from which what is left of the model suffices: half-way between either noun at random and all right."""
MAX_HEADS = 8
"""Most heads in the set that is searched for."""
CARRIED = 0.55
"""The search for heads stops at this accuracy: one of the nouns, at random, is right half of the time."""

Solution = Literal["encoder", "cross-attention", "both", "neither"]
"""What suffices for the pronoun."""


class Cuts(NamedTuple):
    """Accuracy of the pronoun with some attention cut."""

    whole: float
    """Nothing is cut."""
    without_encoder: float
    """The encoder cannot join nouns and adjective; the decoder sees all."""
    without_cross: float
    """The step of the pronoun sees the clause with *it* only, of source and target."""
    without_own_words: float
    """The step of the pronoun does not see its own translation of the nouns."""

    @property
    def solution(self) -> Solution:
        """Which part suffices: the encoder, the decoder's cross-attention, both (either does), or neither alone."""
        encoder, cross = self.without_cross >= SUFFICES, self.without_encoder >= SUFFICES
        return "both" if encoder and cross else "encoder" if encoder else "cross-attention" if cross else "neither"


def measure_cuts(model: AnyTransducer, probe: Probe) -> Cuts:
    """Measure the accuracy with each cut. The model is hooked while this runs: give a twin."""

    def accuracy(**cut: bool) -> float:
        with hiding(model, probe, **cut):
            return probe.accuracy(model)

    return Cuts(
        whole=accuracy(),
        without_encoder=accuracy(encoder=True),
        without_cross=accuracy(cross=True, own_words=True),
        without_own_words=accuracy(own_words=True),
    )


def hiding(
    model: AnyTransducer, probe: Probe, encoder: bool = False, cross: bool = False, own_words: bool = False
) -> AbstractContextManager[None]:
    """Cut attention inside the context.

    `encoder`: between the clause with *it* and the rest; `cross`: from the step of the pronoun to the rest of the
    source; `own_words`: from that step to the translation of the rest.
    """
    inside_BS, inside_BT = probe.source_clause, probe.target_clause
    is_step_BT1 = (torch.arange(probe.target.shape[1]) == probe.step[:, None])[:, :, None]
    cuts = {
        "encoder": (encoder, inside_BS[:, :, None] != inside_BS[:, None, :]),
        "cross": (cross, is_step_BT1 & ~inside_BS[:, None, :]),
        "decoder": (own_words, is_step_BT1 & ~inside_BT[:, None, :]),
    }
    chosen = {kind: cut for kind, (wanted, cut) in cuts.items() if wanted}
    return replace(model, {path: _masking(cut) for kind, cut in chosen.items() for path in _scores(model, kind)})


def _scores(model: AnyTransducer, kind: str) -> list[str]:
    return [path for path in hook_points(model, ("score",)) if attention_kind(path) == kind]


def _masking(cut: Tensor) -> Replacement:
    """Hide keys from queries.  cut (B Q M) -> hook on scores (B H Q M)."""
    return lambda score_BHQM: score_BHQM.masked_fill(cut[:, None], -torch.inf)


# Ablation of heads.


def ablated(model: AnyTransducer, probe: Probe, heads: Iterable[HeadName]) -> AbstractContextManager[None]:
    """Replace the outputs of these heads by their means over the probe, where it matters, inside the context."""
    by_path: dict[str, list[HeadName]] = defaultdict(list)
    for head in heads:
        by_path[f"{attention_path(model, head.kind, head.layer)}.head"].append(head)
    hooks = {path: _to_mean(probe, of_path) for path, of_path in by_path.items()}
    return replace(model, hooks)


def _to_mean(probe: Probe, heads: Sequence[HeadName]) -> Replacement:
    index_B = torch.arange(len(probe.step))
    positions = list(probe.words.values()) if heads[0].kind == "encoder" else [probe.step]

    def to_mean(value_BHQV: Tensor) -> Tensor:
        value_BHQV = value_BHQV.clone()
        for head in heads:
            for at_B in positions:
                output_BV = value_BHQV[index_B, head.head - 1, at_B]
                value_BHQV[index_B, head.head - 1, at_B] = output_BV.mean(dim=0, keepdim=True).expand_as(output_BV)
        return value_BHQV

    return to_mean


class AblationStep(NamedTuple):
    """A head that was added to the set of ablated heads, and the accuracy that is left."""

    head: HeadName
    accuracy: float


def find_heads(
    model: AnyTransducer,
    search: Probe,
    confirm: Probe,
    kinds: Sequence[str] = ("encoder", "cross"),
    most: int = MAX_HEADS,
) -> list[AblationStep]:
    """Find a small set of heads that the pronoun depends on, greedily: each time the head that costs most.

    The set is chosen on one probe, and its accuracies are measured on another. Ties are broken by the score margin of
    the right pronoun.
    """
    rest = [head for head in all_heads(model) if head.kind in kinds]
    chosen: list[AblationStep] = []
    while rest and len(chosen) < most:
        names = [step.head for step in chosen]
        best = min(rest, key=lambda head: _left(model, search, [*names, head]))
        rest.remove(best)
        with ablated(model, confirm, [*names, best]):
            chosen.append(AblationStep(best, confirm.accuracy(model)))
        if chosen[-1].accuracy <= CARRIED:
            break
    return chosen


def _left(model: AnyTransducer, probe: Probe, heads: Sequence[HeadName]) -> tuple[float, float]:
    """Accuracy, then mean log-probability of the right pronoun, with these heads ablated."""
    with ablated(model, probe, heads):
        log_BP = probe.log_probabilities(model)
    right_BP = probe.choices == probe.pronoun[:, None]
    right_B = right_BP.gather(1, log_BP.argmax(dim=-1, keepdim=True))
    return float(right_B.float().mean()), float(log_BP[right_BP].mean())


# Patching.

PLACES = {
    "it": ("it",),
    "adjective": ("adjective",),
    "nouns": ("animal", "place"),
    "clause": ("because", "was", "too"),
}
"""Groups of source words; all others are the group `rest`."""


def _at(probe: Probe, word: str) -> Tensor:
    return torch.arange(probe.source.shape[1]) == probe.words[word][:, None]


def measure_patches(model: AnyTransducer, probe: Probe, other: Probe) -> dict[str, float]:
    """Share of sentences whose pronoun flips when the memory of some words comes from the other ending.

    `other` has the same sentences with the other ending, position by position.
    """
    with torch.no_grad():
        memory, patch = probe.encode(model), other.encode(model)

    def flipped(mask_BS: Tensor) -> float:
        mixed: Memory = but(memory, states=torch.where(mask_BS[:, :, None], patch.states, memory.states))
        return float((probe.predict(model, mixed) == other.pronoun).float().mean())

    masks = {name: torch.stack([_at(probe, word) for word in words]).any(dim=0) for name, words in PLACES.items()}
    masks["rest"] = ~torch.stack(list(masks.values())).any(dim=0)
    return {name: flipped(mask_BS) for name, mask_BS in masks.items()}


def describe(heads: Iterable[HeadName]) -> str:
    """Name a set of heads by kind of attention: "encoder self-attention 2.1, 3.4; cross-attention 1.2"."""
    by_kind: dict[str, list[str]] = defaultdict(list)
    for head in heads:
        by_kind[ATTENTION_NAMES[head.kind]].append(f"{head.layer}.{head.head}")
    return "; ".join(f"{kind} {', '.join(names)}" for kind, names in by_kind.items()) or "none"
