"""Ambiguous words: which head resolves *bank*, and which the attachment in *saw the man with the telescope*.

A Transformer translates generated sentences word by word. *bank* has two translations, chosen by another word of the
sentence (river or money); *with* has two, chosen by verb and noun together (looking with an optical instrument and
eating with cutlery are done with it, anything else belongs to the man). Combinations of words are held out. Every head
is then ablated alone, and all heads of a layer together: their output is replaced by zeros, and the ambiguous word is
translated again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from transduce.experiments.finding import Chart, ClaimCheck, Finding, Report, Series, fit, silent
from transduce.experiments.pairs import PAD, SPECIAL, PairBatch, batch_of, build_translator, loss
from transduce.models.interface import AnyTransducer
from transduce.models.transformer import TransformerConfig
from transduce.nn.hook import hook_points, record, replace
from transduce.rng import torch_generator

KINDS = ("bank", "with")
CLASS = 12
"""Words of each class: of water and of money; verbs of looking and of eating; things for one, the other, neither."""
BANK, WITH, FILLER = 0, 1, 2
FILLERS = 10
WATER = FILLER + FILLERS
MONEY, LOOK, EAT, LENS, FORK, HAT = (WATER + number * CLASS for number in range(1, 7))
WORDS = HAT + CLASS
"""Number of source words; in the target, the second meanings of *bank* and *with* follow."""
LEARNED = 0.95
CARRIES = 0.2
"""Accuracy that a head must cost when it is ablated to count as carrying a decision."""
MOSTLY = 0.5


@dataclass(frozen=True)
class AmbiguitySetting:
    """Sizes of the model and of the sentences."""

    width: int = 48
    num_heads: int = 4
    num_layers: int = 2
    """Of the encoder; the decoder has one layer."""
    batch: int = 48
    updates: int = 1500
    tested: int = 300


DEFAULT = AmbiguitySetting()


class Sentence(NamedTuple):
    """Words, their translation, where the ambiguous word stands, and which words decide it."""

    source: list[int]
    target: list[int]
    place: int
    deciding: tuple[int, ...]
    held_out: bool


def sentence(kind: str, generator: torch.Generator) -> Sentence:
    """Return a random sentence of six words."""

    def draw(count: int) -> int:
        return int(torch.randint(count, (), generator=generator))

    ambiguous: tuple[int, tuple[int, ...]]
    first, second = draw(CLASS), draw(CLASS)
    words = [FILLER + draw(FILLERS) for _ in range(6)]
    if kind == "bank":
        place = 1 + draw(4)
        decides = (place + 1 + draw(5)) % 6
        is_other = draw(2)
        words[place], words[decides] = BANK, (MONEY if is_other else WATER) + first
        ambiguous, held_out = (place, (decides,)), (first + words[0]) % 4 == 0
    else:
        verb, thing = draw(2), draw(3)
        words[1], words[3], words[4] = (LOOK, EAT)[verb] + first, WITH, (LENS, FORK, HAT)[thing] + second
        is_other = int(verb != thing)
        ambiguous, held_out = (3, (1, 4)), (first + second) % 4 == 0
    target = list(words)
    target[ambiguous[0]] = WORDS + KINDS.index(kind) if is_other else words[ambiguous[0]]
    return Sentence(words, target, ambiguous[0], ambiguous[1], held_out)


def sentences(kinds: Sequence[str], count: int, held_out: bool, generator: torch.Generator) -> list[Sentence]:
    """Return so many sentences of combinations that are held out, or that are not."""
    found: list[Sentence] = []
    while len(found) < count:
        one = sentence(kinds[len(found) % len(kinds)], generator)
        if one.held_out == held_out:
            found.append(one)
    return found


def as_batch(chosen: Sequence[Sentence]) -> PairBatch:
    """Return sentences as tensors."""
    return batch_of([one.source for one in chosen], [one.target for one in chosen])


class HeadEffect(NamedTuple):
    """One head: what its ablation costs, and how much it attends from the ambiguous word to the deciding ones."""

    stack: str
    layer: int
    number: int
    """From 1; 0 for all heads of the layer."""
    lost: Mapping[str, float]
    """Accuracy lost by kind."""
    attended: Mapping[str, float]
    """Weight on the deciding words by kind; in cross-attention, of the step that translates the ambiguous word."""


def measure(seed: int = 1, report: Report = silent, setting: AmbiguitySetting = DEFAULT) -> Finding:
    """Train a model, test it on held-out combinations, and ablate its heads one by one."""
    model = train(setting, seed, report)
    tested = {kind: sentences([kind], setting.tested, True, torch_generator(seed + 1000)) for kind in KINDS}
    right = {kind: accuracy(model, tested[kind]) for kind in KINDS}
    heads = effects(model, tested, right)
    return Finding(
        title="Which head resolves an ambiguity",
        claim="different heads resolve different ambiguities: one tells by the context what bank means, another what "
        "with the telescope belongs to.",
        setting={"width": setting.width, "updates": setting.updates, "sentences": setting.tested},
        columns=(
            *("stack", "layer", "head", "bank: accuracy lost", "with: accuracy lost"),
            *("bank: on deciding word", "with: on deciding words"),
        ),
        rows=tuple(
            (
                head.stack,
                head.layer,
                str(head.number or "all"),
                *(head.lost[kind] for kind in KINDS),
                *head.attended.values(),
            )
            for head in heads
        ),
        charts=(
            Chart(
                "Accuracy lost by ablation",
                "head, in the order of the table",
                "share of sentences",
                tuple(
                    Series(kind, tuple(range(1, len(heads) + 1)), tuple(head.lost[kind] for head in heads))
                    for kind in KINDS
                ),
            ),
        ),
        checks=checks(right, heads),
    )


def train(setting: AmbiguitySetting, seed: int, report: Report) -> AnyTransducer:
    """Train on both kinds of sentences."""
    config = TransformerConfig(
        model_dim=setting.width,
        num_heads=setting.num_heads,
        ffn_dim=2 * setting.width,
        num_layers=setting.num_layers,
        decoder_layers=1,
        norm="pre",
        dropout=0.0,
        tied_embeddings="target",
    )
    model = build_translator(config, WORDS, WORDS + len(KINDS), seed)

    def batch_loss(generator: torch.Generator) -> Tensor:
        return loss(model, as_batch(sentences(KINDS, setting.batch, False, generator)))

    fit(model, batch_loss, setting.updates, seed, report, "updates", max_grad_norm=1.0)
    return model


def accuracy(model: AnyTransducer, tested: Sequence[Sentence]) -> float:
    """Return how often the ambiguous word gets its right translation, given the words before it."""
    batch = as_batch(tested)
    with torch.no_grad():
        memory = model.encode(batch.source, batch.source != PAD)
        best_BT = model.logits(model(batch.target[:, :-1], memory)).argmax(dim=-1)
    right = [
        int(best_T[one.place]) == one.target[one.place] + SPECIAL for best_T, one in zip(best_BT, tested, strict=True)
    ]
    return sum(right) / len(right)


def effects(
    model: AnyTransducer, tested: Mapping[str, Sequence[Sentence]], right: Mapping[str, float]
) -> list[HeadEffect]:
    """Ablate every head of the encoder and of cross-attention, and record where it attends."""
    found = []
    for path in hook_points(model, ("head",)):
        if "decoder" in path and "cross" not in path:
            continue  # the target's words before it do not decide
        stack = "cross" if "cross" in path else "encoder"
        layer = int(path.split(".")[1])
        attended = {kind: _attended(model, path.rpartition(".")[0] + ".weight", tested[kind]) for kind in KINDS}
        count = len(attended[KINDS[0]])
        for number in (*range(1, count + 1), 0):
            with replace(model, {path: lambda value, number=number: _without(value, number)}):  # type: ignore[misc]
                lost = {kind: right[kind] - accuracy(model, tested[kind]) for kind in KINDS}
            weights = {kind: attended[kind][number - 1] if number else sum(attended[kind]) / count for kind in KINDS}
            found.append(HeadEffect(stack, layer + 1, number, lost, weights))
    return found


def _without(value: Tensor, number: int) -> Tensor:
    """Return the outputs with those of one head zero, or of all.  (B H Q V) -> (B H Q V)."""
    ablated = value.clone()
    ablated[:, number - 1 if number else slice(None)] = 0
    return ablated


def _attended(model: AnyTransducer, path: str, tested: Sequence[Sentence]) -> list[float]:
    """Return the mean weight of every head on the deciding words, from the ambiguous one."""
    with record(model, ("weight",)) as recorded:
        accuracy(model, tested)
    weight_BHQM = recorded[path]
    shares = [weight_BHQM[row, :, one.place, list(one.deciding)].sum(dim=-1) for row, one in enumerate(tested)]
    means: list[float] = torch.stack(shares).mean(dim=0).tolist()
    return means


def checks(right: Mapping[str, float], heads: Sequence[HeadEffect]) -> tuple[ClaimCheck, ...]:
    """Check the claim on the effects of ablation."""
    single = [head for head in heads if head.number]
    whole = {kind: max((head for head in heads if not head.number), key=lambda head: head.lost[kind]) for kind in KINDS}
    worst = {kind: max(single, key=lambda head: head.lost[kind]) for kind in KINDS}
    named = {kind: f"{head.stack} layer {head.layer}, head {head.number}" for kind, head in worst.items()}
    bank, attachment = (worst[kind] for kind in KINDS)
    return (
        ClaimCheck(
            f"the model resolves both in combinations that it has not seen ({right['bank']:.1%}, {right['with']:.1%})",
            min(right.values()) >= LEARNED,
        ),
        *(
            ClaimCheck(
                f"a single head carries '{kind}': without {named[kind]}, accuracy falls by "
                f"{worst[kind].lost[kind]:.1%}",
                worst[kind].lost[kind] >= CARRIES,
            )
            for kind in KINDS
        ),
        *(
            ClaimCheck(
                f"the heads of one layer together carry '{kind}': without those of {head.stack} layer {head.layer}, it "
                f"falls by {head.lost[kind]:.1%}",
                head.lost[kind] >= CARRIES,
            )
            for kind, head in whole.items()
        ),
        ClaimCheck(
            "the two single heads that cost most are different",
            (bank.stack, bank.layer, bank.number) != (attachment.stack, attachment.layer, attachment.number),
        ),
        ClaimCheck(
            "these heads attend mostly to the words that decide "
            f"({bank.attended['bank']:.2f} and {attachment.attended['with']:.2f} of the weight)",
            min(bank.attended["bank"], attachment.attended["with"]) >= MOSTLY,
        ),
    )
