"""The long clause: how far back the deciding word may be, for recurrent language models and for a Transformer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

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

NEAR_CHANCE = 0.05
"""An accuracy this near to chance counts as chance."""
KNOWN = 0.95
"""Accuracy from which on a model counts as knowing the answer."""
VANISHED = 1e-3
"""Gradient relative to that at the smallest distance."""
STEADY = 10.0
"""Factor by which a gradient may change with distance and still count as constant."""
MIX, ALONE = "the mix", "each distance alone"


def run(conditions: Conditions, setting: ClauseSetting | None = None) -> Finding:
    """Train all models, or take the results of earlier trainings, and draw the conclusions."""
    setting = setting or (QUICK if conditions.quick else DEFAULT)
    return finding_of(measure_all(conditions, setting))


def finding_of(results: ClauseResults) -> Finding:
    """Return table, charts and checks."""
    setting = results.setting
    return Finding(
        title="A deciding word, n words back",
        claim="in a recurrent network what was decided many words ago is diluted in the states between, and its "
        "gradient vanishes, which makes training difficult; attention reads it directly, at any distance.",
        setting={
            "words": SIZES.target,
            "countries": setting.countries,
            "distances of the mix": f"1 to {setting.trained}",
            "updates": setting.updates,
            "updates at one distance": setting.updates_alone,
            "sentences per update": setting.rows,
            "rates tried": " ".join(f"{rate:g}" for rate in setting.rates),
            "seeds": len(results.seeds),
        },
        columns=(
            "trained on",
            "model",
            "seed",
            "parameters",
            "rate",
            "updates",
            *(f"{distance} back" for distance in _columns(setting)),
            "halfway at",
            "chance at",
        ),
        rows=tuple(
            _row(results, trained_on, model, number)
            for trained_on in (MIX, ALONE)
            for model in MODELS
            for number in range(len(results.seeds))
        ),
        charts=_charts(results),
        checks=_checks(results),
    )


def falls_below(accuracy: Mapping[int, float], level: float) -> float | None:
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


def mean_over_seeds(results: Sequence[ClauseResult], name: str) -> dict[int, float]:
    """Return the mean of a measurement by distance; for gradients the geometric mean, relative to the first."""
    tables: list[dict[int, float]] = [getattr(result, name) for result in results]
    distances = list(tables[0])
    if name == "accuracy":
        return {each: sum(table[each] for table in tables) / len(tables) for each in distances}
    relative = [{each: math.log(table[each] / table[distances[0]]) for each in distances} for table in tables]
    return {each: math.exp(sum(table[each] for table in relative) / len(tables)) for each in distances}


def alone_of(results: ClauseResults, model: str, number: int) -> dict[int, float]:
    """Return one seed's accuracy by distance, each with its own model, trained at this distance alone."""
    return {each: results.of(model, each)[number].accuracy[each] for each in results.setting.alone}


def longest_alone(results: ClauseResults, model: str) -> int:
    """Return the farthest distance at which every seed learned without shorter sentences; 0 for none."""
    by_seed = [alone_of(results, model, number) for number in range(len(results.seeds))]
    return max((each for each in results.setting.alone if all(one[each] >= KNOWN for one in by_seed)), default=0)


def _columns(setting: ClauseSetting) -> list[int]:
    """Return the distances of the table: those that are both in the mix's test and trained alone."""
    return [distance for distance in setting.alone if distance in setting.distances]


def _levels(setting: ClauseSetting) -> tuple[float, float]:
    chance = 1 / setting.countries
    return (1 + chance) / 2, chance + NEAR_CHANCE


def _row(results: ClauseResults, trained_on: str, model: str, number: int) -> tuple[Cell, ...]:
    setting, result = results.setting, results.of(model)[number]
    accuracy = result.accuracy if trained_on == MIX else alone_of(results, model, number)
    made = [result] if trained_on == MIX else [results.of(model, each)[number] for each in setting.alone]
    fallen = (falls_below(accuracy, level) for level in _levels(setting))
    return (
        trained_on,
        model,
        results.seeds[number],
        sum(weight.numel() for weight in build(config_of(model, setting), SIZES).parameters()),
        results.rates[model],
        " ".join(str(one.updates) for one in made),
        *(accuracy[distance] for distance in _columns(setting)),
        *("never" if at is None else round(at) for at in fallen),
    )


def _charts(results: ClauseResults) -> tuple[Chart, ...]:
    setting = results.setting

    def series(values: Callable[[str], Mapping[int, float]]) -> tuple[Series, ...]:
        found = {model: values(model) for model in MODELS}
        return tuple(Series(model, tuple(map(float, each)), tuple(each.values())) for model, each in found.items())

    def mixed(name: str) -> tuple[Series, ...]:
        return series(lambda model: mean_over_seeds(results.of(model), name))

    alone = series(
        lambda model: {each: mean_over_seeds(results.of(model, each), "accuracy")[each] for each in setting.alone}
    )
    back, right, gradient, whole = "words back", "accuracy", "gradient, relative to the nearest", (0.0, 1.05)
    return (
        Chart(
            f"Trained on a mix of 1 to {setting.trained} words",
            back,
            right,
            mixed("accuracy"),
            log_x=True,
            y_range=whole,
        ),
        Chart("Trained at this distance alone", back, right, alone, log_x=True, y_range=whole),
        Chart("Gradient at the country, before training", back, gradient, mixed("gradient_before"), log_y=True),
        Chart("Gradient at the country, after training", back, gradient, mixed("gradient_after"), log_y=True),
    )


def _checks(results: ClauseResults) -> tuple[ClaimCheck, ...]:
    setting = results.setting
    halfway, farthest = _levels(setting)[0], setting.distances[-1]

    def listed(numbers: Mapping[str, object]) -> str:
        return ", ".join(f"{model} {number}" for model, number in numbers.items())

    def at_farthest(name: str) -> dict[str, float]:
        return {model: mean_over_seeds(results.of(model), name)[farthest] for model in MODELS}

    reached = {model: min(min(one.accuracy.values()) for one in results.of(model)) for model in MODELS}
    fallen = {model: falls_below(mean_over_seeds(results.of(model), "accuracy"), halfway) for model in RECURRENT}
    before, after = at_farthest("gradient_before"), at_farthest("gradient_after")
    alone = {model: longest_alone(results, model) for model in MODELS}
    return (
        ClaimCheck(
            f"trained on the mix, every recurrent network falls below halfway to chance within {farthest} words "
            f"(lowest accuracy: {listed({model: f'{reached[model]:.0%}' for model in RECURRENT})})",
            all(at is not None for at in fallen.values()),
        ),
        ClaimCheck(
            f"the Transformer predicts the capital at every distance, also beyond the trained {setting.trained} words "
            f"(at least {reached['Transformer']:.0%})",
            reached["Transformer"] >= KNOWN,
        ),
        ClaimCheck(
            f"before training, every recurrent network's gradient vanishes over {farthest} words: below {VANISHED:g} "
            f"of that at {setting.distances[0]} ({listed({model: f'{before[model]:.1g}' for model in RECURRENT})})",
            all(before[model] < VANISHED for model in RECURRENT),
        ),
        ClaimCheck(
            f"after training it still does ({listed({model: f'{after[model]:.1g}' for model in RECURRENT})})",
            all(after[model] < VANISHED for model in RECURRENT),
        ),
        ClaimCheck(
            f"the Transformer's stays within a factor of {STEADY:g} ({before['Transformer']:.1g} before, "
            f"{after['Transformer']:.1g} after)",
            all(1 / STEADY < found["Transformer"] < STEADY for found in (before, after)),
        ),
        ClaimCheck(
            "trained at one distance alone, without shorter sentences, recurrent networks learn less far than the "
            f"Transformer (farthest learned by every seed: {listed(alone)})",
            all(alone[model] < alone["Transformer"] for model in RECURRENT),
        ),
        ClaimCheck(
            f"so trained, the Transformer learns at all distances, up to {setting.alone[-1]}",
            alone["Transformer"] == setting.alone[-1],
        ),
    )
