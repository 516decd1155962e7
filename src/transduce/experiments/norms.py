"""LayerNorm beside BatchNorm and InstanceNorm on padded batches: what changes a sentence besides itself.

One sentence is watched while the company it keeps is changed: other words in the neighbours, more padding, training
or evaluation, a later word of its own. A change is the root mean square difference over the sentence's own positions,
as a share of the root mean square of what it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from transduce.experiments.finding import Chart, ClaimCheck, Finding, Report, Series, silent
from transduce.nn.attention.dot_product import padding_allowed
from transduce.nn.embedding import Embedding
from transduce.nn.initialization import initialize
from transduce.nn.norm import NORM
from transduce.nn.position import sinusoids
from transduce.rng import torch_generator

NOTHING = 1e-6
"""A smaller change is rounding."""
MUCH = 0.01
PAD = 0

Kind = Literal["layer", "rms", "batch", "instance"]


@dataclass(frozen=True)
class NormSetting:
    """Sizes of batches."""

    dim: int = 64
    words: int = 1000
    """Of the vocabulary; word number i comes as often as 1 / i."""
    length: int = 12
    """Of the watched sentence; neighbours are up to three times as long."""
    sentences: tuple[int, ...] = (2, 4, 8, 16, 32)
    """In a batch; the table is of the middle one."""
    paddings: tuple[int, ...] = (0, 6, 12, 24, 48)
    """Columns of padding more than needed; the table is of the last."""
    trials: int = 20
    """Draws that every number is the mean of."""
    warm_up: int = 50
    """Batches from which BatchNorm learns what it uses in evaluation."""


DEFAULT = NormSetting()


class Norm(nn.Module):
    """One of torch's norms over states; with `real_only`, padding is left out of every mean."""

    def __init__(self, kind: Kind, dim: int, real_only: bool = False) -> None:
        super().__init__()
        self.kind, self.real_only = kind, real_only
        make: dict[str, Callable[[int], nn.Module]] = {**NORM, "batch": nn.BatchNorm1d, "instance": nn.InstanceNorm1d}
        self.norm = make[kind](dim)

    def forward(self, hidden: Tensor, real: Tensor) -> Tensor:
        """(B N D), (B N) -> (B N D)."""
        if self.kind in NORM:
            normed: Tensor = self.norm(hidden)
        elif not self.real_only:
            normed = self.norm(hidden.transpose(1, 2)).transpose(1, 2)
        else:
            normed = torch.zeros_like(hidden)
            parts = (
                [real] if self.kind == "batch" else [real & row_B1 for row_B1 in torch.eye(len(real)).bool()[..., None]]
            )
            for part_BN in parts:
                token_ND = hidden[part_BN]
                normed[part_BN] = self.norm(token_ND) if self.kind == "batch" else self.norm(token_ND.T).T
        return normed


NORMS: dict[str, tuple[Kind, bool]] = {
    "LayerNorm": ("layer", False),
    "RMSNorm": ("rms", False),
    "BatchNorm": ("batch", False),
    "BatchNorm, padding left out": ("batch", True),
    "InstanceNorm": ("instance", False),
    "InstanceNorm, padding left out": ("instance", True),
}


class World:
    """Where batches come from: sentences of words as frequent as words are, as the states that enter a stack."""

    def __init__(self, setting: NormSetting, seed: int) -> None:
        self.setting = setting
        self.generator = torch_generator(seed)
        self.embedding = Embedding(setting.words, setting.dim)
        initialize(self.embedding, seed)
        self.frequency_V = 1 / torch.arange(1, setting.words).double()

    def sentence(self, length: int) -> Tensor:
        """-> (N) words, none of them padding."""
        return 1 + torch.multinomial(self.frequency_V, length, replacement=True, generator=self.generator)

    def lengths(self, count: int) -> list[int]:
        """Draw the lengths of neighbours: two tokens or more, for of one alone InstanceNorm would make nothing."""
        longest = 3 * self.setting.length
        return torch.randint(2, longest + 1, (count,), generator=self.generator).tolist()

    def neighbours(self, lengths: list[int]) -> list[Tensor]:
        """Draw their words."""
        return [self.sentence(length) for length in lengths]

    def states(self, sentences: list[Tensor], padding: int = 0) -> tuple[Tensor, Tensor]:
        """Pad, embed and add positions.  -> (B N D), (B N)."""
        tokens_BN = nn.utils.rnn.pad_sequence(sentences, batch_first=True, padding_value=PAD)
        tokens_BN = nn.functional.pad(tokens_BN, (0, padding), value=PAD)
        with torch.no_grad():
            signal_ND = sinusoids(tokens_BN.shape[1], self.setting.dim).float()
            return self.embedding(tokens_BN) + signal_ND, padding_allowed(tokens_BN, PAD)


class Changes(NamedTuple):
    """How much a sentence's vectors change when nothing of the sentence does; the last one is about its own past."""

    neighbours_training: float
    padding_training: float
    neighbours_evaluation: float
    padding_evaluation: float
    to_evaluation: float
    by_last_word: float
    """Of all vectors but the last, when the last word is another."""


def measure(seed: int = 1, report: Report = silent, setting: NormSetting = DEFAULT) -> Finding:
    """Watch a sentence through every norm, while everything around it changes."""
    sentences, padding = setting.sentences[len(setting.sentences) // 2], setting.paddings[-1]
    found, by_sentences, by_padding = {}, {}, {}
    for number, name in enumerate(NORMS):
        report("norms", number)
        norm = accustomed(name, setting, seed)
        found[name] = changes(norm, setting, sentences, padding, seed)
        by_sentences[name] = [
            changes(norm, setting, count, padding, seed).neighbours_training for count in setting.sentences
        ]
        by_padding[name] = [changes(norm, setting, sentences, more, seed).padding_training for more in setting.paddings]
    return Finding(
        title="Norms on padded batches",
        claim="LayerNorm suits batches of sentences because what it does to a sentence depends on that sentence alone; "
        "with BatchNorm and InstanceNorm it depends on neighbours or padding.",
        setting={
            "width": setting.dim,
            "tokens of the sentence": setting.length,
            "sentences in a batch": sentences,
            "columns of padding added": padding,
            "draws": setting.trials,
        },
        columns=(
            *("norm", "other neighbours, training", "more padding, training", "other neighbours, evaluation"),
            *("more padding, evaluation", "training to evaluation", "another last word, at the others"),
        ),
        rows=tuple((name, *one) for name, one in found.items()),
        charts=(
            _chart("Other neighbours, training", "sentences in a batch", setting.sentences, by_sentences),
            _chart("More padding, training", "columns of padding added", setting.paddings, by_padding),
        ),
        checks=_checks(found, by_sentences, setting),
    )


def accustomed(name: str, setting: NormSetting, seed: int) -> Norm:
    """Return a norm that has seen batches, so that BatchNorm has something to go by in evaluation."""
    kind, real_only = NORMS[name]
    norm, world = Norm(kind, setting.dim, real_only), World(setting, seed)
    for _ in range(setting.warm_up):
        norm(*world.states(world.neighbours(world.lengths(setting.sentences[-1]))))
    return norm


def changes(norm: Norm, setting: NormSetting, sentences: int, padding: int, seed: int) -> Changes:
    """Return the mean of what is seen over all draws."""
    world = World(setting, seed + 1)
    seen = [_watch(norm, world, sentences, padding) for _ in range(setting.trials)]
    return Changes(*(mean(values) for values in zip(*seen, strict=True)))


def _watch(norm: Norm, world: World, sentences: int, padding: int) -> Changes:
    """One sentence, first in its batch."""
    length = world.setting.length
    own, lengths = world.sentence(length), world.lengths(sentences - 1)
    company = world.neighbours(lengths)
    ending = torch.cat([own[:-1], 1 + own[-1:] % (world.setting.words - 1)])
    batches = {
        "first": world.states([own, *company]),
        "other": world.states([own, *world.neighbours(lengths)]),
        "padded": world.states([own, *company], padding),
        "ending": world.states([ending, *company]),
    }

    def vectors(training: bool) -> dict[str, Tensor]:
        norm.train(training)
        kept = {name: value.clone() for name, value in norm.state_dict().items()}
        with torch.no_grad():
            normed = {name: norm(*batch)[0, :length] for name, batch in batches.items()}
        norm.load_state_dict(kept)  # what BatchNorm learnt while it was watched
        return normed

    training, evaluation = vectors(True), vectors(False)
    return Changes(
        change(training["first"], training["other"]),
        change(training["first"], training["padded"]),
        change(evaluation["first"], evaluation["other"]),
        change(evaluation["first"], evaluation["padded"]),
        change(training["first"], evaluation["first"]),
        change(training["first"][:-1], training["ending"][:-1]),
    )


def change(before: Tensor, after: Tensor) -> float:
    """Return the difference as a share of what was there before."""
    share: float = ((after - before).norm() / before.norm()).item()
    return share


def _checks(
    found: dict[str, Changes], by_sentences: dict[str, list[float]], setting: NormSetting
) -> tuple[ClaimCheck, ...]:
    layer, batch, instance = found["LayerNorm"], found["BatchNorm"], found["InstanceNorm"]
    batch_real, instance_real = found["BatchNorm, padding left out"], found["InstanceNorm, padding left out"]
    few, many = by_sentences["BatchNorm, padding left out"][0], by_sentences["BatchNorm, padding left out"][-1]
    company = max(instance_real[:4])
    return (
        ClaimCheck(
            f"nothing around a sentence changes what LayerNorm makes of it ({max(layer):.1g})", max(layer) < NOTHING
        ),
        ClaimCheck(
            f"BatchNorm in training: other neighbours change it by {batch.neighbours_training:.1%}, more padding by "
            f"{batch.padding_training:.1%}",
            min(batch.neighbours_training, batch.padding_training) > MUCH,
        ),
        ClaimCheck(
            f"leaving padding out of its means does not cure it: neighbours, {batch_real.neighbours_training:.1%}",
            batch_real.neighbours_training > MUCH,
        ),
        ClaimCheck(
            f"the smaller the batch the worse: {few:.1%} with {setting.sentences[0]} sentences, {many:.1%} with "
            f"{setting.sentences[-1]}",
            few > many,
        ),
        ClaimCheck(
            f"BatchNorm does something else in evaluation than in training ({batch.to_evaluation:.1%})",
            batch.to_evaluation > MUCH,
        ),
        ClaimCheck(
            f"InstanceNorm: more padding changes it by {instance.padding_training:.1%}",
            instance.padding_training > MUCH,
        ),
        ClaimCheck(
            f"leaving padding out does not cure it either (neighbours and padding then change it by {company:.1g})",
            company > MUCH,
        ),
        ClaimCheck(
            "but then it lets the past see the future, which a decoder must not: another last word changes the others "
            f"by {instance_real.by_last_word:.1%}",
            instance_real.by_last_word > MUCH,
        ),
    )


def _chart(title: str, x_label: str, x: tuple[int, ...], lines: dict[str, list[float]]) -> Chart:
    series = (Series(name, x, tuple(values)) for name, values in lines.items())
    return Chart(title, x_label, "relative change of a sentence's vectors", tuple(series))
