"""The logit lens (nostalgebraist 2020): what the model would predict if each decoder layer were its last.

The final norm and the output layer are applied to the residual stream after each layer; layer 0 is the embedding with
its position. Layers in the middle were not trained to be decoded this way, so their predictions are a hint, not a
measurement (Belrose et al. 2023).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from transduce.errors import SettingsError
from transduce.inspection.drawing import Cell, Picture, draw_matrix
from transduce.inspection.replay import DecodingStep, ForcedDecoding, Pieces, decoding_steps, replay
from transduce.models.gpt import Gpt
from transduce.models.interface import AnyTransducer
from transduce.models.transformer import Transformer
from transduce.nn.hook import record

Values = npt.NDArray[np.float32]
Stack = Literal["encoder", "decoder"]


@dataclass(frozen=True, eq=False, repr=False)
class LogitLens(Picture):
    """Predictions of every decoder layer at every step, and the norms of the residual stream."""

    view: ClassVar[str] = "lens"
    page_title: ClassVar[str] = "Logit lens"
    layers: tuple[tuple[DecodingStep, ...], ...]
    """By layer from 0 (embedding) to the last, then by step: the distribution, with rank and probability of the token
    that was produced. After the last token of a prompt, that is the likeliest token of the last layer."""
    norms: Mapping[Stack, Values]
    """Euclidean norm of the residual stream by stack, (layers + 1, positions)."""
    read_pieces: tuple[str, ...]
    """What the decoder read at each step."""
    source_pieces: tuple[str, ...] = ()
    """What the encoder read."""
    source: str = ""
    output: str = ""

    def __repr__(self) -> str:
        return f"LogitLens({self.source!r} → {self.output!r}: {len(self.layers) - 1} layers, {len(self.pieces)} steps)"

    @property
    def pieces(self) -> tuple[str, ...]:
        """The token that was produced at each step."""
        return tuple(step.chosen.piece for step in self.layers[-1] if step.chosen is not None)

    @property
    def ranks(self) -> npt.NDArray[np.int64]:
        """Rank of the produced token, 1 for the likeliest.  -> (layers + 1, steps)."""
        return np.array([[step.rank for step in steps] for steps in self.layers], dtype=np.int64)

    @property
    def probabilities(self) -> Values:
        """Probability of the produced token.  -> (layers + 1, steps)."""
        found = [[step.chosen.probability for step in steps if step.chosen] for steps in self.layers]
        return np.array(found, dtype=np.float32)

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "source": self.source,
            "output": self.output,
            "source_pieces": list(self.source_pieces),
            "read_pieces": list(self.read_pieces),
            "pieces": list(self.pieces),
            "layers": [[_step_json(step) for step in steps] for steps in self.layers],
            "norms": {stack: values.tolist() for stack, values in self.norms.items()},
        }

    def to_svg(self) -> str:
        """Return a picture: the likeliest token of each layer and step, shaded by the produced token's probability."""
        names = ["embedding", *(f"layer {number}" for number in range(1, len(self.layers)))]
        cells = [[_cell(step) for step in steps] for steps in reversed(self.layers)]
        title = "Logit lens: likeliest token of each layer; shade: probability of the produced token"
        return draw_matrix(title, names[::-1], self.pieces, cells, width=76)


def _cell(step: DecodingStep) -> Cell:
    assert step.chosen is not None and step.rank is not None
    hover = f"{step.chosen.piece}: rank {step.rank}, probability {step.chosen.probability:.4f}"
    return Cell(step.top[0].piece, step.chosen.probability, hover)


def _step_json(step: DecodingStep) -> dict[str, Any]:
    assert step.chosen is not None
    return {
        "token": step.chosen.token,
        "rank": step.rank,
        "probability": step.chosen.probability,
        "entropy": step.entropy,
        "top": [[one.token, one.piece, one.probability] for one in step.top],
    }


def logit_lens(model: AnyTransducer, forced: ForcedDecoding, top: int, pieces: Pieces) -> LogitLens:
    """Apply the output layer to the residual stream of a forced decoding. The model is hooked meanwhile: give a twin.

    `pieces` names tokens of the target side.
    """
    if not isinstance(model, Transformer | Gpt):
        raise SettingsError(
            "the logit lens needs a stack of decoder layers; this model has none; use a transformer or a gpt"
        )
    stream = residual_stream(model, forced)
    produced = list(forced.produced_tokens)
    with torch.no_grad():
        hidden_LTD = [model.final_hidden(residual_TD) for residual_TD in stream["decoder"]]
        if len(produced) < len(forced.read_tokens):
            produced.append(int(model.logits(hidden_LTD[-1][-1:]).argmax()))
    return LogitLens(
        layers=tuple(tuple(decoding_steps(model, hidden_TD, produced, top, pieces)) for hidden_TD in hidden_LTD),
        norms={stack: _norms(residuals) for stack, residuals in stream.items()},
        read_pieces=forced.read_pieces,
        source_pieces=forced.source_pieces,
        source=forced.source,
        output=forced.output,
    )


def residual_stream(model: Transformer | Gpt, forced: ForcedDecoding) -> dict[Stack, list[Tensor]]:
    """Return the residual stream of each stack: the input of its first layer and the output of every layer, (N D)."""
    inputs: dict[Stack, Tensor] = {}

    def keep(stack: Stack) -> Any:
        def hook(_: Any, given: tuple[Tensor, ...]) -> None:
            inputs[stack] = given[0][0].detach()

        return hook

    stacks: tuple[Stack, ...] = ("encoder", "decoder") if model.has_source else ("decoder",)
    with ExitStack() as hooks, record(model, ("residual",)) as recorded:
        for stack in stacks:
            hooks.callback(getattr(model, stack)[0].register_forward_pre_hook(keep(stack)).remove)
        replay(model, forced.source_tokens, forced.read_tokens)
    return {
        stack: [inputs[stack], *(value[0] for path, value in recorded.items() if path.startswith(f"{stack}."))]
        for stack in stacks
    }


def _norms(residuals: Sequence[Tensor]) -> Values:
    """L × (N D) -> (L N)."""
    norms: Values = torch.stack([residual_ND.float().norm(dim=-1) for residual_ND in residuals]).cpu().numpy()
    return norms
