"""What a person sees of a run on a terminal."""

from __future__ import annotations

import io
import math

from rich.console import Console

from transduce.cli.display import LiveDisplay
from transduce.training.reporter import Step


def test_a_loss_that_is_not_a_number_is_forgotten() -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=120)
    display = LiveDisplay(console)
    for update, loss in enumerate((math.nan, 3.0, math.nan, 2.0), start=1):
        display.step(Step(update, 0, loss, 0.001, 1.0, 100, 0.5))
        console.print(display._live.get_renderable())
    assert shown.getvalue().count("loss nan") == 1
    assert "loss 2.950" in shown.getvalue()
