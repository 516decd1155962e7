"""Attention maps of one translation, as arrays, a page or a picture."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from transduce.errors import SettingsError, suggestion
from transduce.inspection import figure as picture
from transduce.inspection import page as view
from transduce.inspection.replay import DecodingStep
from transduce.storage.atomic import write_file

Kind = Literal["encoder", "decoder", "cross"]
Weights = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False, repr=False)
class AttentionMaps:
    """Every map of one translation. Layers and heads count from 1 in all methods, as in the paper's figures.

    - `encoder` (L H S S): source tokens attending to source tokens;
    - `decoder` (L H T T): the step that chose a target token, attending to the target tokens read so far;
    - `cross` (L H T S): the step that chose a target token, attending to the source.

    A target row is named by the token it *produced*, a target column by the token that was *read*: row t of `decoder`
    stands on column t, whose token is the one before its own. Each row sums to 1.
    """

    maps: Mapping[Kind, Weights]
    """By kind, only the kinds the model has; a recurrent model has `cross` alone, with one layer and one head."""
    source_pieces: tuple[str, ...]
    """S pieces, end token included."""
    target_pieces: tuple[str, ...]
    """T + 1 pieces: the start token, then the T that were produced."""
    source: str = ""
    """The source text."""
    translation: str = ""
    """The translation."""
    links: tuple[tuple[int, int], ...] = ()
    """Word alignment: pairs of (source, target) word indices from 0."""
    steps: tuple[DecodingStep, ...] = ()
    """Next-token distributions of the T steps; empty without `with_steps`."""

    def __post_init__(self) -> None:
        lengths = {"source": len(self.source_pieces), "read": len(self.target_pieces) - 1}
        for kind, weights in self.maps.items():
            expected = tuple(lengths["source" if side == "source" else "read"] for side in view.SIDES[kind])
            assert weights.shape[2:] == expected, f"{kind} maps are {weights.shape[2:]}, but their names {expected}"
            weights.flags.writeable = False
        assert len(self.steps) in (0, lengths["read"]), "a step for each produced token, or none"

    def __repr__(self) -> str:
        sizes = ", ".join(f"{kind} {'×'.join(map(str, weights.shape))}" for kind, weights in self.maps.items())
        return f"AttentionMaps({self.source!r} → {self.translation!r}: {sizes})"

    def with_steps(self, steps: Sequence[DecodingStep]) -> AttentionMaps:
        """Return the maps together with the next-token distributions of the same translation."""
        return replace(self, steps=tuple(steps))

    def rows(self, kind: Kind) -> tuple[str, ...]:
        """Return the names of a map's rows: queries."""
        self._weights(kind)
        return self._names(view.SIDES[kind][0])

    def columns(self, kind: Kind) -> tuple[str, ...]:
        """Return the names of a map's columns: keys."""
        self._weights(kind)
        return self._names(view.SIDES[kind][1])

    def mean(self, kind: Kind, layer: int | None = None) -> Weights:
        """Return the mean over the heads of a layer, or of all layers.  -> (rows, columns)."""
        weights_LHQM = self._weights(kind)
        chosen = weights_LHQM if layer is None else weights_LHQM[_index("layer", layer, len(weights_LHQM))]
        mean_QM: Weights = chosen.reshape(-1, *weights_LHQM.shape[2:]).mean(axis=0, dtype=np.float64).astype(np.float32)
        return mean_QM

    def head(self, kind: Kind, layer: int, head: int) -> Weights:
        """Return the map of one head.  -> (rows, columns)."""
        weights_LHQM = self._weights(kind)
        weights_HQM: Weights = weights_LHQM[_index("layer", layer, len(weights_LHQM))]
        weights_QM: Weights = weights_HQM[_index("head", head, len(weights_HQM))]
        return weights_QM

    def chosen(self, kind: Kind, layer: int | None = None, head: int | None = None) -> tuple[Weights, str]:
        """Return the map of one head, of a layer's mean, or of the mean of all, and its title."""
        if head is None:
            which = "mean of all heads" if layer is None else f"layer {layer}, mean of its heads"
            return self.mean(kind, layer), which
        if layer is None:
            raise SettingsError(f"head {head} needs a layer; give both, or neither for the mean of all heads")
        return self.head(kind, layer, head), f"layer {layer}, head {head}"

    def to_html(self) -> str:
        """Return one self-contained page with all maps."""
        return view.page(self)

    def save_html(self, path: str | Path) -> None:
        """Write the page."""
        write_file(Path(path), self.to_html().encode())

    def save_png(
        self, path: str | Path, kind: Kind = "cross", layer: int | None = None, head: int | None = None
    ) -> None:
        """Write a picture of one head, of a layer's mean, or of the mean of all (needs the extra `plot`)."""
        weights_QM, which = self.chosen(kind, layer, head)
        title = f"{view.TITLES[kind]}: {which}"
        image = picture.draw_attention(weights_QM, self.rows(kind), self.columns(kind), title)
        picture.save(Path(path), image)

    def _repr_html_(self) -> str:
        """Show the page in a notebook, in a sandboxed frame."""
        page = html.escape(self.to_html(), quote=True)
        return (
            f'<iframe title="Attention maps" sandbox="allow-scripts" srcdoc="{page}" '
            'style="width:100%;height:46rem;border:1px solid #8884;border-radius:6px"></iframe>'
        )

    def _names(self, side: str) -> tuple[str, ...]:
        return {"source": self.source_pieces, "read": self.target_pieces[:-1], "produced": self.target_pieces[1:]}[side]

    def _weights(self, kind: Kind) -> Weights:
        if kind not in self.maps:
            raise SettingsError(f"the model has no attention maps of the kind '{kind}'{suggestion(kind, self.maps)}")
        return self.maps[kind]


def _index(what: str, number: int, count: int) -> int:
    if not 1 <= number <= count:
        raise SettingsError(f"no {what} {number}; the model has {what}s 1 to {count}")
    return number - 1
