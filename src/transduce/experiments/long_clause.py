"""The long clause: how far back the deciding word may be, for recurrent language models and for a Transformer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from transduce.experiments.clause_text import AskedCountry, MarkedCountry
from transduce.experiments.clause_trials import (
    DEFAULT,
    MODELS,
    QUICK,
    RECURRENT,
    SIZES,
    ClauseResult,
    ClauseResults,
    ClauseSetting,
    config_of,
    measure_all,
)
from transduce.experiments.finding import Cell, Chart, ClaimCheck, Conditions, Finding, Series
from transduce.models.catalog import build

ONE, MANY = MarkedCountry.label, AskedCountry.label
NEAR_CHANCE = 0.05
"""An accuracy this near to chance counts as chance."""
KNOWN = 0.95
"""Accuracy from which on a model counts as knowing the answer."""
VANISHED = 1e-3
"""Gradient relative to that at the smallest distance."""
STEADY = 10.0
"""Factor by which a gradient may change with distance and still count as constant."""


def run(conditions: Conditions, setting: ClauseSetting | None = None) -> Finding:
    """Train all models, or take the results of earlier trainings, and draw the conclusions."""
    setting = setting or (QUICK if conditions.quick else DEFAULT)
    return finding_of(measure_all(conditions, setting))


def finding_of(results: ClauseResults) -> Finding:
    """Return table, charts and checks."""
    setting = results.setting
    return Finding(
        title="A deciding word, n words back",
        claim="in a recurrent network what decided many words ago is diluted in the states between, and its gradient "
        "vanishes; attention reads it directly, at any distance.",
        setting={
            "words": SIZES.target,
            "countries": setting.countries,
            "trained distance": setting.trained,
            "tested distance": setting.distances[-1],
            "updates": setting.updates,
            "updates of many countries": setting.updates_asked,
            "updates at one distance": setting.updates_alone,
            "sentences per update": setting.lengths * setting.rows,
            "rates tried": " ".join(f"{rate:g}" for rate in setting.rates),
            "seeds": len(results.seeds),
        },
        columns=(
            "text",
            "model",
            "seed",
            "parameters",
            "rate",
            "updates",
            *(f"{distance} back" for distance in shown(setting)),
            "halfway at",
            "chance at",
        ),
        rows=tuple(
            row
            for task in (ONE, MANY)
            for model in MODELS
            for seed, result in zip(results.seeds, results.mixed(model, task), strict=True)
            for row in [_row(results, task, model, seed, result)]
        ),
        charts=_charts(results),
        checks=_checks(results),
    )


def shown(setting: ClauseSetting) -> list[int]:
    """Return the distances of the table: the ends, the trained one, and some between."""
    longest = setting.distances[-1]
    wanted = (setting.distances[0], longest // 20, longest // 5, setting.trained, longest)
    return sorted({min(setting.distances, key=lambda known: abs(known - each)) for each in wanted})


def falls_below(accuracy: dict[int, float], level: float) -> float | None:
    """Return the distance at which the accuracy falls below a level, interpolated in the logarithm of the distance.

    None if it never does; the first distance if it is below from the beginning.
    """
    before: tuple[int, float] | None = None
    for distance, reached in accuracy.items():
        if reached < level:
            if before is None:
                return float(distance)
            share = (before[1] - level) / (before[1] - reached)
            return math.exp(math.log(before[0]) + share * math.log(distance / before[0]))
        before = distance, reached
    return None


def longest_alone(results: ClauseResults, model: str) -> int:
    """Return the longest distance at which every seed learned without shorter sentences; 0 for none."""
    known = [
        distance
        for distance in results.setting.alone
        if all(one.accuracy[distance] >= KNOWN for one in results.alone(model, distance))
    ]
    return max(known, default=0)


def _levels(setting: ClauseSetting) -> tuple[float, float]:
    chance = 1 / setting.countries
    return (1 + chance) / 2, chance + NEAR_CHANCE


def _row(results: ClauseResults, task: str, model: str, seed: int, result: ClauseResult) -> tuple[Cell, ...]:
    setting = results.setting
    fallen = (falls_below(result.accuracy, level) for level in _levels(setting))
    return (
        task,
        model,
        seed,
        sum(weight.numel() for weight in build(config_of(model, setting), SIZES).parameters()),
        results.rates[model, task],
        result.updates,
        *(result.accuracy.get(distance, "") for distance in shown(setting)),
        *(f"over {setting.distances[-1]}" if at is None else round(at) for at in fallen),
    )


def mean_over_seeds(results: Sequence[ClauseResult], name: str) -> dict[int, float]:
    """Return the mean of a measurement by distance; for gradients the geometric mean, relative to the first."""
    tables: list[dict[int, float]] = [getattr(result, name) for result in results]
    distances = [each for each in tables[0] if all(each in table for table in tables)]
    if name == "accuracy":
        return {each: sum(table[each] for table in tables) / len(tables) for each in distances}
    relative = [{each: math.log(table[each] / table[distances[0]]) for each in distances} for table in tables]
    return {each: math.exp(sum(table[each] for table in relative) / len(tables)) for each in distances}


def _charts(results: ClauseResults) -> tuple[Chart, ...]:
    setting = results.setting

    def series(values: Callable[[str], dict[int, float]]) -> tuple[Series, ...]:
        found = {model: values(model) for model in MODELS}
        return tuple(Series(model, tuple(map(float, each)), tuple(each.values())) for model, each in found.items())

    def mixed(task: str, name: str) -> tuple[Series, ...]:
        return series(lambda model: mean_over_seeds(results.mixed(model, task), name))

    alone = series(
        lambda model: {
            distance: mean_over_seeds(results.alone(model, distance), "accuracy")[distance]
            for distance in setting.alone
        }
    )
    back, right, gradient = "words back", "accuracy", "gradient, relative"
    return (
        Chart(f"One country, trained to {setting.trained} words", back, right, mixed(ONE, "accuracy"), log_x=True),
        Chart("Many countries, any of them asked for", back, right, mixed(MANY, "accuracy"), log_x=True),
        Chart("One country, trained at this distance alone", back, right, alone, log_x=True),
        Chart("Gradient at the country, before training", back, gradient, mixed(ONE, "gradient_before"), log_y=True),
        Chart("Gradient at the country, after training", back, gradient, mixed(ONE, "gradient_after"), log_y=True),
    )


def _checks(results: ClauseResults) -> tuple[ClaimCheck, ...]:
    setting = results.setting
    halfway, farthest = _levels(setting)[0], setting.distances[-1]

    def accuracy(model: str, task: str) -> dict[int, float]:
        return mean_over_seeds(results.mixed(model, task), "accuracy")

    def last(model: str, name: str) -> float:
        return mean_over_seeds(results.mixed(model, ONE), name)[farthest]

    def listed(numbers: dict[str, str]) -> str:
        return ", ".join(f"{model} {number}" for model, number in numbers.items())

    fallen = {task: {model: falls_below(accuracy(model, task), halfway) for model in MODELS} for task in (ONE, MANY)}
    where = {
        task: listed({model: "never" if at is None else f"{at:.0f}" for model, at in found.items()})
        for task, found in fallen.items()
    }
    before, after = ({model: last(model, name) for model in MODELS} for name in ("gradient_before", "gradient_after"))
    alone = {model: longest_alone(results, model) for model in MODELS}
    worst = {task: min(accuracy("Transformer", task).values()) for task in (ONE, MANY)}
    return (
        ClaimCheck(
            f"one country: every recurrent network falls below halfway to chance within {farthest} words "
            f"({where[ONE]})",
            all(fallen[ONE][model] is not None for model in RECURRENT),
        ),
        ClaimCheck(
            f"one country: the Transformer knows it at every distance, also beyond the trained {setting.trained} words "
            f"(at least {worst[ONE]:.0%})",
            worst[ONE] >= KNOWN,
        ),
        ClaimCheck(
            f"many countries, any of them asked for: every recurrent network falls below halfway ({where[MANY]})",
            all(fallen[MANY][model] is not None for model in RECURRENT),
        ),
        ClaimCheck(
            f"many countries: the Transformer knows each of them (at least {worst[MANY]:.0%})", worst[MANY] >= KNOWN
        ),
        ClaimCheck(
            f"before training, the gradient of every recurrent network vanishes with {farthest} words: below "
            f"{VANISHED:g} of that at {setting.distances[0]} ({listed({m: f'{before[m]:.1g}' for m in MODELS})})",
            all(before[model] < VANISHED for model in RECURRENT),
        ),
        ClaimCheck(
            f"after training it still does ({listed({m: f'{after[m]:.1g}' for m in MODELS})})",
            all(after[model] < VANISHED for model in RECURRENT),
        ),
        ClaimCheck(
            f"the Transformer's stays within a factor of {STEADY:g}, before and after",
            all(1 / STEADY < found["Transformer"] < STEADY for found in (before, after)),
        ),
        ClaimCheck(
            "without shorter sentences, a recurrent network learns at short distances only, a Transformer at all "
            f"(longest learned: {listed({model: f'{distance}' for model, distance in alone.items()})})",
            all(alone[model] < alone["Transformer"] for model in RECURRENT)
            and alone["Transformer"] == setting.alone[-1],
        ),
    )
