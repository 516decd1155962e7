"""The beam tree: every hypothesis of a beam search, step by step, with what was kept, finished and pruned, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

from transduce.errors import SettingsError
from transduce.inspection import drawing
from transduce.inspection.drawing import Picture
from transduce.inspection.figure import printable

NodeOutcome = Literal["root", "kept", "finished", "pruned", "cut_off"]
"""kept: it was continued. finished: it ended. pruned: it was dropped. cut_off: the maximum length ended it, and it is
among the hypotheses."""


@dataclass(frozen=True)
class BeamNode:
    """One hypothesis after one step: the hypothesis of its parent and one more token."""

    id: int
    """Its index in `BeamTree.nodes`."""
    parent: int | None
    """Id of its parent; None for the root, which holds the prefix."""
    step: int
    """Number of tokens after the prefix; 0 for the root."""
    token: int | None
    """The token; None for the root."""
    piece: str
    """The token in readable form."""
    token_log_probability: float
    """Log-probability of the token, given its parent."""
    log_probability: float
    """Log-probability of the whole hypothesis, prefix included."""
    score: float
    """The log-probability divided by the length penalty; finished hypotheses are ranked by it."""
    outcome: NodeOutcome
    reason: str | None = None
    """Why it was pruned. outscored: others filled the beam; end_outscored: it ends, and is not among the best;
    stopped: it was unfinished when the search stopped."""


@dataclass(frozen=True)
class BeamHypothesis:
    """One translation that the search found."""

    rank: int
    """From 1."""
    text: str
    tokens: tuple[int, ...]
    """Without start and end, prefix included; what `continue_from` takes."""
    pieces: tuple[str, ...]
    score: float
    """The log-probability divided by the length penalty."""
    log_probability: float
    ended: bool
    """False if the maximum length cut it off."""
    node: int | None = None
    """Id of its last node in the beam tree; None outside of one."""

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {**asdict(self), "tokens": list(self.tokens), "pieces": list(self.pieces)}


@dataclass(frozen=True)
class BeamTree(Picture):
    """All hypotheses that a search considered: at each step the best 2 × beam_size, and what was kept besides."""

    view: ClassVar[str] = "beam-tree"
    page_title: ClassVar[str] = "Beam tree"
    source: str
    beam_size: int
    prefix: tuple[int, ...]
    """Tokens that every hypothesis begins with."""
    nodes: tuple[BeamNode, ...]
    """The root first, then step by step, best first."""
    hypotheses: tuple[BeamHypothesis, ...]
    """All finished hypotheses, best first: those that the search returned, then the others by score."""

    def __repr__(self) -> str:
        best = repr(self.hypotheses[0].text) if self.hypotheses else "nothing"
        return f"BeamTree({self.source!r} → {best}: beam of {self.beam_size}, {len(self.nodes)} nodes)"

    def path(self, node: int) -> tuple[BeamNode, ...]:
        """Return the nodes from the root to a node, both included."""
        if not 0 <= node < len(self.nodes):
            raise SettingsError(f"no node {node}; the tree has nodes 0 to {len(self.nodes) - 1}")
        found = [self.nodes[node]]
        while found[-1].parent is not None:
            found.append(self.nodes[found[-1].parent])
        return tuple(reversed(found))

    def tokens(self, node: int) -> tuple[int, ...]:
        """Return the tokens of a hypothesis, prefix included: force a pruned branch with `continue_from`."""
        return (*self.prefix, *(one.token for one in self.path(node) if one.token is not None))

    def pruned(self) -> tuple[BeamNode, ...]:
        """Return the pruned nodes, best score first."""
        found = [node for node in self.nodes if node.outcome == "pruned"]
        return tuple(sorted(found, key=lambda node: -node.score))

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "source": self.source,
            "beam_size": self.beam_size,
            "prefix": list(self.prefix),
            "nodes": [asdict(node) for node in self.nodes],
            "hypotheses": [hypothesis.to_json() for hypothesis in self.hypotheses],
        }

    @cached_property
    def _best(self) -> frozenset[int]:
        """Ids of the nodes of the best hypothesis."""
        node = self.hypotheses[0].node if self.hypotheses else None
        return frozenset() if node is None else frozenset(one.id for one in self.path(node))

    def to_svg(self) -> str:
        """Return a picture: a column per step, the best hypotheses on top; what is pruned is pale."""
        places = self._places()
        parts = [drawing.text(8, 18, f"Beam tree of {printable(self.source, 60)}", size=13)]
        parts += self._edges(places)
        for node in self.nodes:
            parts += _draw_node(node, *places[node.id], is_best=node.id in self._best)
        bottom = max(y for _, y in places.values()) + HEIGHT + 30
        for hypothesis in self.hypotheses:
            line = f"{hypothesis.rank}. {hypothesis.score:+.3f}  {printable(hypothesis.text, 100)}"
            parts.append(drawing.text(8, bottom, line))
            bottom += 18
        width = max(x for x, _ in places.values()) + WIDTH + 10
        return drawing.document(parts, max(width, 500), bottom, f"Beam tree of {self.source}")

    def _places(self) -> dict[int, tuple[float, float]]:
        """Return where each node is drawn: a column per step, in the order of the nodes."""
        rows: dict[int, int] = {}
        places = {}
        for node in self.nodes:
            row = rows[node.step] = rows.get(node.step, -1) + 1
            places[node.id] = (8.0 + (WIDTH + GAP) * node.step, 34.0 + (HEIGHT + 6) * row)
        return places

    def _edges(self, places: dict[int, tuple[float, float]]) -> Iterator[str]:
        for node in self.nodes:
            if node.parent is not None:
                (x, y), (to_x, to_y) = places[node.parent], places[node.id]
                best = node.id in self._best
                stroke = drawing.INK if best else drawing.EDGE
                start, end = (x + WIDTH, y + HEIGHT / 2), (to_x, to_y + HEIGHT / 2)
                yield drawing.line(start, end, stroke, 2.0 if best else 1.0)


WIDTH, HEIGHT, GAP = 104.0, 22.0, 34.0
"""Sizes of a node, and the space between two steps."""
SHADES = {"root": 0.0, "kept": 0.35, "finished": 0.9, "pruned": 0.0, "cut_off": 0.6}


def _draw_node(node: BeamNode, x: float, y: float, is_best: bool) -> Iterator[str]:
    why = "" if node.reason is None else f", {node.reason}"
    hover = (
        f"{node.piece}: {node.outcome}{why}; log-probability {node.log_probability:.4f} "
        f"(token {node.token_log_probability:.4f}), score {node.score:.4f}"
    )
    shade = SHADES[node.outcome]
    yield drawing.box(x, y, WIDTH, HEIGHT, drawing.colour(shade), drawing.INK if is_best else drawing.EDGE, hover)
    ink = drawing.PAPER if shade > 0.55 else drawing.SOFT if node.outcome == "pruned" else drawing.INK
    label = "start" if node.token is None else f"{printable(node.piece, 8)} {node.log_probability:.2f}"
    yield drawing.text(x + 6, y + 15, label, size=11, fill=ink)
