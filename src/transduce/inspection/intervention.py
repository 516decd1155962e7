"""Interventions: change a part of a model, and compare what it writes and how likely it finds it before and after.

This is causal evidence: an attention map says where a head attends, an intervention whether that matters. All changes
are made to a twin of the model, which is thrown away.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from transduce.errors import SettingsError
from transduce.inspection.component import (
    ATTENTION_NAMES,
    HeadName,
    attention_path,
    attention_paths,
    check_head,
    feed_forward_path,
)
from transduce.inspection.drawing import Cell, Picture, draw_matrix
from transduce.models.interface import AnyTransducer, Memory
from transduce.nn.hook import Replacement

LayerName = tuple[str, int]
"""(kind of attention, layer), or (stack, layer) of a feed-forward network; layers count from 1."""


@dataclass(frozen=True)
class ComparedOutput:
    """A text, and its log-probability before and after an intervention, by teacher forcing."""

    text: str
    tokens: tuple[int, ...]
    """The tokens that it was scored by, with the end token where it was produced."""
    pieces: tuple[str, ...]
    before: tuple[float, ...]
    """Log-probability of each token, by the intact model."""
    after: tuple[float, ...]
    """Log-probability of each token, by the changed model."""

    @property
    def log_probability_before(self) -> float:
        """Log-probability of the text by the intact model."""
        return sum(self.before)

    @property
    def log_probability_after(self) -> float:
        """Log-probability of the text by the changed model."""
        return sum(self.after)

    @property
    def difference(self) -> float:
        """How much the log-probability rose; below 0 the intervention made the text less likely."""
        return self.log_probability_after - self.log_probability_before

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "text": self.text,
            "tokens": list(self.tokens),
            "pieces": list(self.pieces),
            "before": list(self.before),
            "after": list(self.after),
            "log_probability_before": self.log_probability_before,
            "log_probability_after": self.log_probability_after,
            "difference": self.difference,
        }


@dataclass(frozen=True)
class Intervention(Picture):
    """What an intervention changed."""

    view: ClassVar[str] = "intervention"
    page_title: ClassVar[str] = "Intervention"
    source: str
    """The source text, or the prompt."""
    changes: tuple[str, ...]
    """What was changed, in words."""
    original: ComparedOutput
    """What the intact model writes."""
    changed: ComparedOutput
    """What the changed model writes; it may be the same."""

    @property
    def has_changed(self) -> bool:
        """Whether another text was written."""
        return self.original.tokens != self.changed.tokens

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "source": self.source,
            "changes": list(self.changes),
            "original": self.original.to_json(),
            "changed": self.changed.to_json(),
            "has_changed": self.has_changed,
        }

    def to_svg(self) -> str:
        """Return a picture: tokens of both texts with their probabilities before and after."""
        rows, cells = [], []
        for name, one in (("original", self.original), ("changed", self.changed)):
            rows += [f"{name} token", "before", "after"]
            cells.append([Cell(piece) for piece in one.pieces])
            for values in (one.before, one.after):
                cells.append([Cell(f"{share:.3f}", share) for share in map(math.exp, values)])
        columns = ["" for _ in range(max(map(len, cells)))]
        return draw_matrix(f"{'; '.join(self.changes)}: token probabilities", rows, columns, cells, width=66)


@dataclass(frozen=True)
class Ablation:
    """What is switched off. Layers and heads count from 1."""

    heads: tuple[tuple[str, int, int], ...] = ()
    """Heads whose output is zero: (kind, layer, head)."""
    attention: tuple[LayerName, ...] = ()
    """Attention layers whose output is zero: (kind, layer)."""
    feed_forward: tuple[LayerName, ...] = ()
    """Feed-forward networks whose output is zero: (stack, layer)."""
    hidden: tuple[int, ...] = ()
    """Positions of source tokens that nothing may attend to."""

    def __bool__(self) -> bool:
        return bool(self.heads or self.attention or self.feed_forward or self.hidden)

    def hooks(self, model: AnyTransducer) -> dict[str, Replacement]:
        """Return what replaces the activations at hook points, by path."""
        by_path: dict[str, list[int]] = defaultdict(list)
        for name in self.heads:
            path, head = check_head(model, name)
            by_path[f"{path}.head"].append(head)
        hooks: dict[str, Replacement] = {path: _zero_heads(heads) for path, heads in by_path.items()}
        for kind, layer in self.attention:
            hooks[f"{attention_path(model, kind, layer)}.output"] = torch.zeros_like
        for stack, layer in self.feed_forward:
            hooks[f"{feed_forward_path(model, stack, layer)}.output"] = torch.zeros_like
        return hooks

    def describe(self, source_pieces: Sequence[str]) -> tuple[str, ...]:
        """Return the changes in words."""
        return (
            *(f"{HeadName(*head)} off" for head in self.heads),
            *(f"{ATTENTION_NAMES[kind]} layer {layer} off" for kind, layer in self.attention),
            *(f"{stack} layer {layer} feed-forward network off" for stack, layer in self.feed_forward),
            *(f"source token {position} '{source_pieces[position]}' masked" for position in self.hidden),
        )


def _zero_heads(heads: Iterable[int]) -> Replacement:
    """Zero the output of some heads: the same as zeros in their columns of the output projection."""
    index = sorted(heads)

    def zero(value_BHQV: Tensor) -> Tensor:
        return value_BHQV.index_fill(1, torch.tensor(index, device=value_BHQV.device), 0.0)

    return zero


def hide_source(model: AnyTransducer, positions: Sequence[int]) -> None:
    """Hide source positions from every attention of this twin, for good: they are masked like padding.

    Other tokens keep their positions.
    """
    if not attention_paths(model, "encoder"):
        raise SettingsError(
            "source tokens can only be masked in a model with self-attention in its encoder; use a transformer"
        )
    encode = model.encode

    def encode_visible(source: Tensor, allowed: Tensor) -> Memory:
        visible_BS = allowed.clone()
        visible_BS[:, list(positions)] = False
        if not bool(visible_BS.any(dim=1).all()):
            raise SettingsError("every source token is masked; leave at least one")
        memory: Memory = encode(source, visible_BS)
        return memory

    model.encode = encode_visible  # type: ignore[method-assign]  # a twin's own
