"""Label smoothing: what it does to perplexity, to accuracy and to confidence (section 5.4; Szegedy et al. 2016).

Spelling to pronunciation with the CMU Pronouncing Dictionary: real data, in which several answers are plausible and
the small training set can be memorised. Models that differ only in ε are scored on words that they have not seen.
Perplexity is that of the true phonemes without smoothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from transduce.data.cmudict import pronunciations, split
from transduce.evaluation.metrics import select_metrics
from transduce.experiments.finding import Chart, ClaimCheck, Finding, Report, Series, fit, silent
from transduce.experiments.pairs import batch_of, build_translator, cross_entropy, greedy, loss
from transduce.models.interface import AnyTransducer
from transduce.models.transformer import TransformerConfig

LETTERS = "abcdefghijklmnopqrstuvwxyz'"


@dataclass(frozen=True)
class SmoothingSetting:
    """Sizes of the model and of the data."""

    smoothing: tuple[float, ...] = (0.0, 0.1)
    """Values of ε in rising order, 0 and the paper's 0.1 among them."""
    width: int = 64
    num_layers: int = 2
    words: int = 8000
    """Training words; each with its first pronunciation."""
    tested: int = 400
    longest: int = 10
    """Letters of the longest word."""
    batch: int = 64
    updates: int = 800
    tries: int = 2
    """Models of each kind, with different random initialisations."""


DEFAULT = SmoothingSetting()


class SmoothingResult(NamedTuple):
    """Figures of one ε, means over the tries."""

    perplexity: float
    """Per phoneme of held-out words, without smoothing."""
    bleu: float
    """Of the phonemes that greedy search writes."""
    accuracy: float
    """Share of words with every phoneme right."""
    confidence: float
    """Mean probability of the best phoneme."""


class Dictionary(NamedTuple):
    """Words as numbers."""

    spellings: list[list[int]]
    phonemes: list[list[int]]

    def part(self, numbers: Sequence[int]) -> Dictionary:
        """Return some of the words."""
        return Dictionary([self.spellings[at] for at in numbers], [self.phonemes[at] for at in numbers])


class Data(NamedTuple):
    """The words of the experiment."""

    train: Dictionary
    held_out: Dictionary
    phonemes: int
    """Number of different phonemes."""


def read(setting: SmoothingSetting) -> Data:
    """Return short words of the dictionary, spread over the alphabet."""
    known = pronunciations()
    parts = split(word for word in known if len(word) <= setting.longest)
    symbols = sorted({symbol for spoken in known.values() for symbol in spoken[0].split()})
    number = {symbol: at for at, symbol in enumerate(symbols)}

    def numbers(words: Sequence[str], count: int) -> Dictionary:
        chosen = words[:: max(1, len(words) // count)][:count]
        spellings = [[LETTERS.index(letter) for letter in word] for word in chosen]
        return Dictionary(spellings, [[number[symbol] for symbol in known[word][0].split()] for word in chosen])

    return Data(numbers(parts.train, setting.words), numbers(parts.test, setting.tested), len(symbols))


def measure(seed: int = 1, report: Report = silent, setting: SmoothingSetting = DEFAULT) -> Finding:
    """Train models that differ in ε, and score them on held-out words."""
    data = read(setting)
    found = {
        smoothing: [train(data, smoothing, setting, seed + attempt, report) for attempt in range(setting.tries)]
        for smoothing in setting.smoothing
    }
    means = {smoothing: _mean(tries) for smoothing, tries in found.items()}
    return Finding(
        title="Label smoothing",
        claim="label smoothing of 0.1 hurts perplexity, as the model learns to be less sure, and improves "
        "accuracy and BLEU.",
        setting={
            "width": setting.width,
            "layers": setting.num_layers,
            "training words": setting.words,
            "held-out words": setting.tested,
            "updates": setting.updates,
            "models of each kind": setting.tries,
        },
        columns=("ε", "perplexity", "BLEU", "words correct", "worst", "best", "confidence"),
        rows=tuple(
            (
                *(smoothing, mean.perplexity, mean.bleu, mean.accuracy),
                *(min(one.accuracy for one in found[smoothing]), max(one.accuracy for one in found[smoothing])),
                mean.confidence,
            )
            for smoothing, mean in means.items()
        ),
        charts=(
            Chart(
                "Perplexity",
                "ε",
                "per phoneme",
                (Series("held-out words", setting.smoothing, tuple(mean.perplexity for mean in means.values())),),
            ),
            Chart(
                "Accuracy",
                "ε",
                "share of words",
                (Series("every phoneme right", setting.smoothing, tuple(mean.accuracy for mean in means.values())),),
            ),
        ),
        checks=checks(found),
    )


def train(data: Data, smoothing: float, setting: SmoothingSetting, seed: int, report: Report) -> SmoothingResult:
    """Train one model and score it."""
    words, held_out, symbols = data
    config = TransformerConfig(
        model_dim=setting.width,
        num_heads=4,
        ffn_dim=4 * setting.width,
        num_layers=setting.num_layers,
        norm="pre",
        dropout=0.0,
        tied_embeddings="target",
    )
    model = build_translator(config, len(LETTERS), symbols, seed)

    def batch_loss(generator: torch.Generator) -> Tensor:
        chosen = torch.randint(len(words.spellings), (setting.batch,), generator=generator).tolist()
        return loss(model, batch_of(*words.part(chosen)), smoothing)

    fit(model, batch_loss, setting.updates, seed, report, f"ε {smoothing}: updates", max_grad_norm=1.0)
    return score(model, held_out)


def score(model: AnyTransducer, words: Dictionary) -> SmoothingResult:
    """Score a model on held-out words."""
    batch = batch_of(*words)
    with torch.no_grad():
        sums, count = cross_entropy(model, batch)
        memory = model.encode(batch.source, batch.source != 0)
        real_BT = batch.target[:, 1:] != 0
        best_N = model.logits(model(batch.target[:, :-1], memory)[real_BT]).softmax(dim=-1).amax(dim=-1)
    found = greedy(model, batch.source, 2 * max(map(len, words.phonemes)))
    texts, truth = ([" ".join(f"p{symbol}" for symbol in row) for row in rows] for rows in (found, words.phonemes))
    return SmoothingResult(
        perplexity=math.exp(sums.plain.item() / count),
        bleu=select_metrics(["bleu"], tokenize="none")["bleu"].score(texts, truth).value,
        accuracy=sum(one == true for one, true in zip(found, words.phonemes, strict=True)) / len(found),
        confidence=best_N.mean().item(),
    )


def _mean(tries: Sequence[SmoothingResult]) -> SmoothingResult:
    return SmoothingResult(*(sum(values) / len(tries) for values in zip(*tries, strict=True)))


def checks(found: Mapping[float, Sequence[SmoothingResult]]) -> tuple[ClaimCheck, ...]:
    """Check the claim, ε = 0.1 against none."""
    without, smoothed = _mean(found[0.0]), _mean(found[0.1])
    apart = min(one.accuracy for one in found[0.1]) - max(one.accuracy for one in found[0.0])
    return (
        ClaimCheck(
            f"it makes the model less sure: the best phoneme has {smoothed.confidence:.2f} instead of "
            f"{without.confidence:.2f} on average",
            smoothed.confidence < without.confidence,
        ),
        ClaimCheck(
            f"it hurts perplexity ({smoothed.perplexity:.3f}, without {without.perplexity:.3f})",
            smoothed.perplexity > without.perplexity,
        ),
        ClaimCheck(
            f"it improves accuracy ({smoothed.accuracy:.1%} of the words, without {without.accuracy:.1%})",
            smoothed.accuracy > without.accuracy,
        ),
        ClaimCheck(f"it improves BLEU ({smoothed.bleu:.1f}, without {without.bleu:.1f})", smoothed.bleu > without.bleu),
        ClaimCheck(
            f"by more than other random initialisations do (worst with, minus best without: {apart:+.1%})", apart > 0
        ),
    )
