"""Attention maps of one translation, prompt or text, as arrays, a page or a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from transduce.errors import SettingsError, suggestion
from transduce.inspection import figure as picture
from transduce.inspection.attention_page import attention_page
from transduce.inspection.page import framed
from transduce.inspection.replay import DecodingStep
from transduce.storage.atomic import write_file

Kind = Literal["encoder", "decoder", "cross", "causal"]
Subject = Literal["translation", "prompt", "text", "facts"]
"""What was inspected: a translation; a prompt with its continuation; an encoded text; a question about facts."""
Weights = npt.NDArray[np.float32]

SIDES = {
    "encoder": ("source", "source"),
    "decoder": ("produced", "read"),
    "cross": ("produced", "source"),
    "causal": ("source", "source"),
}
"""Sequences that label the rows and the columns of each kind of map."""

TITLES = {
    "encoder": "Encoder self-attention",
    "decoder": "Decoder self-attention",
    "cross": "Cross-attention",
    "causal": "Causal self-attention",
}


@dataclass(frozen=True)
class AttendedToken:
    """A token that a row of the maps attends to: by the mean of all heads, and by the head that does so most."""

    position: int
    """Number of its column, from 0."""
    piece: str
    mean: float
    """Mean weight of all heads."""
    strongest: float
    """Weight of the head that attends to it most."""
    layer: int
    """Layer of that head, from 1."""
    head: int
    """Number of that head, from 1."""


@dataclass(frozen=True, eq=False, repr=False)
class AttentionMaps:
    """Every map of one text. Layers and heads count from 1 in all methods, as in the paper's figures.

    - `encoder` (L H S S): source tokens attending to source tokens;
    - `decoder` (L H T T): the step that chose a target token, attending to the target tokens read so far;
    - `cross` (L H T S): the step that chose a target token, attending to the source;
    - `causal` (L H S S): tokens that a language model read, attending to themselves and to earlier tokens.

    A target row is named by the token it *produced*, a target column by the token that was *read*: row t of `decoder`
    stands on column t, whose token is the one before its own. Rows of `encoder` and `causal` are named by the token
    read. Each row sums to 1.
    """

    maps: Mapping[Kind, Weights]
    """By kind, only the kinds the model has; a recurrent model has `cross` alone, with one layer and one head."""
    source_pieces: tuple[str, ...]
    """S pieces that were read: the source with its end token, the text, or the prompt and its continuation."""
    target_pieces: tuple[str, ...] = ()
    """T + 1 pieces: the start token, then the T that were produced; empty where there is no target."""
    source: str = ""
    """The source text, or the prompt."""
    translation: str = ""
    """The translation, continuation or prediction."""
    links: tuple[tuple[int, int], ...] = ()
    """Word alignment: pairs of (source, target) word indices from 0."""
    steps: tuple[DecodingStep, ...] = ()
    """Next-token distributions of a translation's T steps, or after each of a prompt's S tokens; of a text, the
    distributions of its masked tokens."""
    generated: int = 0
    """Number of source pieces, at their end, that a language model generated."""
    subject: Subject = "translation"
    """What was inspected."""

    def __post_init__(self) -> None:
        for kind, weights in self.maps.items():
            expected = tuple(len(self._names(side)) for side in SIDES[kind])
            assert weights.shape[2:] == expected, f"{kind} maps are {weights.shape[2:]}, but their names {expected}"
            weights.flags.writeable = False

    def __repr__(self) -> str:
        sizes = ", ".join(f"{kind} {'×'.join(map(str, weights.shape))}" for kind, weights in self.maps.items())
        return f"AttentionMaps({self.source!r} → {self.translation!r}: {sizes})"

    def with_steps(self, steps: Sequence[DecodingStep]) -> AttentionMaps:
        """Return the maps together with the next-token distributions of the same translation."""
        return replace(self, steps=tuple(steps))

    def rows(self, kind: Kind) -> tuple[str, ...]:
        """Return the names of a map's rows: queries."""
        self._weights(kind)
        return self._names(SIDES[kind][0])

    def columns(self, kind: Kind) -> tuple[str, ...]:
        """Return the names of a map's columns: keys."""
        self._weights(kind)
        return self._names(SIDES[kind][1])

    def mean(self, kind: Kind, layer: int | None = None) -> Weights:
        """Return the mean over the heads of a layer, or of all layers.  -> (rows, columns)."""
        weights_LHQM = self._weights(kind)
        chosen = weights_LHQM if layer is None else weights_LHQM[zero_based("layer", layer, len(weights_LHQM))]
        mean_QM: Weights = chosen.reshape(-1, *weights_LHQM.shape[2:]).mean(axis=0, dtype=np.float64).astype(np.float32)
        return mean_QM

    def head(self, kind: Kind, layer: int, head: int) -> Weights:
        """Return the map of one head.  -> (rows, columns)."""
        weights_LHQM = self._weights(kind)
        weights_HQM: Weights = weights_LHQM[zero_based("layer", layer, len(weights_LHQM))]
        weights_QM: Weights = weights_HQM[zero_based("head", head, len(weights_HQM))]
        return weights_QM

    def chosen(self, kind: Kind, layer: int | None = None, head: int | None = None) -> tuple[Weights, str]:
        """Return the map of one head, of a layer's mean, or of the mean of all, and its title."""
        if head is None:
            which = "mean of all heads" if layer is None else f"layer {layer}, mean of its heads"
            return self.mean(kind, layer), which
        if layer is None:
            raise SettingsError(f"head {head} needs a layer; give both, or neither for the mean of all heads")
        return self.head(kind, layer, head), f"layer {layer}, head {head}"

    @property
    def default_kind(self) -> Kind | None:
        """The kind that is drawn unless another is given; None if the model has no attention."""
        return "cross" if "cross" in self.maps else next(iter(self.maps), None)

    def attended(self, kind: Kind, row: int = -1) -> tuple[AttendedToken, ...]:
        """Return what a row attends to, largest mean first; rows count from 0, and -1 is the last."""
        weight_LHQM = self._weights(kind)
        if not -weight_LHQM.shape[2] <= row < weight_LHQM.shape[2]:
            raise SettingsError(f"no row {row}; the map has rows 0 to {weight_LHQM.shape[2] - 1}")
        weight_LHM = weight_LHQM[:, :, row]
        weight_JM = weight_LHM.reshape(-1, weight_LHM.shape[-1])
        mean_M, strongest_M = weight_JM.mean(axis=0, dtype=np.float64), weight_JM.argmax(axis=0)
        order = sorted(np.flatnonzero(mean_M).tolist(), key=lambda column: -mean_M[column])
        heads = weight_LHM.shape[1]
        names = self.columns(kind)
        return tuple(
            AttendedToken(
                position=column,
                piece=names[column],
                mean=float(mean_M[column]),
                strongest=float(weight_JM[strongest_M[column], column]),
                layer=int(strongest_M[column]) // heads + 1,
                head=int(strongest_M[column]) % heads + 1,
            )
            for column in order
        )

    def to_html(self) -> str:
        """Return one self-contained page with all maps."""
        return attention_page([self])

    def save_html(self, path: str | Path) -> None:
        """Write the page."""
        save_page(path, [self])

    def save_png(
        self, path: str | Path, kind: Kind | None = None, layer: int | None = None, head: int | None = None
    ) -> None:
        """Write a picture of one head, of a layer's mean, or of the mean of all (needs the extra `plot`).

        Without `kind` it is of the cross-attention, or of what a model without it has.
        """
        kind = kind or self.default_kind or "cross"
        weights_QM, which = self.chosen(kind, layer, head)
        title = f"{TITLES[kind]}: {which}"
        image = picture.draw_attention(weights_QM, self.rows(kind), self.columns(kind), title)
        picture.save(Path(path), image)

    def _repr_html_(self) -> str:
        """Show the page in a notebook, in a sandboxed frame."""
        return framed(self.to_html(), "Attention maps")

    def _names(self, side: str) -> tuple[str, ...]:
        return {"source": self.source_pieces, "read": self.target_pieces[:-1], "produced": self.target_pieces[1:]}[side]

    def _weights(self, kind: Kind) -> Weights:
        if kind not in self.maps:
            raise SettingsError(f"the model has no attention maps of the kind '{kind}'{suggestion(kind, self.maps)}")
        return self.maps[kind]


def zero_based(what: str, number: int, count: int) -> int:
    """Return the index of a layer or head that users count from 1."""
    if not 1 <= number <= count:
        raise SettingsError(f"no {what} {number}; the model has {what}s 1 to {count}")
    return number - 1


def save_page(path: str | Path, maps: Sequence[AttentionMaps]) -> None:
    """Write one page with the maps of several texts."""
    write_file(Path(path), attention_page(maps).encode())
