"""What a person sees of a run on a terminal."""

from __future__ import annotations

import io
import math
from types import SimpleNamespace

import pytest
from rich.console import Console

from transduce.cli.progress import LiveDisplay, PreparationProgress, Speed
from transduce.training.reporter import Step


def test_time_left_counts_what_comes_between_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two updates of half a second, and a validation of three and a half between them."""
    moments = iter((100.0, 104.0))
    monkeypatch.setattr("transduce.cli.progress.time", SimpleNamespace(monotonic=lambda: next(moments)))
    speed = Speed()
    for update in (1, 2):
        speed.add(Step(update, 0, 1.0, 0.001, 1.0, 100, 0.5))
    assert speed.tokens_per_second() == pytest.approx(200)
    assert speed.left(100) == "0:03:45"


def test_a_loss_that_is_not_a_number_is_forgotten() -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=120)
    display = LiveDisplay(console, PreparationProgress())
    for update, loss in enumerate((math.nan, 3.0, math.nan, 2.0), start=1):
        display.step(Step(update, 0, loss, 0.001, 1.0, 100, 0.5))
        console.print(display._live.get_renderable())
    assert shown.getvalue().count("loss nan") == 1
    assert "loss 2.950" in shown.getvalue()
