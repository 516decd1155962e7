"""Names of BERT's weights, ours and Hugging Face's, in both directions.

Ours keep query, key and value of a layer in one matrix; theirs are three. A row of `NAMES` is a pair of patterns, where
`#` stands for the number of a layer; several names on their side are concatenated, in their order, to make ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

_LAYER = "bert.encoder.layer.#"

NAMES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("embedding.pieces.weight", ("bert.embeddings.word_embeddings.weight",)),
    ("embedding.positions.table", ("bert.embeddings.position_embeddings.weight",)),
    ("embedding.segments.weight", ("bert.embeddings.token_type_embeddings.weight",)),
    *((f"embedding.norm.{kind}", (f"bert.embeddings.LayerNorm.{kind}",)) for kind in ("weight", "bias")),
    *(
        (f"{ours}.{kind}", tuple(f"{one}.{kind}" for one in theirs))
        for kind in ("weight", "bias")
        for ours, theirs in (
            (
                "encoder.#.attention.query_key_value",
                tuple(f"{_LAYER}.attention.self.{part}" for part in ("query", "key", "value")),
            ),
            ("encoder.#.attention.heads.merge", (f"{_LAYER}.attention.output.dense",)),
            ("encoder.#.attention_residual.norm", (f"{_LAYER}.attention.output.LayerNorm",)),
            ("encoder.#.feed_forward.widen", (f"{_LAYER}.intermediate.dense",)),
            ("encoder.#.feed_forward.narrow", (f"{_LAYER}.output.dense",)),
            ("encoder.#.feed_forward_residual.norm", (f"{_LAYER}.output.LayerNorm",)),
            ("pooler", ("bert.pooler.dense",)),
        )
    ),
)
"""What is there under any head."""

HEADS: dict[str, tuple[tuple[str, str], ...]] = {
    "none": (),
    "language": (
        ("head.transform.weight", "cls.predictions.transform.dense.weight"),
        ("head.transform.bias", "cls.predictions.transform.dense.bias"),
        ("head.norm.weight", "cls.predictions.transform.LayerNorm.weight"),
        ("head.norm.bias", "cls.predictions.transform.LayerNorm.bias"),
        ("head.output.bias", "cls.predictions.bias"),
        ("head.follows.weight", "cls.seq_relationship.weight"),
        ("head.follows.bias", "cls.seq_relationship.bias"),
    ),
    "labels": (("head.output.weight", "classifier.weight"), ("head.output.bias", "classifier.bias")),
    "tags": (("head.output.weight", "classifier.weight"), ("head.output.bias", "classifier.bias")),
    "span": (("head.output.weight", "qa_outputs.weight"), ("head.output.bias", "qa_outputs.bias")),
}
"""What each head adds. The language head's scores are made with the embedding's own matrix."""


def names_for(head: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the table for a model with this head."""
    return (*NAMES, *((ours, (theirs,)) for ours, theirs in HEADS[head]))


def from_theirs(theirs: Mapping[str, Tensor], head: str = "none") -> dict[str, Tensor]:
    """Return their weights under our names; what the table does not know is left out.

    A model without a head is also known without the `bert.` before its names.
    """
    bare = not any(name.startswith("bert.") for name in theirs)
    known = {f"bert.{name}" if bare else name: weight for name, weight in theirs.items()}
    found: dict[str, Tensor] = {}
    for ours, parts in names_for(head):
        for number in _numbers(known, parts[0]):
            names = [part.replace("#", number) for part in parts]
            if all(name in known for name in names):
                found[ours.replace("#", number)] = torch.cat([known[name] for name in names])
    return found


def to_theirs(ours: Mapping[str, Tensor], head: str = "none") -> dict[str, Tensor]:
    """Return our weights under their names."""
    found: dict[str, Tensor] = {}
    for name, parts in names_for(head):
        for number in _numbers(ours, name):
            if name.replace("#", number) in ours:
                pieces = ours[name.replace("#", number)].chunk(len(parts))
                found |= {part.replace("#", number): piece for part, piece in zip(parts, pieces, strict=True)}
    return found


def _numbers(known: Mapping[str, Tensor], pattern: str) -> list[str]:
    """Which layers there are, for a pattern that has them; one empty number for others."""
    if "#" not in pattern:
        return [""]
    layer = re.compile(re.escape(pattern).replace(r"\#", r"(\d+)").replace("#", r"(\d+)"))
    return [match[1] for name in known if (match := layer.fullmatch(name))]
