"""Attribution: which source tokens and which tokens of the prefix a prediction depends on.

The objective is the log-probability of a token, or, contrastively, how much larger it is than that of another token at
the same position: why this one and not that one (Yin & Neubig 2022).

- *Gradient × input* (Shrikumar et al. 2017): the objective's gradient with respect to a token's embedding, times the
  embedding, summed over its channels; a first-order estimate of what the embedding contributes.
- *Value zeroing* (Mohebbi et al. 2023): how much the objective falls if the values of a token are zero in every
  attention that reads it: encoder and cross-attention for a source token, the decoder's self-attention for a token of
  the prefix. The token's own position keeps its residual stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from transduce.errors import SettingsError, suggestion
from transduce.inspection.component import attention_kind
from transduce.inspection.drawing import Cell, Picture, draw_matrix
from transduce.inspection.replay import ForcedDecoding
from transduce.models.interface import AnyTransducer
from transduce.nn.embedding import Embedding
from transduce.nn.hook import Replacement, hook_points, replace

AttributionMethod = Literal["gradient_x_input", "value_zeroing"]
ROWS = 32
"""Zeroed positions that are computed in one batch."""


@dataclass(frozen=True)
class Attribution(Picture):
    """What one prediction depends on, token by token."""

    view: ClassVar[str] = "attribution"
    page_title: ClassVar[str] = "Attribution"
    method: AttributionMethod
    token: str
    """The predicted piece."""
    instead_of: str | None
    """The piece that it is compared with; None for the log-probability of the token itself."""
    objective: float
    """Log-probability of the token; contrastively, minus that of the other."""
    source: tuple[float, ...]
    """By source token; above 0 speaks for the token, below 0 against it. Empty for a language model."""
    prefix: tuple[float, ...]
    """By token that the decoder had read, the start token first."""
    source_pieces: tuple[str, ...]
    prefix_pieces: tuple[str, ...]

    @property
    def source_share(self) -> float:
        """The source's share of all absolute attributions, from 0 to 1; the rest is the prefix's."""
        source, prefix = (sum(map(abs, values)) for values in (self.source, self.prefix))
        return source / (source + prefix) if source + prefix else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "method": self.method,
            "token": self.token,
            "instead_of": self.instead_of,
            "objective": self.objective,
            "source": list(self.source),
            "prefix": list(self.prefix),
            "source_pieces": list(self.source_pieces),
            "prefix_pieces": list(self.prefix_pieces),
            "source_share": self.source_share,
        }

    def to_svg(self) -> str:
        """Return a picture: a row per token, blue if it speaks for the prediction, orange if against it."""
        pieces = [*self.source_pieces, *self.prefix_pieces]
        values = [*self.source, *self.prefix]
        largest = max(map(abs, values), default=0.0) or 1.0
        cells = [[Cell(f"{value:+.3f}", value / largest)] for value in values]
        contrast = "" if self.instead_of is None else f" and not {self.instead_of}"
        title = f"Why {self.token}{contrast}: source {self.source_share:.0%}, prefix {1 - self.source_share:.0%}"
        return draw_matrix(title, pieces, [self.method.replace("_", " ")], cells, width=130)


def attribute(
    model: AnyTransducer,
    forced: ForcedDecoding,
    step: int,
    token: int,
    instead_of: int | None,
    method: AttributionMethod,
) -> tuple[float, list[float], list[float]]:
    """Return the objective at one step, and the attributions to the source and to the prefix.

    The prefix is what the decoder has read at this step. The model is hooked meanwhile: give a twin.
    """
    methods = {"gradient_x_input": gradient_x_input, "value_zeroing": value_zeroing}
    if method not in methods:
        raise SettingsError(f"unknown attribution method '{method}'{suggestion(method, get_args(AttributionMethod))}")

    def objective(logit_BV: Tensor) -> Tensor:
        log_BV = logit_BV.float().log_softmax(dim=-1)
        return log_BV[:, token] - (0.0 if instead_of is None else log_BV[:, instead_of])

    device = model.device
    source_1S = torch.tensor([forced.source_tokens], dtype=torch.long, device=device)
    read_1T = torch.tensor([forced.read_tokens[: step + 1]], device=device)
    return methods[method](model.eval(), source_1S, read_1T, objective)


Objective = Callable[[Tensor], Tensor]
"""Logits (B V) -> (B)."""


def gradient_x_input(
    model: AnyTransducer, source: Tensor, read: Tensor, objective: Objective
) -> tuple[float, list[float], list[float]]:
    """Gradient × input of every token embedding."""
    model.requires_grad_(False)
    with torch.enable_grad(), _embeddings(model) as embedded:
        memory = model.encode(source, torch.ones_like(source, dtype=torch.bool))
        from_source = list(embedded)
        value = objective(model.logits(model(read, memory)[:, -1]))
    inputs = [*from_source[: int(model.has_source)], *embedded[len(from_source) :]]
    lengths = [source.shape[1]] * model.has_source + [read.shape[1]]
    if [one.shape[1] for one in inputs] != lengths:
        raise SettingsError(
            "this model has no embedding for each token, which gradient_x_input needs; use a transformer"
        )
    gradients = torch.autograd.grad(value.sum(), inputs)
    products = [(one * gradient).sum(dim=-1)[0].tolist() for one, gradient in zip(inputs, gradients, strict=True)]
    return float(value.detach()), products[0] if model.has_source else [], products[-1]


@contextmanager
def _embeddings(model: AnyTransducer) -> Iterator[list[Tensor]]:
    """Collect the token embeddings of passes inside the context, as leaves of the graph."""
    found: list[Tensor] = []

    def hook(_: Any, __: Any, vectors: Tensor) -> Tensor:
        found.append(vectors.detach().requires_grad_())
        return found[-1]

    handles = [
        module.register_forward_hook(hook)
        for name, module in model.named_modules()
        if isinstance(module, Embedding) and name.rpartition(".")[2] in TOKEN_EMBEDDINGS
    ]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


TOKEN_EMBEDDINGS = ("embedding", "source_embedding", "target_embedding")
"""Names of the token embeddings of all models."""


@torch.no_grad()
def value_zeroing(
    model: AnyTransducer, source: Tensor, read: Tensor, objective: Objective
) -> tuple[float, list[float], list[float]]:
    """What the objective loses if the values of one token after the other are zero."""
    paths = list(hook_points(model, ("value",)))
    if not paths:
        raise SettingsError("value zeroing needs attention with values; this model has none; use gradient_x_input")
    in_source = [path for path in paths if attention_kind(path) != "decoder"]
    in_prefix = [path for path in paths if attention_kind(path) == "decoder"]

    def value_of(count: int) -> list[float]:
        source_BS, read_BT = source.expand(count, -1), read.expand(count, -1)
        memory = model.encode(source_BS, torch.ones_like(source_BS, dtype=torch.bool))
        return objective(model.logits(model(read_BT, memory)[:, -1])).tolist()

    (whole,) = value_of(1)

    def losses(zeroed: Sequence[str], length: int) -> list[float]:
        found: list[float] = []
        for start in range(0, length, ROWS):
            position_B = torch.arange(start, min(length, start + ROWS), device=model.device)
            with replace(model, dict.fromkeys(zeroed, _zero_values(position_B))):
                found += [whole - left for left in value_of(len(position_B))]
        return found

    return whole, losses(in_source, source.shape[1]), losses(in_prefix, read.shape[1])


def _zero_values(positions: Tensor) -> Replacement:
    """Zero the values of one position in each row of the batch.  positions (B), values (B G M V)."""

    def zero(value_BGMV: Tensor) -> Tensor:
        changed = value_BGMV.clone()
        changed[torch.arange(len(positions), device=positions.device), :, positions] = 0.0
        return changed

    return zero
