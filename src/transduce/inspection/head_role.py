"""What attention heads attend to, measured on a sample of texts: shares of attention by role, and entropy.

A head's share of a role is the mean attention to the positions of that role, over the queries that have any: the first
occurrence of a word has no earlier one. Roles are not exclusive. A head is given a role only if its share is at least
half and at least twice what uniform attention would give to the same positions.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from transduce.inspection.drawing import Cell, Picture, draw_matrix
from transduce.inspection.maps import AttentionMaps

FAR = 8
"""Distance in tokens from which on a position is far."""
MOSTLY = 0.5
"""Share of attention from which on a head has a role …"""
ABOVE_UNIFORM = 2.0
"""… if it is this many times the share of uniform attention."""
ROLES = ("itself", "previous", "next", "first", "same word", "after same word", "punctuation", "end", "aligned")
"""Roles that a head may have: the same position, its neighbours, the first token, an earlier or later occurrence of the
same token, the token after that, punctuation, the end token; in cross-attention the tokens of the aligned word."""


@dataclass(frozen=True)
class SampledMaps:
    """Attention maps of one kind for one text."""

    kind: str
    """encoder, decoder, cross or causal."""
    weights: Tensor
    """(L H Q M), each row of sum 1."""
    tokens: tuple[int | str, ...]
    """M tokens or pieces that are attended to; equal ones are the same word."""
    end: int | str | None = None
    """The end token or its piece."""
    further: Mapping[str, Tensor] = field(default_factory=dict)
    """Positions (Q M) of roles that tokens alone do not tell, such as the tokens of the aligned word."""


def sample_maps(
    maps: AttentionMaps,
    links: Iterable[tuple[int, int]],
    source_words: Sequence[int | None],
    target_words: Sequence[int | None],
    ends: tuple[str, str],
) -> Iterator[SampledMaps]:
    """Yield the maps of one translation, kind by kind.

    `links` are the word alignment (source word, target word), words those of the tokens without the end tokens, `ends`
    the pieces of both end tokens.
    """
    for kind, weights in maps.maps.items():
        weight_LHQM = torch.tensor(weights)
        aligned_QM = torch.zeros(weight_LHQM.shape[2:], dtype=torch.bool)
        for source_word, target_word in links if kind == "cross" else ():
            is_source_M = torch.tensor([word == source_word for word in source_words])
            is_target_Q = torch.tensor([word == target_word for word in target_words])
            aligned_QM[: len(is_target_Q), : len(is_source_M)] |= is_target_Q[:, None] & is_source_M
        further = {"aligned": aligned_QM} if kind == "cross" else {}
        yield SampledMaps(kind, weight_LHQM, maps.columns(kind), ends[kind in CAUSAL], further)


class HeadRole(NamedTuple):
    """One head and the distribution of its attention."""

    kind: str
    """Of attention: encoder, decoder, cross or causal."""
    layer: int
    number: int
    shares: Mapping[str, float]
    """Mean share of attention by role, and to far positions."""
    uniform: Mapping[str, float]
    """What uniform attention would give."""
    entropy: float
    """Mean entropy of a row in bits; 0 if all attention is on one token."""
    distance: float
    """Mean distance of the attended tokens; 0 in cross-attention, whose positions are of two texts."""

    @property
    def role(self) -> str:
        """The role with the largest share, if that is at least half of the attention and far above uniform."""
        return self.role_among(ROLES, ABOVE_UNIFORM)

    def role_among(self, roles: Sequence[str], above_uniform: float = 0.0) -> str:
        """The same among some roles, "mixed" if it has none; by default without the comparison with uniform."""
        best = max((role for role in roles if role in self.shares), key=lambda role: self.shares[role])
        is_clear = self.shares[best] >= max(MOSTLY, above_uniform * self.uniform[best])
        return best if is_clear else "mixed"


@dataclass(frozen=True)
class HeadSummary(Picture):
    """What every head attends to, on a sample of texts."""

    view: ClassVar[str] = "head-summary"
    page_title: ClassVar[str] = "Roles of the heads"
    heads: tuple[HeadRole, ...]
    texts: int
    """Number of texts in the sample."""

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "texts": self.texts,
            "heads": [
                {
                    "kind": head.kind,
                    "layer": head.layer,
                    "head": head.number,
                    "shares": dict(head.shares),
                    "uniform": dict(head.uniform),
                    "entropy": head.entropy,
                    "distance": head.distance,
                    "role": head.role,
                }
                for head in self.heads
            ],
        }

    def to_svg(self) -> str:
        """Return a picture: a row per head, a column per role."""
        names = [f"{head.kind} {head.layer}.{head.number}" for head in self.heads]
        columns = [*ROLES, "far", "entropy", "role"]
        cells = [
            [
                *(_share_cell(head, role) for role in (*ROLES, "far")),
                Cell(f"{head.entropy:.2f}"),
                Cell(head.role),
            ]
            for head in self.heads
        ]
        title = f"Shares of attention on {self.texts} texts; a role needs {MOSTLY:.0%} and twice uniform"
        return draw_matrix(title, names, columns, cells, width=110)


def _share_cell(head: HeadRole, role: str) -> Cell:
    if not head.uniform.get(role):  # no query of the sample could have it
        return Cell("–")
    return Cell(f"{head.shares[role]:.2f}", head.shares[role], f"uniform attention: {head.uniform[role]:.2f}")


def classify_heads(maps: Iterable[SampledMaps]) -> list[HeadRole]:
    """Return each head's share of every role, the mean over all texts; one text is in memory at a time."""
    totals: dict[str, _Totals] = {}
    for one in maps:
        totals.setdefault(one.kind, _Totals()).add(one)
    return [role for kind, total in totals.items() for role in total.roles(kind)]


class _Totals:
    """Sums over the queries of all texts, for the heads of one kind of attention."""

    def __init__(self) -> None:
        self.share: dict[str, Tensor] = defaultdict(lambda: torch.zeros(()))
        """Sums by role, (L H)."""
        self.uniform: dict[str, float] = defaultdict(float)
        self.count: dict[str, int] = defaultdict(int)

    def add(self, one: SampledMaps) -> None:
        weight_LHQM = one.weights.double()
        queries = weight_LHQM.shape[2]
        positions = role_positions(one.tokens, one.kind, queries, one.end) | dict(one.further)
        seen_QM = _seen(queries, len(one.tokens), causal=one.kind in CAUSAL)
        for role, position_QM in positions.items():
            has_role_Q = position_QM.any(dim=1)
            self._sum(role, (weight_LHQM * position_QM).sum(dim=-1)[..., has_role_Q])
            share_Q = (position_QM & seen_QM).sum(dim=1) / seen_QM.sum(dim=1)
            self.uniform[role] += float(share_Q[has_role_Q].sum())
        self._sum("entropy", torch.special.entr(weight_LHQM).sum(dim=-1) / torch.log(torch.tensor(2.0)))
        away_QM = torch.zeros(queries, len(one.tokens)) if one.kind == "cross" else _back(queries).abs()
        self._sum("distance", (weight_LHQM * away_QM).sum(dim=-1))

    def _sum(self, name: str, value_LHQ: Tensor) -> None:
        self.share[name] = self.share[name] + value_LHQ.sum(dim=-1)
        self.count[name] += value_LHQ.shape[-1]

    def roles(self, kind: str) -> list[HeadRole]:
        mean = {name: total_LH / max(1, self.count[name]) for name, total_LH in self.share.items()}
        names = [name for name in mean if name not in ("entropy", "distance")]
        uniform = {name: self.uniform[name] / max(1, self.count[name]) for name in names}
        return [
            HeadRole(
                kind,
                layer + 1,
                head + 1,
                {name: float(mean[name][layer, head]) for name in names},
                uniform,
                float(mean["entropy"][layer, head]),
                float(mean["distance"][layer, head]),
            )
            for layer, head in torch.cartesian_prod(*map(torch.arange, mean["entropy"].shape)).tolist()
        ]


CAUSAL = ("decoder", "causal")
"""Kinds of attention that see no later positions."""


def role_positions(
    tokens: Sequence[int | str], kind: str, queries: int, end: int | str | None = None
) -> dict[str, Tensor]:
    """Return, by role, which positions (columns) have it for each query (row).  -> (Q M) each.

    A decoder sees only earlier positions; in an encoder the same word may also come later. Cross-attention has only
    the roles that do not depend on the position of the query.
    """
    punctuation_M = torch.tensor([_is_punctuation(token) for token in tokens])
    end_M = torch.tensor([token == end for token in tokens])
    seen_QM = _seen(queries, len(tokens), causal=kind in CAUSAL)
    found = {"punctuation": punctuation_M & seen_QM, "end": end_M & seen_QM}
    first_M = torch.arange(len(tokens)) == 0
    if kind == "cross":
        return {"first": first_M.expand(queries, -1), **found}
    back_NN = _back(queries)
    number = {token: index for index, token in enumerate(dict.fromkeys(tokens))}
    word_N = torch.tensor([number[token] for token in tokens])
    same_NN = (word_N[:, None] == word_N) & (back_NN != 0) & seen_QM
    after_NN = torch.zeros_like(same_NN)
    after_NN[:, 1:] = same_NN[:, :-1]
    return {
        "itself": back_NN == 0,
        "previous": back_NN == 1,
        "next": (back_NN == -1) & seen_QM,
        "first": first_M & (back_NN > 1),
        "same word": same_NN,
        "after same word": after_NN & seen_QM & (back_NN != 0),
        "far": (back_NN.abs() >= FAR) & seen_QM,
        **found,
    }


def _is_punctuation(token: int | str) -> bool:
    if isinstance(token, int):
        return False
    letters = token.strip("▁Ġ ")
    return bool(letters) and all(unicodedata.category(letter).startswith("P") for letter in letters)


def _seen(queries: int, keys: int, causal: bool) -> Tensor:
    """Return which positions a query sees.  -> (Q M)."""
    return _back(queries) >= 0 if causal else torch.ones(queries, keys, dtype=torch.bool)


def _back(length: int) -> Tensor:
    """Return how many positions each column is before each row; negative if after it.  -> (N N)."""
    position_N = torch.arange(length)
    return position_N[:, None] - position_N
