"""Learning rates by hand."""

from __future__ import annotations

import math

import pytest

from transduce.training.config import TrainingConfig
from transduce.training.optimizer import build_schedule, constant, cosine, inverse_sqrt, linear, noam


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        (1, 1.746928107421711e-07),  # 512^-0.5 · 4000^-1.5
        (2000, 3.493856214843422e-04),
        (4000, 6.987712429686843e-04),  # the peak: (512 · 4000)^-0.5
        (16_000, 3.493856214843422e-04),  # four times as late, half as fast
        (100_000, 1.3975424859373686e-04),  # (512 · 100000)^-0.5
    ],
)
def test_noam_is_the_formula_of_section_5_3(update: int, expected: float) -> None:
    """d_model = 512 and 4000 updates of warmup, the numbers worked out with a pocket calculator."""
    assert noam(1.0, 512, 4000)(update) == pytest.approx(expected, rel=1e-12)
    assert noam(1.0, 512, 4000)(update) == pytest.approx(512**-0.5 * min(update**-0.5, update * 4000**-1.5), rel=1e-12)


def test_noams_factor_multiplies_and_width_divides() -> None:
    assert noam(3.0, 512, 4000)(77) == pytest.approx(3 * noam(1.0, 512, 4000)(77))
    assert noam(1.0, 128, 4000)(77) == pytest.approx(2 * noam(1.0, 512, 4000)(77))


def test_noam_without_warmup_only_falls() -> None:
    assert [noam(1.0, 4, 0)(update) for update in (1, 4, 25)] == pytest.approx([0.5, 0.25, 0.1])


def test_inverse_sqrt_rises_in_a_line_to_its_peak_and_falls_with_the_root() -> None:
    rate = inverse_sqrt(0.002, 400)
    assert [rate(update) for update in (1, 100, 400, 1600, 10_000)] == pytest.approx(
        [0.002 / 400, 0.0005, 0.002, 0.001, 0.0004]
    )


def test_inverse_sqrt_is_noam_with_a_named_peak() -> None:
    peak = 512**-0.5 * 4000**-0.5
    for update in (1, 17, 3999, 4000, 4001, 123_457):
        assert inverse_sqrt(peak, 4000)(update) == pytest.approx(noam(1.0, 512, 4000)(update), rel=1e-12)


def test_cosine_falls_along_half_a_cosine_to_zero() -> None:
    rate = cosine(0.01, 20, 120)
    assert [rate(update) for update in (1, 10, 20)] == pytest.approx([0.0005, 0.005, 0.01])
    assert rate(45) == pytest.approx(0.005 * (1 + math.sqrt(0.5)))  # a quarter of the way: cos 45°
    assert [rate(70), rate(120)] == pytest.approx([0.005, 0.0])


def test_linear_falls_in_a_line_to_zero_just_after_the_last_update() -> None:
    rate = linear(0.03, 3, 13)
    assert [rate(update) for update in range(1, 14)] == pytest.approx(
        [0.01, 0.02, 0.03] + [0.003 * left for left in range(10, 0, -1)]
    )
    assert rate(14) == 0.0


def test_constant_rises_and_stays() -> None:
    assert [constant(0.5, 4)(update) for update in (1, 2, 4, 5, 10_000)] == pytest.approx([0.125, 0.25, 0.5, 0.5, 0.5])


@pytest.mark.parametrize("schedule", ["noam", "inverse_sqrt", "cosine", "linear", "constant"])
@pytest.mark.parametrize("warmup", [0, 1, 7, 100])
def test_every_schedule_is_positive_from_the_first_update_to_the_last_but_one(schedule: str, warmup: int) -> None:
    """Also where the warmup is nothing, or longer than the run."""
    config = TrainingConfig(schedule=schedule, warmup=warmup, updates=50, learning_rate=0.1)
    rate = build_schedule(config, model_dim=64)
    rates = [rate(update) for update in range(1, 51)]
    assert all(0 < value <= 0.1 + 1e-12 for value in rates[:-1])
    assert rates[-1] >= 0


def test_a_recipe_names_its_schedule() -> None:
    config = TrainingConfig(learning_rate=2.0, warmup=4000)
    assert build_schedule(config, 512)(4000) == pytest.approx(2 * 6.987712429686843e-04)
    config = TrainingConfig(schedule="linear", learning_rate=0.03, warmup=3, updates=13)
    assert build_schedule(config, 512)(13) == pytest.approx(0.003)


def test_a_fraction_of_warmup_is_one_of_the_updates() -> None:
    config = TrainingConfig(schedule="linear", learning_rate=0.01, warmup=0.25, updates=40)
    rate = build_schedule(config, 64)
    assert [rate(update) for update in (5, 10, 40)] == pytest.approx([0.005, 0.01, 0.01 / 30])
    assert rate(41) == 0.0
