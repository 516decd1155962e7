"""The memory accesses of a Neural Turing Machine during one prediction: where it wrote, where it read."""

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
from transduce.nn.hook import record, twin

Values = npt.NDArray[np.float32]

STEP = 0.16
"""Inches that one step takes, while there are few of them."""
PANEL = 1.9
"""Inches of one head's panel."""


@dataclass(frozen=True, eq=False, repr=False)
class TapeRecord:
    """Memory accesses of one prediction. Steps are the source tokens with their end token, then the produced tokens."""

    read: Values
    """(H steps N): weight of each memory location for each read head."""
    write: Values
    """(H steps N): the same for the write heads."""
    slots: Values
    """(steps N K): the memory after each step."""
    inputs: Values
    """(steps I): the bits of the source; zeros after it, even if the machine then reads its own output."""
    outputs: Values
    """(steps O): probability that each bit of the output is 1; zeros while the source is read."""
    pieces: tuple[str, ...]
    """What was read or produced at each step."""
    source: str = ""
    """The source text."""
    output: str = ""
    """The generated text."""

    def draw(self) -> bytes:
        """Return a PNG: bits in and out, where every head was, and the memory at the end; time goes to the right."""
        panels = [("input", self.inputs.T), ("output", self.outputs.T)]
        panels += [(f"write head {number}: locations", weights.T) for number, weights in enumerate(self.write, start=1)]
        panels += [(f"read head {number}: locations", weights.T) for number, weights in enumerate(self.read, start=1)]
        width = min(picture.LONGEST, max(4.0, STEP * len(self.pieces) + 1.5))
        figure = picture.new_figure(width, PANEL * (len(panels) + 1))
        rows = figure.subplots(len(panels) + 1, 1)
        for axes, (title, values) in zip(rows, panels, strict=False):
            axes.imshow(values, cmap="Greys", vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest")
            axes.set_title(title, fontsize=9, loc="left")
        largest = max(1e-9, float(np.abs(self.slots[-1]).max()))
        rows[-1].imshow(self.slots[-1].T, cmap="RdBu", vmin=-largest, vmax=largest, aspect="auto")
        rows[-1].set_title("the memory at the end; one column per location", fontsize=9, loc="left")
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
) -> TapeRecord:
    """Replay one prediction and return its memory accesses; tokens are those of `attention_of`."""
    assert isinstance(model, TuringMachine)
    observed = twin(model)
    with record(observed, ("read", "write", "slots")) as recorded:
        output_TO = replay(observed, source_tokens, target_tokens[:-1]).sigmoid()
    source_SI = model.source_code[list(source_tokens)]
    zeros_TI = source_SI.new_zeros(len(output_TO), source_SI.shape[1])
    zeros_SO = output_TO.new_zeros(len(source_SI), output_TO.shape[1])

    def whole(name: str, steps: int) -> Values:
        return np.concatenate(
            [_values(recorded[f"{side}_tape.{name}"][0]) for side in ("source", "target")], axis=steps
        )

    return TapeRecord(
        read=whole("read", steps=1),
        write=whole("write", steps=1),
        slots=whole("slots", steps=0),
        inputs=np.concatenate([_values(source_SI), _values(zeros_TI)]),
        outputs=np.concatenate([_values(zeros_SO), _values(output_TO)]),
        pieces=tuple(pieces),
    )


def _values(tensor: Tensor) -> Values:
    values: Values = tensor.detach().cpu().float().numpy()
    return values
