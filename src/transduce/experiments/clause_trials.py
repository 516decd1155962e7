"""Trainings of the long-clause study: RNN, LSTM, GRU and Transformer as language models of about one size.

Three measurements on the generated text of `clause_text`, for distances of up to 200 words:

- accuracy by distance, with training on a mix of lengths: of one country, whose distance in training is at most half
  of the longest tested; and of many countries, any of which may be asked for;
- the gradient of the answer's loss with respect to the deciding word, before and after training;
- accuracy with training at one distance alone, where no shorter sentence shows what is to be remembered.

Every model has the same number of updates, and fewer only if it has solved its task before. Its learning rate is the
best of several on validation sentences, with the first seed. Only the answers are trained: other words are random.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.config import Config
from transduce.errors import ModelFolderError
from transduce.experiments.clause_text import WORDS, AskedCountry, ClauseBatch, ClauseTask, MarkedCountry
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
"""Cell and number of matrix pairs."""
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
    """Maximum trained distance of one country."""
    alone: tuple[int, ...] = (5, 10, 20, 50, 100, 200)
    """Distances that are trained alone."""
    rates: tuple[float, ...] = (0.001, 0.003, 0.01)
    seeds: int = 2
    lengths: int = 4
    """Different lengths in one update."""
    rows: int = 16
    """Sentences of each length in one update."""
    updates: int = 600
    updates_asked: int = 1200
    """Of many countries, which take longer to learn."""
    updates_alone: int = 300
    check_every: int = 50
    tested: int = 200
    """Sentences per tested distance."""


DEFAULT = ClauseSetting()
QUICK = ClauseSetting(
    model_dim=32,
    countries=8,
    distances=(1, 2, 4, 8, 12, 16, 24),
    trained=12,
    alone=(6, 24),
    rates=(0.01,),
    seeds=1,
    updates=150,
    updates_asked=150,
    updates_alone=100,
    check_every=25,
    tested=100,
)


@dataclass(frozen=True)
class ClauseTrial:
    """One training: a model, a task, and with `alone` the only distance that is trained."""

    model: str
    task: str
    rate: float
    seed: int
    alone: int | None = None

    @property
    def name(self) -> str:
        """For its file and for progress."""
        words = [self.model, self.task, *([] if self.alone is None else [f"{self.alone} words"])]
        return "-".join([*words, f"{self.rate:g}", str(self.seed)]).replace(" ", "_").lower()


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
    """Everything that was measured; `mixed` and `alone` are by trial."""

    setting: ClauseSetting
    rates: dict[tuple[str, str], float]
    """Chosen learning rate by model and task."""
    trials: dict[ClauseTrial, ClauseResult]
    seeds: tuple[int, ...]

    def mixed(self, model: str, task: str) -> list[ClauseResult]:
        """Return the results of each seed, trained on a mix of lengths with the chosen rate."""
        rate = self.rates[model, task]
        return [self.trials[ClauseTrial(model, task, rate, seed)] for seed in self.seeds]

    def alone(self, model: str, distance: int) -> list[ClauseResult]:
        """Return the results of each seed, trained at one distance alone."""
        task, setting = MarkedCountry.label, self.setting
        rates = {trial.rate for trial in self.trials if (trial.model, trial.alone) == (model, distance)}
        assert rates and distance in setting.alone
        (rate,) = rates
        return [self.trials[ClauseTrial(model, task, rate, seed, distance)] for seed in self.seeds]


def measure_all(conditions: Conditions, setting: ClauseSetting) -> ClauseResults:
    """Choose the rates with the first seed, then train the other seeds, and each distance alone."""
    seeds = tuple(range(conditions.seed, conditions.seed + setting.seeds))
    trials: dict[ClauseTrial, ClauseResult] = {}

    def carried_out(trial: ClauseTrial) -> ClauseResult:
        trials[trial] = kept(trial, setting, conditions.folder, conditions.report)
        return trials[trial]

    rates = {}
    for task in (MarkedCountry.label, AskedCountry.label):
        for model in MODELS:
            tried = {rate: carried_out(ClauseTrial(model, task, rate, seeds[0])) for rate in setting.rates}
            rates[model, task] = best = max(tried, key=lambda rate: _merit(tried[rate]))
            for seed in seeds[1:]:
                carried_out(ClauseTrial(model, task, best, seed))
    for model in MODELS:
        for distance in setting.alone:
            for seed in seeds:
                carried_out(ClauseTrial(model, MarkedCountry.label, rates[model, MarkedCountry.label], seed, distance))
    return ClauseResults(setting, rates, trials, seeds)


def _merit(result: ClauseResult) -> tuple[float, int]:
    """Validation accuracy, where all that solve the task are equal; then the fewest updates."""
    return min(result.validation, SOLVED), -result.updates


def kept(trial: ClauseTrial, setting: ClauseSetting, folder: Path, report: Report) -> ClauseResult:
    """Return the result of a trial that was carried out before with the same setting, or carry it out now."""
    path, made_with = folder / f"{trial.name}.json", _plain(asdict(setting))
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


def _plain(table: dict[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in table.items()}


def carry_out(trial: ClauseTrial, setting: ClauseSetting, report: Report) -> ClauseResult:
    """Train one model and test it."""
    task = task_of(trial.task, setting)
    model = cast("AnyTransducer", build(config_of(trial.model, setting), SIZES, trial.seed))
    before = copy.deepcopy(model)
    longest = trial.alone or (setting.trained if trial.task == MarkedCountry.label else setting.distances[-1])
    shortest = trial.alone or task.shortest
    checked = validation_batches(task, shortest, longest, setting, trial.seed)
    updates = setting.updates_asked if trial.task == AskedCountry.label else setting.updates
    updates = updates if trial.alone is None else setting.updates_alone
    reached = 0.0

    def loss(generator: torch.Generator) -> Tensor:
        batches = training_batches(task, shortest, longest, setting, generator)
        return torch.stack([loss_of(model, batch) for batch in batches]).mean()

    def is_solved(update: int) -> bool:
        nonlocal reached
        if update % setting.check_every == 0 or update == updates:
            rights = [right_answers(model, batch) for batch in checked]
            reached = sum(right.double().mean().item() for right in rights) / len(rights)
        return reached >= SOLVED

    schedule = linear(trial.rate, min(50, updates), updates)
    made = fit(model, loss, updates, trial.seed, report, trial.name, schedule, max_grad_norm=1.0, is_done=is_solved)
    if trial.alone is not None:
        return ClauseResult(made, reached, accuracy(model, task, (trial.alone,), setting, trial.seed))
    found = accuracy(model, task, setting.distances, setting, trial.seed)
    if trial.task != MarkedCountry.label:
        return ClauseResult(made, reached, found)
    gradients = (gradient_norms(each, task, setting, trial.seed) for each in (before, model))
    return ClauseResult(made, reached, found, *gradients)


def task_of(label: str, setting: ClauseSetting) -> ClauseTask:
    """Return the kind of text."""
    return MarkedCountry(setting.countries) if label == MarkedCountry.label else AskedCountry(setting.countries)


def config_of(model: str, setting: ClauseSetting) -> Config:
    """Return the settings of a model; all have about as many parameters as the Transformer."""
    dim, words = setting.model_dim, len(WORDS)
    if model == "Transformer":
        return GptConfig(
            model_dim=dim, num_heads=4, ffn_dim=2 * dim, num_layers=2, dropout=0.0, positions="rotary",
            tied_embeddings=False, attention_bias=False, output_bias=True,
        )  # fmt: skip
    cell, gates = RECURRENT[model]
    wanted, width = 2 * 8 * dim * dim + 2 * words * dim, 1
    while 2 * gates * width * (width + 1) + 2 * words * width < wanted:
        width += 1
    return RecurrentLmConfig(cell=cell, model_dim=width, num_layers=1, dropout=0.0, embedding_init="torch")


def training_batches(
    task: ClauseTask, shortest: int, longest: int, setting: ClauseSetting, generator: torch.Generator
) -> Iterator[ClauseBatch]:
    """Draw the sentences of one update: lengths between the shortest and the longest, evenly in their logarithm."""
    for part in range(setting.lengths):
        share = (part + torch.rand((), generator=generator).item()) / setting.lengths
        length = min(longest, int(shortest * math.exp(share * math.log((longest + 1) / shortest))))
        yield task.sample(length, setting.rows, generator)


def validation_batches(
    task: ClauseTask, shortest: int, longest: int, setting: ClauseSetting, seed: int
) -> list[ClauseBatch]:
    """Draw sentences of the longest length and of three shorter ones."""
    generator = torch_generator(seed + VALIDATION)
    lengths = sorted({max(shortest, longest // divisor) for divisor in (1, 2, 4, 16)})
    return [task.sample(length, 64, generator) for length in lengths]


def scores_of(model: AnyTransducer, batch: ClauseBatch) -> tuple[Tensor, Tensor]:
    """Return the scores at the questions, and the hidden vectors they come from.  -> (B Q V), (B Q D)."""
    nothing_B0 = batch.tokens[:, :0]
    hidden_BQD = model(batch.tokens, model.encode(nothing_B0, nothing_B0.bool()))[:, batch.asked_at]
    return model.logits(hidden_BQD), hidden_BQD


def loss_of(model: AnyTransducer, batch: ClauseBatch) -> Tensor:
    """Return the mean cross-entropy of the answers."""
    return F.cross_entropy(scores_of(model, batch)[0].flatten(0, 1), batch.answers.flatten())


@torch.no_grad()
def right_answers(model: AnyTransducer, batch: ClauseBatch) -> Tensor:
    """Return whether the right capital is the likeliest of all words.  -> (B Q)."""
    return scores_of(model, batch)[0].argmax(dim=-1) == batch.answers


def accuracy(
    model: AnyTransducer, task: ClauseTask, distances: Sequence[int], setting: ClauseSetting, seed: int
) -> dict[int, float]:
    """Return the accuracy by distance, each answer counted at the nearest of the given distances."""
    generator, right, total = torch_generator(seed + TEST), dict.fromkeys(distances, 0), dict.fromkeys(distances, 0)
    for length in task.lengths(distances):
        batch = task.sample(length, setting.tested, generator)
        for distance, is_right in zip(
            batch.distances.flatten().tolist(), right_answers(model, batch).flatten().tolist(), strict=True
        ):
            near = min(distances, key=lambda known: abs(math.log(known / distance)))
            total[near] += 1
            right[near] += is_right
    return {distance: right[distance] / total[distance] for distance in distances if total[distance] >= 20}


def gradient_norms(model: AnyTransducer, task: ClauseTask, setting: ClauseSetting, seed: int) -> dict[int, float]:
    """Return the gradient of the answer's loss with respect to the deciding word's embedding, by distance.

    It is divided by the gradient with respect to the last hidden vector, which a confident model makes small for all
    words; in double precision, the geometric mean over sentences.
    """
    model = copy.deepcopy(model).double().eval()
    embedded: list[Tensor] = []
    handle = model.get_submodule("embedding").register_forward_hook(lambda _, __, output: embedded.append(output))
    generator, norms = torch_generator(seed + TEST), {}
    for distance in setting.distances:
        batch = task.sample(distance, 32, generator)
        score_BQV, hidden_BQD = scores_of(model, batch)
        loss = F.cross_entropy(score_BQV.flatten(0, 1), batch.answers.flatten(), reduction="sum")
        at_word_BTD, at_hidden_BQD = torch.autograd.grad(loss, [embedded.pop(), hidden_BQD])
        reached_B = at_word_BTD.norm(dim=-1).gather(1, batch.decided_at)[:, 0] / at_hidden_BQD.norm(dim=-1)[:, 0]
        norms[distance] = reached_B.clamp(min=1e-300).log().mean().exp().item()
    handle.remove()
    return norms
