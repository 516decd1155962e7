"""Beam trees: a search is traced, and its candidates become the nodes of a tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from transduce.errors import SettingsError
from transduce.inference.search.options import Hypothesis, Result
from transduce.inference.search.penalty import normalize
from transduce.inference.search.trace import TraceStep
from transduce.inference.subject import Subject
from transduce.inspection.beam_tree import BeamNode, BeamTree
from transduce.inspection.replay import token_log_probabilities
from transduce.models.interface import AnyTransducer


def trace_tree(subject: Subject, model: AnyTransducer) -> BeamTree:
    """Search with a trace on a twin of the model, and return the tree of all candidates."""
    request = subject.request
    if request.options.method == "sample":
        raise SettingsError("sampling has no beam tree; choose the method 'beam'")
    if request.should_stop is not None:
        raise SettingsError("a beam tree does not show stop strings; leave out stop_at")
    prefix = Hypothesis(list(request.prefix), 0.0, 0.0, ended=False)
    begun = sum(token_log_probabilities(model, subject.force(prefix))) if request.prefix else 0.0
    result = subject.search(model, replace(request, trace=True))
    return with_hypotheses(subject, result, grow(subject, result, begun))


def grow(subject: Subject, result: Result, begun: float) -> list[BeamNode]:
    """Return the nodes of a traced search; `begun` is the log-probability of the prefix."""
    options = subject.request.options
    score = normalize(begun, len(subject.request.prefix), options) if subject.request.prefix else 0.0
    nodes = [BeamNode(0, None, 0, None, "", begun, begun, score, "root")]
    alive = dict.fromkeys(range(options.width), 0)
    for step in result.trace:
        if any(candidate.token is None for candidate in step.candidates):
            for candidate in step.candidates:
                id = alive[candidate.parent]
                nodes[id] = replace(nodes[id], outcome="pruned", reason="stopped")
        else:
            alive = _add_step(nodes, alive, step, subject)
    return nodes


def _add_step(nodes: list[BeamNode], alive: dict[int, int], step: TraceStep, subject: Subject) -> dict[int, int]:
    """Add the candidates of one step; return the node of each beam that continues."""
    kept: dict[int, int] = {}
    pieces = subject.target.pieces([one.token for one in step.candidates if one.token is not None])
    for candidate, piece in zip(step.candidates, pieces, strict=True):
        parent = nodes[alive[candidate.parent]]
        nodes.append(
            BeamNode(
                id=len(nodes),
                parent=parent.id,
                step=step.length - len(subject.request.prefix) + 1,
                token=candidate.token,
                piece=piece,
                token_log_probability=candidate.log_probability - parent.log_probability,
                log_probability=candidate.log_probability,
                score=normalize(candidate.log_probability, step.length + 1, subject.request.options),
                outcome=candidate.outcome,
                reason=candidate.reason,
            )
        )
        if candidate.beam is not None:
            kept[candidate.beam] = nodes[-1].id
    return kept


def with_hypotheses(subject: Subject, result: Result, nodes: Sequence[BeamNode]) -> BeamTree:
    """Return the tree with all finished hypotheses: those that the search returned, then the others by score."""
    nodes, prefix = list(nodes), tuple(subject.request.prefix)
    tree = BeamTree(subject.text, subject.request.options.width, prefix, tuple(nodes), ())
    finished = {tree.tokens(node.id)[:-1]: node for node in nodes if node.outcome == "finished"}
    stopped = {tree.tokens(node.id): node for node in nodes if node.reason == "stopped"}
    found: dict[int, Hypothesis] = {}
    for hypothesis in result.hypotheses:
        node = (finished if hypothesis.ended else stopped)[tuple(hypothesis.tokens)]
        found[node.id] = hypothesis
        if not hypothesis.ended:
            nodes[node.id] = replace(node, outcome="cut_off", reason=None)
    for tokens, node in sorted(finished.items(), key=lambda item: -item[1].score):
        found.setdefault(node.id, Hypothesis(list(tokens), node.score, node.log_probability))
    described = subject.describe(list(found.values()))
    hypotheses = tuple(replace(one, node=id) for id, one in zip(found, described, strict=True))
    return replace(tree, prefix=prefix[subject.language_tokens :], nodes=tuple(nodes), hypotheses=hypotheses)
