"""One vector against attention, by sentence length (the figure of Bahdanau et al. 2015).

Three recurrent encoder-decoders translate sentences of an invented language, in which every word is followed by one of
two; each word has one translation, and every two neighbours change places. Everything must pass through the decoder's
initial state (Sutskever et al.), through one vector that is given to every step (Cho et al.), or the decoder attends
to all source positions (Bahdanau et al.). Sentences longer than those in training are tested, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transduce.evaluation.metrics import select_metrics
from transduce.experiments.finding import Chart, ClaimCheck, Finding, Report, Series, fit, silent
from transduce.experiments.pairs import PairBatch, batch_of, build_translator, greedy, loss
from transduce.models.interface import AnyTransducer
from transduce.models.rnn import RnnConfig
from transduce.rng import torch_generator

KEPT = 0.9
"""Share of the BLEU of short sentences that a model must keep to count as unharmed by length."""


@dataclass(frozen=True)
class BottleneckSetting:
    """Sizes of the models and of the language."""

    hidden: int = 128
    embedding: int = 48
    words: int = 20
    shortest: int = 4
    trained: int = 16
    """Maximum length in training."""
    lengths: tuple[int, ...] = (4, 6, 8, 12, 16, 20, 24)
    """Tested lengths in rising order, of at least four words, which BLEU needs; `trained` is one of them."""
    batch: int = 40
    updates: int = 800
    tested: int = 100
    """Sentences of each length."""


DEFAULT = BottleneckSetting()
Scores = Mapping[str, Mapping[int, float]]
"""BLEU by model and length."""


def configs(setting: BottleneckSetting) -> dict[str, RnnConfig]:
    """Return the three models by name, with the same cells and widths.

    Without attention the source is reversed, which brings its first words near (Sutskever et al., section 3.3).
    """
    plain = RnnConfig(
        cell="gru", embedding_dim=setting.embedding, hidden_dim=setting.hidden, attention="additive", dropout=0.0
    )
    one_way = plain.but(bidirectional=False, reverse_source=True)
    return {
        "initial state only": one_way.but(attention="none"),
        "one context vector": one_way.but(attention="context"),
        "attention": plain,
    }


def translate(words: Sequence[int], vocabulary: int) -> list[int]:
    """Translate a sentence: swap every two neighbours, and replace each word."""
    swapped = [word for at in range(0, len(words), 2) for word in reversed(words[at : at + 2])]
    return [(7 * word + 3) % vocabulary for word in swapped]


def random_sentences(count: int, length: int, words: int, generator: torch.Generator) -> list[list[int]]:
    """Return random sentences: a word w is followed by 3w + 1 or by 3w + 6, both modulo the number of words."""
    first_B = torch.randint(words, (count,), generator=generator)
    choice_BN = torch.randint(2, (count, length), generator=generator)
    rows = [[word] for word in first_B.tolist()]
    for row, choices in zip(rows, choice_BN.tolist(), strict=True):
        for choice in choices[1:]:
            row.append((3 * row[-1] + 1 + 5 * choice) % words)
    return rows


def sentences(setting: BottleneckSetting, generator: torch.Generator) -> PairBatch:
    """Return sentences of random lengths with their translations."""
    span = setting.trained - setting.shortest + 1
    lengths = setting.shortest + torch.randint(span, (setting.batch,), generator=generator)
    rows = random_sentences(setting.batch, setting.trained, setting.words, generator)
    sources = [row[:length] for row, length in zip(rows, lengths.tolist(), strict=True)]
    return batch_of(sources, [translate(row, setting.words) for row in sources])


def measure(seed: int = 1, report: Report = silent, setting: BottleneckSetting = DEFAULT) -> Finding:
    """Train the three models on the same sentences, and score translations by length."""
    scores = {name: scores_of(name, setting, seed, report) for name in configs(setting)}
    return Finding(
        title="One vector against attention, by length",
        claim="a decoder that knows the source by one vector gets worse as sentences get longer; with attention it "
        "does not.",
        setting={
            "cell": "GRU",
            "width": setting.hidden,
            "words": setting.words,
            "training lengths": f"{setting.shortest} to {setting.trained}",
            "updates": setting.updates,
            "sentences per length": setting.tested,
        },
        columns=("source", *(f"{length} words" for length in setting.lengths)),
        rows=tuple((name, *(own[length] for length in setting.lengths)) for name, own in scores.items()),
        charts=(
            Chart(
                f"BLEU by length, trained to {setting.trained}",
                "words of the sentence",
                "BLEU",
                tuple(Series(name, tuple(map(float, own)), tuple(own.values())) for name, own in scores.items()),
            ),
        ),
        checks=checks(setting, scores),
    )


def scores_of(name: str, setting: BottleneckSetting, seed: int, report: Report) -> dict[int, float]:
    """Train one model; return its BLEU at every length."""
    model = build_translator(configs(setting)[name], setting.words, setting.words, seed)

    def batch_loss(generator: torch.Generator) -> Tensor:
        return loss(model, sentences(setting, generator))

    fit(model, batch_loss, setting.updates, seed, report, f"{name}: updates", max_grad_norm=1.0)
    return {length: bleu(model, setting, length, seed) for length in setting.lengths}


def bleu(model: AnyTransducer, setting: BottleneckSetting, length: int, seed: int) -> float:
    """Return the BLEU of greedy translations of new sentences."""
    sources = random_sentences(setting.tested, length, setting.words, torch_generator(seed + 1000 + length))
    truth = [translate(row, setting.words) for row in sources]
    found = greedy(model, batch_of(sources, truth).source, 2 * length)
    texts, references = ([" ".join(f"w{word}" for word in row) for row in rows] for rows in (found, truth))
    return select_metrics(["bleu"], tokenize="none")["bleu"].score(texts, references).value


def checks(setting: BottleneckSetting, scores: Scores) -> tuple[ClaimCheck, ...]:
    """Check the claim on BLEU by length."""
    first, trained, longest = setting.lengths[0], setting.trained, setting.lengths[-1]
    state, context, attention = (scores[name] for name in configs(setting))
    return (
        ClaimCheck(
            f"short sentences ({first} words) are translated by all three ({state[first]:.0f}, "
            f"{context[first]:.0f} and {attention[first]:.0f} BLEU)",
            min(own[first] for own in scores.values()) > KEPT * 100,
        ),
        ClaimCheck(
            f"from {first} to {trained} words, within the lengths of training, one vector gets worse: "
            f"{state[trained]:.0f} BLEU by the initial state, {context[trained]:.0f} with the vector at every step",
            max(state[trained] / max(state[first], 1), context[trained] / max(context[first], 1)) < KEPT,
        ),
        ClaimCheck(
            f"with attention BLEU stays ({attention[trained]:.0f} at {trained} words)",
            attention[trained] > KEPT * attention[first],
        ),
        ClaimCheck(
            f"with attention it stays beyond the lengths of training, too ({attention[longest]:.0f} at {longest} "
            "words)",
            attention[longest] > KEPT * attention[first],
        ),
    )
