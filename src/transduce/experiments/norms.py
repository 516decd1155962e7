"""LayerNorm, BatchNorm and InstanceNorm on padded batches: the influence of neighbours and padding on a sentence.

The normalised vectors of one sentence are compared while the rest of its batch changes: other words in the neighbours,
more padding, training or evaluation mode, another last word of its own. A change is the norm of the difference over the
sentence's own positions, relative to the norm before.
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
from transduce.nn.position import sinusoids
from transduce.nn.sublayer import NORM
from transduce.rng import torch_generator

ROUNDING = 1e-6
"""A smaller change is rounding."""
SUBSTANTIAL = 0.01
"""A larger change counts."""
PAD = 0

Kind = Literal["layer", "rms", "batch", "instance"]


@dataclass(frozen=True)
class NormSetting:
    """Sizes of batches."""

    dim: int = 64
    words: int = 1000
    """Vocabulary size; word number i has a frequency in proportion to 1 / i (Zipf)."""
    length: int = 12
    """Tokens of the tested sentence; neighbours are up to three times as long."""
    sentences: tuple[int, ...] = (2, 4, 8, 16, 32)
    """Batch sizes; the table shows the middle one."""
    paddings: tuple[int, ...] = (0, 6, 12, 24, 48)
    """Additional columns of padding; the table shows the last."""
    trials: int = 20
    """Random batches per number, which is their mean."""
    warm_up: int = 50
    """Batches for the running statistics of BatchNorm."""


DEFAULT = NormSetting()


class Norm(nn.Module):
    """One of torch's norms over hidden states; with `real_only`, statistics exclude padding."""

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
    "BatchNorm, padding excluded": ("batch", True),
    "InstanceNorm": ("instance", False),
    "InstanceNorm, padding excluded": ("instance", True),
}


class PaddedBatchSampler:
    """Samples batches of sentences with Zipf-distributed words, embedded as the input of a stack."""

    def __init__(self, setting: NormSetting, seed: int) -> None:
        self.setting = setting
        self.generator = torch_generator(seed)
        self.embedding = Embedding(setting.words, setting.dim)
        initialize(self.embedding, seed)
        self.frequency_V = 1 / torch.arange(1, setting.words).double()

    def sentence(self, length: int) -> Tensor:
        """Sample the words of a sentence, without padding.  -> (N)."""
        return 1 + torch.multinomial(self.frequency_V, length, replacement=True, generator=self.generator)

    def lengths(self, count: int) -> list[int]:
        """Sample the lengths of neighbours: at least two tokens, because InstanceNorm maps a single one to zero."""
        longest = 3 * self.setting.length
        return torch.randint(2, longest + 1, (count,), generator=self.generator).tolist()

    def neighbours(self, lengths: list[int]) -> list[Tensor]:
        """Sample neighbours of these lengths."""
        return [self.sentence(length) for length in lengths]

    def states(self, sentences: list[Tensor], padding: int = 0) -> tuple[Tensor, Tensor]:
        """Pad, embed and add positions.  -> (B N D), (B N)."""
        tokens_BN = nn.utils.rnn.pad_sequence(sentences, batch_first=True, padding_value=PAD)
        tokens_BN = nn.functional.pad(tokens_BN, (0, padding), value=PAD)
        with torch.no_grad():
            signal_ND = sinusoids(tokens_BN.shape[1], self.setting.dim).float()
            return self.embedding(tokens_BN) + signal_ND, padding_allowed(tokens_BN, PAD)


class Changes(NamedTuple):
    """Relative changes of a sentence's vectors while the sentence stays the same, except for `by_last_word`."""

    neighbours_training: float
    padding_training: float
    neighbours_evaluation: float
    padding_evaluation: float
    to_evaluation: float
    by_last_word: float
    """Change of all vectors but the last when the last word changes."""


def measure(seed: int = 1, report: Report = silent, setting: NormSetting = DEFAULT) -> Finding:
    """Normalise a sentence by every norm while the rest of its batch changes."""
    sentences, padding = setting.sentences[len(setting.sentences) // 2], setting.paddings[-1]
    found, by_sentences, by_padding = {}, {}, {}
    for number, name in enumerate(NORMS):
        report("norms", number)
        norm = warmed_up(name, setting, seed)
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
            "batch size": sentences,
            "added padding": padding,
            "trials": setting.trials,
        },
        columns=(
            *("norm", "other neighbours, training", "more padding, training", "other neighbours, evaluation"),
            *("more padding, evaluation", "training to evaluation", "another last word, at other words"),
        ),
        rows=tuple((name, *one) for name, one in found.items()),
        charts=(
            _chart("Other neighbours, training", "batch size", setting.sentences, by_sentences),
            _chart("More padding, training", "added padding", setting.paddings, by_padding),
        ),
        checks=_checks(found, by_sentences, setting),
    )


def warmed_up(name: str, setting: NormSetting, seed: int) -> Norm:
    """Return a norm after some batches, so that BatchNorm has running statistics for evaluation."""
    kind, real_only = NORMS[name]
    norm, sampler = Norm(kind, setting.dim, real_only), PaddedBatchSampler(setting, seed)
    for _ in range(setting.warm_up):
        norm(*sampler.states(sampler.neighbours(sampler.lengths(setting.sentences[-1]))))
    return norm


def changes(norm: Norm, setting: NormSetting, sentences: int, padding: int, seed: int) -> Changes:
    """Return the mean changes over all trials."""
    sampler = PaddedBatchSampler(setting, seed + 1)
    found = [_trial(norm, sampler, sentences, padding) for _ in range(setting.trials)]
    return Changes(*(mean(values) for values in zip(*found, strict=True)))


def _trial(norm: Norm, sampler: PaddedBatchSampler, sentences: int, padding: int) -> Changes:
    """Return the changes of one random sentence, the first of its batch."""
    length = sampler.setting.length
    own, lengths = sampler.sentence(length), sampler.lengths(sentences - 1)
    neighbours = sampler.neighbours(lengths)
    ending = torch.cat([own[:-1], 1 + own[-1:] % (sampler.setting.words - 1)])
    batches = {
        "first": sampler.states([own, *neighbours]),
        "other": sampler.states([own, *sampler.neighbours(lengths)]),
        "padded": sampler.states([own, *neighbours], padding),
        "ending": sampler.states([ending, *neighbours]),
    }

    def vectors(training: bool) -> dict[str, Tensor]:
        norm.train(training)
        kept = {name: value.clone() for name, value in norm.state_dict().items()}
        with torch.no_grad():
            normed = {name: norm(*batch)[0, :length] for name, batch in batches.items()}
        norm.load_state_dict(kept)  # undo the update of BatchNorm's running statistics
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
    """Return the norm of the difference, relative to the norm before."""
    share: float = ((after - before).norm() / before.norm()).item()
    return share


def _checks(
    found: dict[str, Changes], by_sentences: dict[str, list[float]], setting: NormSetting
) -> tuple[ClaimCheck, ...]:
    layer, batch, instance = found["LayerNorm"], found["BatchNorm"], found["InstanceNorm"]
    batch_real, instance_real = found["BatchNorm, padding excluded"], found["InstanceNorm, padding excluded"]
    few, many = by_sentences["BatchNorm, padding excluded"][0], by_sentences["BatchNorm, padding excluded"][-1]
    outside = max(instance_real[:4])
    return (
        ClaimCheck(
            f"the output of LayerNorm for a sentence depends on nothing else ({max(layer):.1g})", max(layer) < ROUNDING
        ),
        ClaimCheck(
            f"BatchNorm in training: other neighbours change it by {batch.neighbours_training:.1%}, more padding by "
            f"{batch.padding_training:.1%}",
            min(batch.neighbours_training, batch.padding_training) > SUBSTANTIAL,
        ),
        ClaimCheck(
            f"excluding padding from its statistics does not help: neighbours, {batch_real.neighbours_training:.1%}",
            batch_real.neighbours_training > SUBSTANTIAL,
        ),
        ClaimCheck(
            f"smaller batches are worse: {few:.1%} with {setting.sentences[0]} sentences, {many:.1%} with "
            f"{setting.sentences[-1]}",
            few > many,
        ),
        ClaimCheck(
            f"BatchNorm differs between training and evaluation ({batch.to_evaluation:.1%})",
            batch.to_evaluation > SUBSTANTIAL,
        ),
        ClaimCheck(
            f"InstanceNorm: more padding changes it by {instance.padding_training:.1%}",
            instance.padding_training > SUBSTANTIAL,
        ),
        ClaimCheck(
            f"excluding padding does not help either (neighbours and padding then change it by {outside:.1g})",
            outside > SUBSTANTIAL,
        ),
        ClaimCheck(
            "but it then leaks the future, which a decoder must not see: another last word changes the others "
            f"by {instance_real.by_last_word:.1%}",
            instance_real.by_last_word > SUBSTANTIAL,
        ),
    )


def _chart(title: str, x_label: str, x: tuple[int, ...], lines: dict[str, list[float]]) -> Chart:
    series = (Series(name, x, tuple(values)) for name, values in lines.items())
    return Chart(title, x_label, "relative change of a sentence's vectors", tuple(series))
