"""Trainings of the long-clause study: RNN, LSTM, GRU and Transformer as language models of about one size.

Three measurements on the generated sentences of `clause_text`:

- accuracy by distance, trained on a mix of distances, and tested up to twice as far;
- the gradient of the answer's loss with respect to the deciding word, before and after this training;
- accuracy by distance, trained at each distance alone: no shorter sentence shows what is to be remembered.

Every model has the same number of updates, and fewer only if it has solved its task before. Its learning rate is the
best of several on validation sentences, with the first seed. Only the answer is trained: the other words are random.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.config import Config
from transduce.errors import ModelFolderError
from transduce.experiments.clause_text import WORDS, ClauseBatch, sample_sentences
from transduce.experiments.finding import Conditions, Report, fit
from transduce.models.catalog import build
from transduce.models.gpt import GptConfig
from transduce.models.interface import AnyTransducer, VocabularySizes
from transduce.models.recurrent_lm import RecurrentLmConfig
from transduce.nn.recurrence import Cell
from transduce.rng import torch_generator
from transduce.storage.atomic import read_json, write_json
from transduce.training.optimizer import linear

RECURRENT: dict[str, tuple[Cell, int]] = {"RNN": ("rnn", 1), "LSTM": ("lstm", 4), "GRU": ("gru", 3)}
"""Cell, and how many times a plain RNN's weights it has."""
MODELS = (*RECURRENT, "Transformer")
SIZES = VocabularySizes(len(WORDS), len(WORDS))
SOLVED = 0.99
"""Validation accuracy at which training ends."""
VALIDATION, TEST = 10_000, 20_000
"""Added to the seed for sentences that are not trained on."""


@dataclass(frozen=True)
class ClauseSetting:
    """Sizes of the models and of the text."""

    model_dim: int = 64
    """Width of the Transformer; recurrent networks get the width that gives them as many parameters."""
    countries: int = 32
    distances: tuple[int, ...] = (1, 2, 3, 5, 7, 10, 14, 20, 28, 40, 57, 80, 100, 120, 140, 170, 200)
    """Tested distances, in words."""
    trained: int = 100
    """Maximum trained distance of the mix."""
    alone: tuple[int, ...] = (2, 5, 10, 20, 50, 100, 200)
    """Distances that are trained alone."""
    rates: tuple[float, ...] = (0.001, 0.003, 0.01)
    """Learning rates to choose from."""
    seeds: int = 2
    lengths: int = 4
    """Different distances in one update of the mix."""
    rows: int = 64
    """Sentences in one update."""
    updates: int = 600
    updates_alone: int = 400
    check_every: int = 50
    """Updates between two validations."""
    tested: int = 300
    """Sentences per tested distance."""


DEFAULT = ClauseSetting()
QUICK = ClauseSetting(
    model_dim=32,
    countries=8,
    distances=(1, 2, 4, 8, 12, 16, 24),
    trained=12,
    alone=(4, 24),
    rates=(0.01,),
    seeds=1,
    rows=32,
    updates=100,
    updates_alone=60,
    check_every=20,
    tested=100,
)


@dataclass(frozen=True)
class ClauseTrial:
    """One training: a model, its learning rate, a seed, and with `alone` the only distance that is trained."""

    model: str
    rate: float
    seed: int
    alone: int | None = None

    @property
    def name(self) -> str:
        """For its file and for progress."""
        trained_at = "mix" if self.alone is None else f"{self.alone}-words"
        return f"{self.model.lower()}-{trained_at}-{self.rate:g}-{self.seed}"


@dataclass(frozen=True)
class ClauseResult:
    """What one training led to; distances are the keys."""

    updates: int
    """Updates made; fewer than allowed if the task was solved."""
    validation: float
    """Accuracy on validation sentences."""
    accuracy: dict[int, float]
    """On test sentences."""
    gradient_before: dict[int, float] = field(default_factory=dict)
    """Gradient at the deciding word, before training."""
    gradient_after: dict[int, float] = field(default_factory=dict)

    @classmethod
    def from_json(cls, table: dict[str, Any]) -> ClauseResult:
        """Read what `asdict` wrote: keys of JSON are strings."""
        values: dict[str, Any] = {
            name: {int(key): number for key, number in value.items()} if isinstance(value, dict) else value
            for name, value in table.items()
        }
        return cls(**values)


@dataclass(frozen=True)
class ClauseResults:
    """Everything that was measured."""

    setting: ClauseSetting
    rates: dict[str, float]
    """Chosen learning rate by model."""
    trials: dict[ClauseTrial, ClauseResult]
    seeds: tuple[int, ...]

    def of(self, model: str, alone: int | None = None) -> list[ClauseResult]:
        """Return the results of each seed, trained on the mix or at one distance."""
        return [self.trials[ClauseTrial(model, self.rates[model], seed, alone)] for seed in self.seeds]


def measure_all(conditions: Conditions, setting: ClauseSetting) -> ClauseResults:
    """Choose the rates with the first seed, then train the other seeds, and each distance alone."""
    seeds = tuple(range(conditions.seed, conditions.seed + setting.seeds))
    trials: dict[ClauseTrial, ClauseResult] = {}

    def carried_out(trial: ClauseTrial) -> ClauseResult:
        trials[trial] = kept(trial, setting, conditions.folder, conditions.report)
        return trials[trial]

    rates: dict[str, float] = {}
    for model in MODELS:
        tried = {rate: carried_out(ClauseTrial(model, rate, seeds[0])) for rate in setting.rates}
        rates[model] = max(tried, key=lambda rate: _merit(tried[rate]))
        for seed in seeds[1:]:
            carried_out(ClauseTrial(model, rates[model], seed))
    for model in MODELS:
        for distance in setting.alone:
            for seed in seeds:
                carried_out(ClauseTrial(model, rates[model], seed, distance))
    return ClauseResults(setting, rates, trials, seeds)


def _merit(result: ClauseResult) -> tuple[float, int]:
    """Validation accuracy, where all that solve the task are equal; then the fewest updates."""
    return min(result.validation, SOLVED), -result.updates


def kept(trial: ClauseTrial, setting: ClauseSetting, folder: Path, report: Report) -> ClauseResult:
    """Return the result of a trial that was carried out before with the same setting, or carry it out now."""
    path = folder / f"{trial.name}.json"
    made_with = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(setting).items()}
    if path.exists():
        try:
            table = read_json(path)
        except ModelFolderError:
            table = {}
        if table.get("setting") == made_with:
            return ClauseResult.from_json(table["result"])
    result = carry_out(trial, setting, report)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, {"setting": made_with, "result": asdict(result)})
    return result


def carry_out(trial: ClauseTrial, setting: ClauseSetting, report: Report) -> ClauseResult:
    """Train one model and test it."""
    model = cast("AnyTransducer", build(config_of(trial.model, setting), SIZES, trial.seed))
    before = copy.deepcopy(model)
    checked = validation_batches(trial, setting)
    updates = setting.updates if trial.alone is None else setting.updates_alone
    reached = 0.0

    def loss(generator: torch.Generator) -> Tensor:
        return torch.stack([loss_of(model, batch) for batch in training_batches(trial, setting, generator)]).mean()

    def is_solved(update: int) -> bool:
        nonlocal reached
        if update % setting.check_every == 0 or update == updates:
            reached = sum(right_answers(model, batch) for batch in checked) / len(checked)
        return reached >= SOLVED

    schedule = linear(trial.rate, min(50, updates), updates)
    made = fit(model, loss, updates, trial.seed, report, trial.name, schedule, max_grad_norm=1.0, is_done=is_solved)
    if trial.alone is not None:
        return ClauseResult(made, reached, accuracy(model, (trial.alone,), setting, trial.seed))
    found = accuracy(model, setting.distances, setting, trial.seed)
    gradients = (gradient_norms(each, setting, trial.seed) for each in (before, model))
    return ClauseResult(made, reached, found, *gradients)


def config_of(model: str, setting: ClauseSetting) -> Config:
    """Return the settings of a model; all have about as many parameters as the Transformer."""
    dim, words = setting.model_dim, len(WORDS)
    if model == "Transformer":
        return GptConfig(
            model_dim=dim,
            num_heads=4,
            ffn_dim=2 * dim,
            num_layers=2,
            dropout=0.0,
            positions="rotary",
            tied_embeddings=False,
            attention_bias=False,
            output_bias=True,
        )
    cell, gates = RECURRENT[model]
    wanted, width = 2 * 8 * dim * dim + 2 * words * dim, 1
    while 2 * gates * width * (width + 1) + 2 * words * width < wanted:
        width += 1
    return RecurrentLmConfig(cell=cell, model_dim=width, num_layers=1, dropout=0.0, embedding_init="torch")


def training_batches(trial: ClauseTrial, setting: ClauseSetting, generator: torch.Generator) -> Iterator[ClauseBatch]:
    """Draw the sentences of one update; distances of the mix are spread evenly over the logarithm."""
    if trial.alone is not None:
        yield sample_sentences(trial.alone, setting.rows, setting.countries, generator)
        return
    for part in range(setting.lengths):
        share = (part + torch.rand((), generator=generator).item()) / setting.lengths
        distance = min(setting.trained, int((setting.trained + 1) ** share))
        yield sample_sentences(distance, setting.rows // setting.lengths, setting.countries, generator)


def validation_batches(trial: ClauseTrial, setting: ClauseSetting) -> list[ClauseBatch]:
    """Draw sentences of the farthest distance and of three shorter ones, or of the one that is trained."""
    generator = torch_generator(trial.seed + VALIDATION)
    mixed = sorted({max(1, setting.trained // divisor) for divisor in (1, 2, 4, 16)})
    distances = mixed if trial.alone is None else [trial.alone]
    return [sample_sentences(distance, 100, setting.countries, generator) for distance in distances]


def scores_of(model: AnyTransducer, batch: ClauseBatch) -> tuple[Tensor, Tensor]:
    """Return the scores of the answer, and the hidden vectors they come from.  -> (B V), (B D)."""
    nothing_B0 = batch.tokens[:, :0]
    hidden_BD = model(batch.tokens, model.encode(nothing_B0, nothing_B0.bool()))[:, -1]
    return model.logits(hidden_BD), hidden_BD


def loss_of(model: AnyTransducer, batch: ClauseBatch) -> Tensor:
    """Return the mean cross-entropy of the answers."""
    return F.cross_entropy(scores_of(model, batch)[0], batch.answers)


@torch.no_grad()
def right_answers(model: AnyTransducer, batch: ClauseBatch) -> float:
    """Return the share of sentences in which the right capital is the likeliest of all words."""
    return (scores_of(model, batch)[0].argmax(dim=-1) == batch.answers).double().mean().item()


def accuracy(model: AnyTransducer, distances: Sequence[int], setting: ClauseSetting, seed: int) -> dict[int, float]:
    """Return the accuracy on test sentences by distance."""
    generator = torch_generator(seed + TEST)
    return {
        distance: right_answers(model, sample_sentences(distance, setting.tested, setting.countries, generator))
        for distance in distances
    }


def gradient_norms(model: AnyTransducer, setting: ClauseSetting, seed: int) -> dict[int, float]:
    """Return the gradient of the answer's loss with respect to the deciding word's embedding, by distance.

    It is divided by the gradient with respect to the last hidden vector, which a confident model makes small for all
    words; in double precision, the geometric mean over sentences.
    """
    model = copy.deepcopy(model).double().eval()
    embedded: list[Tensor] = []
    handle = model.get_submodule("embedding").register_forward_hook(lambda _, __, output: embedded.append(output))
    generator, norms = torch_generator(seed + TEST), {}
    for distance in setting.distances:
        batch = sample_sentences(distance, 32, setting.countries, generator)
        score_BV, hidden_BD = scores_of(model, batch)
        loss = F.cross_entropy(score_BV, batch.answers, reduction="sum")
        at_word_BTD, at_hidden_BD = torch.autograd.grad(loss, [embedded.pop(), hidden_BD])
        reached_B = at_word_BTD[:, batch.decided_at].norm(dim=-1) / at_hidden_BD.norm(dim=-1)
        norms[distance] = reached_B.clamp(min=1e-300).log().mean().exp().item()
    handle.remove()
    return norms
