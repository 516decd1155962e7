"""The arithmetic of one attention head at one query, number by number (the neuron view of BertViz, Vig 2019).

For a key m: score_m = scale · Σ (q ⊙ k_m) + bias_m, the weights are the softmax of the scores over all keys, and the
output of the head is Σ weight_m · v_m.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from transduce.errors import SettingsError
from transduce.inspection.component import attention_path
from transduce.inspection.drawing import Cell, Picture, draw_matrix
from transduce.inspection.maps import Kind, zero_based
from transduce.inspection.replay import ForcedDecoding, replay
from transduce.models.interface import AnyTransducer
from transduce.nn.attention.multi_head import CrossAttention, SelfAttention
from transduce.nn.hook import record

Values = npt.NDArray[np.float32]
RECORDED = ("query", "key", "value", "score", "weight", "head")


@dataclass(frozen=True, eq=False, repr=False)
class NeuronView(Picture):
    """One head's query and all keys, their products, scores and weights. M keys of width K."""

    view: ClassVar[str] = "neuron"
    page_title: ClassVar[str] = "Attention of one head at one query"
    kind: Kind
    layer: int
    head: int
    row: int
    """Position of the query: the row of the attention map, from 0."""
    row_piece: str
    """What names that row: the token that was produced; in an encoder or language model, the token that was read."""
    columns: tuple[str, ...]
    """M pieces that the keys belong to."""
    query: Values
    """(K)"""
    key: Values
    """(M K)"""
    product: Values
    """(M K): query times key, channel by channel."""
    scale: float
    """1 / √K; 1 in a model that does not scale its scores."""
    bias: Values
    """(M): what relative positions add to the score; 0 without them, and at keys that are masked."""
    allowed: npt.NDArray[np.bool_]
    """(M): whether the query may attend to the key; a decoder's query may not to later positions."""
    score: Values
    """(M): scale · Σ product + bias, minus infinity where not allowed."""
    weight: Values
    """(M): softmax of the scores; the row of the attention map."""
    value: Values
    """(M V): what each key's token hands over."""
    output: Values
    """(V): output of the head, Σ weight · value."""

    def __repr__(self) -> str:
        place = f"{self.kind} layer {self.layer} head {self.head}"
        return f"NeuronView({place}, row {self.row} {self.row_piece!r}: {len(self.columns)} keys of {len(self.query)})"

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values; the score of a masked key is null."""
        scores = zip(self.score.tolist(), self.allowed.tolist(), strict=True)
        return {
            "kind": self.kind,
            "layer": self.layer,
            "head": self.head,
            "row": self.row,
            "row_piece": self.row_piece,
            "columns": list(self.columns),
            "query": self.query.tolist(),
            "key": self.key.tolist(),
            "product": self.product.tolist(),
            "scale": self.scale,
            "bias": self.bias.tolist(),
            "allowed": self.allowed.tolist(),
            "score": [score if allowed else None for score, allowed in scores],
            "weight": self.weight.tolist(),
            "value": self.value.tolist(),
            "output": self.output.tolist(),
        }

    def to_svg(self) -> str:
        """Return a picture: a row per key with its products, channel by channel, then score and weight."""
        largest = float(np.abs(self.product).max()) or 1.0
        cells = [
            [
                *(
                    Cell("", float(value) / largest, f"channel {channel}: {value:+.4f}")
                    for channel, value in enumerate(row)
                ),
                Cell(f"{score:+.2f}" if allowed else "−∞"),
                Cell(f"{weight:.3f}", float(weight)),
            ]
            for row, score, allowed, weight in zip(self.product, self.score, self.allowed, self.weight, strict=True)
        ]
        title = f"{self.kind} layer {self.layer} head {self.head}, query {self.row_piece}: q ⊙ k, score, softmax"
        columns = [*("" for _ in self.query), "score", "weight"]
        channel = max(14.0, min(48.0, 780 / len(self.query)))
        return draw_matrix(title, self.columns, columns, cells, [*(channel for _ in self.query), 60.0, 60.0])


def neuron_view(
    model: AnyTransducer, forced: ForcedDecoding, kind: Kind, layer: int, head: int, row: int
) -> NeuronView:
    """Replay a text and return the numbers of one head at one row. The model is hooked meanwhile: give a twin."""
    path = attention_path(model, kind, layer)
    attention = model.get_submodule(path)
    if not isinstance(attention, SelfAttention | CrossAttention):
        raise SettingsError("the neuron view is for full attention; this layer uses an efficient kernel")
    index = zero_based("head", head, attention.shape.num_heads)
    with record(model, RECORDED, inside=f"{path}.") as recorded:
        replay(model, forced.source_tokens, forced.read_tokens)
    values = {name: recorded[f"{path}.{name}"][0].float().cpu().numpy() for name in RECORDED}
    group = index * attention.shape.key_value_heads // attention.shape.num_heads
    query_QK, key_MK = values["query"][index], values["key"][group]
    rows, columns = _names(forced, kind)
    if not -len(rows) <= row < len(rows):
        raise SettingsError(f"no row {row}; the map has rows 0 to {len(rows) - 1}")
    row %= len(rows)
    score_M = values["score"][index, row]
    product_MK = query_QK[row] * key_MK
    allowed_M = np.isfinite(score_M)
    plain_M = attention.scale * product_MK.sum(axis=1)
    return NeuronView(
        kind=kind,
        layer=layer,
        head=head,
        row=row,
        row_piece=rows[row],
        columns=columns,
        query=query_QK[row],
        key=key_MK,
        product=product_MK,
        scale=attention.scale,
        bias=_bias(score_M, plain_M, allowed_M),
        allowed=allowed_M,
        score=score_M,
        weight=values["weight"][index, row],
        value=values["value"][group],
        output=values["head"][index, row],
    )


def _bias(score: Values, plain: Values, allowed: npt.NDArray[np.bool_]) -> Values:
    """Return what was added to the scaled products; differences in the last digits count as nothing."""
    bias_M = np.where(allowed, np.where(allowed, score, 0.0) - plain, 0.0)
    rounded: Values = np.where(np.abs(bias_M) <= 1e-5 * (1.0 + np.abs(plain)), 0.0, bias_M).astype(np.float32)
    return rounded


def _names(forced: ForcedDecoding, kind: Kind) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the map's rows and columns, as `AttentionMaps` has them."""
    if kind == "encoder":
        return forced.source_pieces, forced.source_pieces
    if kind == "causal":
        return forced.read_pieces, forced.read_pieces
    return forced.produced_pieces, forced.read_pieces if kind == "decoder" else forced.source_pieces
