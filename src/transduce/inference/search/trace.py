"""The trace of a search: which candidates each step kept, finished or pruned, and why (the beam tree).

It is recorded if `Request.trace` is set; other requests cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from transduce.inference.search.strategy import Selection, StepScores

Outcome = Literal["kept", "finished", "pruned"]
PruneReason = Literal["outscored", "end_outscored", "stopped"]
"""outscored: other candidates filled the beam. end_outscored: it ends, and is not among the beam_size best. stopped: it
was unfinished when the search stopped."""


@dataclass(frozen=True)
class TraceCandidate:
    """One continuation that a step considered."""

    parent: int
    """The beam that it continues."""
    token: int | None
    """The token; None for a beam that was unfinished when the search stopped."""
    log_probability: float
    outcome: Outcome
    beam: int | None = None
    """The beam that it became, if it was kept."""
    reason: PruneReason | None = None
    """Why it was pruned."""


@dataclass(frozen=True)
class TraceStep:
    """One step of one request."""

    length: int
    """Tokens of each beam before this step, prefix included."""
    candidates: tuple[TraceCandidate, ...]
    """Best first."""


def trace_step(scores: StepScores, selection: Selection, end: int, length: int) -> TraceStep:
    """Record one step of one request, given by scores and a selection of batch size 1.

    The candidates are the best 2 × beam_size, and whatever was kept or finished besides.
    """
    width = selection.tokens.shape[1]
    best = zip(*(column[0].tolist() for column in scores.best(2 * width)), strict=True)
    considered = {(parent, token): score for score, parent, token in best if score > -float("inf")}
    kept: dict[tuple[int, int], int] = {}
    columns = (selection.parents, selection.tokens, selection.scores)
    for beam, (parent, token, score) in enumerate(zip(*(column[0].tolist() for column in columns), strict=True)):
        if score > -float("inf"):
            kept.setdefault((parent, token), beam)
            considered.setdefault((parent, token), score)
    finished = set()
    columns = (selection.ended_parents, selection.ended_scores, selection.ended)
    for parent, score, ended in zip(*(column[0].tolist() for column in columns), strict=True):
        if ended:
            finished.add((parent, end))
            considered.setdefault((parent, end), score)
    found = []
    for (parent, token), score in sorted(considered.items(), key=lambda item: -item[1]):
        if (parent, token) in finished:
            found.append(TraceCandidate(parent, token, score, "finished"))
        elif (parent, token) in kept:
            found.append(TraceCandidate(parent, token, score, "kept", kept[parent, token]))
        else:
            reason: PruneReason = "end_outscored" if token == end else "outscored"
            found.append(TraceCandidate(parent, token, score, "pruned", reason=reason))
    return TraceStep(length, tuple(found))


def trace_stop(scores: list[float], length: int) -> TraceStep:
    """Record the beams that are unfinished when a search stops."""
    alive = [(beam, score) for beam, score in enumerate(scores) if score > -float("inf")]
    return TraceStep(
        length, tuple(TraceCandidate(beam, None, score, "pruned", reason="stopped") for beam, score in alive)
    )
