"""The pronoun by distance: a Transformer and RNNs with and without attention, trained on the same pairs.

Between the nouns and the pronoun stands a clause of 0 to 32 words ("when the bell rang and the wind blew …"). All
lengths are mixed in training, where half of the pairs are plain; the test has held-out combinations only, as many of
each length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from transduce.config import Table
from transduce.experiments.pronoun_corpus import Order, Variety, draw_scenes
from transduce.experiments.pronoun_probe import Probe
from transduce.experiments.pronoun_training import (
    PronounSizes,
    make_recipe,
    train_or_reuse,
    transformer,
    write_corpus,
)
from transduce.experiments.pronoun_words import Language
from transduce.inference.load import load_translator
from transduce.nn.hook import twin
from transduce.training.reporter import Silent

CLAUSE_EVENTS = (0, 1, 2, 4, 8)
"""Events of the clause: 0, 4, 8, 16 and 32 words."""
WORDS_PER_EVENT = 4
NOUNS_FIRST: tuple[Order, ...] = ("active", "adverb-first", "passive")


@dataclass(frozen=True)
class LengthCurve:
    """Accuracy of one model by the number of words between nouns and pronoun."""

    name: str
    words: tuple[int, ...]
    accuracy: tuple[float, ...]
    train_seconds: float


def models(width: int) -> dict[str, Table]:
    """The models by name: the demo's Transformer, and RNNs of the same width."""
    sizes = {"embedding_dim": width, "hidden_dim": 2 * width, "num_layers": 1, "dropout": 0.0}
    return {
        "Transformer": transformer(width),
        "RNN with attention": {"name": "rnn", "preset": "bahdanau", **sizes},
        "RNN without attention": {"name": "rnn", "preset": "sutskever", **sizes},
    }


def compare_lengths(folder: Path, language: Language, seed: int, sizes: PronounSizes) -> Iterator[LengthCurve]:
    """Train each model on the same pairs with the same number of updates, and yield its curve."""
    corpus = folder / "corpus"
    write_corpus(corpus, language, sizes, Variety(50, NOUNS_FIRST, CLAUSE_EVENTS))
    for name, model in models(sizes.model_dim).items():
        run = folder / name.lower().replace(" ", "-")
        recipe = make_recipe(corpus, language, model, seed, sizes, sizes.length_updates)
        seconds = train_or_reuse(recipe, run, Silent())
        yield LengthCurve(
            name,
            tuple(WORDS_PER_EVENT * count for count in CLAUSE_EVENTS),
            tuple(accuracy_by_length(run, language, sizes.per_length)),
            seconds,
        )


def accuracy_by_length(
    run: Path, language: Language, size: int, events: Sequence[int] = CLAUSE_EVENTS
) -> Iterator[float]:
    """Yield the accuracy of the pronoun for each length, under teacher forcing."""
    translator = load_translator(run)
    model = twin(translator.model).eval()
    for count in events:
        scenes = draw_scenes(
            f"length {count}", size, language, lambda s: s.is_held_out, Variety(0, NOUNS_FIRST, (count,))
        )
        yield Probe.of(scenes, language, translator.source, translator.target).accuracy(model)
