"""What a Neural Turing Machine did with its memory while it read and answered: where it wrote, where it read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from transduce.inspection import figure as picture
from transduce.inspection.replay import replay
from transduce.models.ancestors.turing_machine import TuringMachine
from transduce.nn.hook import record

Values = npt.NDArray[np.float32]

STEP = 0.16
"""Inches that one step takes, while there are few of them."""
PANEL = 1.9
"""Inches of one head's panel."""


@dataclass(frozen=True, eq=False, repr=False)
class Tape:
    """The story of one answer. Steps are the tokens of the source with its end, then those that were produced."""

    read: Values
    """(H steps N): how much each reading head looked at each place."""
    write: Values
    """(H steps N): the same of the writing heads."""
    slots: Values
    """(steps N K): the memory after each step."""
    inputs: Values
    """(steps I): the bits of the source; none while it answers, also where the machine then reads its answer."""
    outputs: Values
    """(steps O): how likely each bit of the answer is to be 1; nothing while the source is read."""
    pieces: tuple[str, ...]
    """What was read or produced at each step."""
    source: str = ""
    """The text that was read."""
    answer: str = ""
    """The text that was written."""

    def draw(self) -> bytes:
        """Return a PNG: bits in and out, where every head was, and the memory at the end; time goes to the right."""
        panels = [("read in", self.inputs.T), ("answered", self.outputs.T)]
        panels += [(f"writing head {number}: places", weights.T) for number, weights in enumerate(self.write, start=1)]
        panels += [(f"reading head {number}: places", weights.T) for number, weights in enumerate(self.read, start=1)]
        width = min(picture.LONGEST, max(4.0, STEP * len(self.pieces) + 1.5))
        figure = picture.new_figure(width, PANEL * (len(panels) + 1))
        rows = figure.subplots(len(panels) + 1, 1)
        for axes, (title, values) in zip(rows, panels, strict=False):
            axes.imshow(values, cmap="Greys", vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest")
            axes.set_title(title, fontsize=9, loc="left")
        largest = max(1e-9, float(np.abs(self.slots[-1]).max()))
        rows[-1].imshow(self.slots[-1].T, cmap="RdBu", vmin=-largest, vmax=largest, aspect="auto")
        rows[-1].set_title("the memory at the end; places go to the right", fontsize=9, loc="left")
        for axes in rows:
            axes.tick_params(labelsize=7)
        return picture.as_png(figure)

    def save_png(self, path: str | Path) -> None:
        """Write the picture (needs the extra `plot`)."""
        picture.save(Path(path), self.draw())


def has_tape(model: nn.Module) -> bool:
    """Whether a model has a memory that it writes to."""
    return isinstance(model, TuringMachine) and model.config.num_heads > 0


def tape_of(
    model: nn.Module, source_tokens: Sequence[int], target_tokens: Sequence[int], pieces: Sequence[str]
) -> Tape:
    """Replay one answer and return what happened to the memory; tokens are those of `attention_of`."""
    assert isinstance(model, TuringMachine)
    with record(model, ("read", "write", "slots")) as heard:
        answers_TO = replay(model, source_tokens, target_tokens).sigmoid()
    source_SI = model.source_code[list(source_tokens)]
    blanks_TI = source_SI.new_zeros(len(answers_TO), source_SI.shape[1])
    silence_SO = answers_TO.new_zeros(len(source_SI), answers_TO.shape[1])

    def whole(name: str, steps: int) -> Values:
        return np.concatenate([_values(heard[f"{side}_tape.{name}"][0]) for side in ("source", "target")], axis=steps)

    return Tape(
        read=whole("read", steps=1),
        write=whole("write", steps=1),
        slots=whole("slots", steps=0),
        inputs=np.concatenate([_values(source_SI), _values(blanks_TI)]),
        outputs=np.concatenate([_values(silence_SO), _values(answers_TO)]),
        pieces=tuple(pieces),
    )


def _values(tensor: Tensor) -> Values:
    values: Values = tensor.detach().cpu().float().numpy()
    return values
