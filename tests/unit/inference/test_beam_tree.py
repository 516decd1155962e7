"""The tree of a search whose probabilities are known: a model that copies, with one alternative at each step."""

from __future__ import annotations

import math

import pytest

from tests.unit.copy_translator import copier
from transduce.errors import SettingsError
from transduce.text.constraint import Constraints

TEXT = "ten small cats"


def test_the_tree_of_a_copier_is_what_arithmetic_gives() -> None:
    """Each step has the right token (score 0), one other (score -3), and the rest (score -20)."""
    translator = copier("word")
    total = math.log(1 + math.exp(-3) + (translator.target.size - 2) * math.exp(-20))
    tree = translator.beam_tree(TEXT, beam_size=2, length_penalty=0.0)
    best = tree.hypotheses[0]
    assert best.text == TEXT and best.log_probability == pytest.approx(-4 * total, abs=1e-5)
    assert best.score == best.log_probability and best.ended
    first = [node for node in tree.nodes if node.step == 1]
    assert [node.outcome for node in first[:2]] == ["kept", "kept"]
    assert [node.log_probability for node in first[:2]] == pytest.approx([-total, -3 - total], abs=1e-5)
    assert {node.reason for node in first[2:]} == {"outscored"} or not first[2:]
    second = [node for node in tree.nodes if node.step == 2]
    assert [node.log_probability + 2 * total for node in second[:3]] == pytest.approx([0, -3, -3], abs=1e-4)
    assert sum(node.outcome == "kept" for node in second) == 2
    assert tree.nodes[second[0].parent or 0] == first[0]
    assert tree.hypotheses[1].log_probability == pytest.approx(-3 - 4 * total, abs=1e-4)


def test_constraints_hold_in_the_tree_but_for_stop_strings() -> None:
    translator = copier("word")
    tree = translator.beam_tree(TEXT, constraints=Constraints(forbid=["small"]))
    assert "small" not in tree.hypotheses[0].text and all(node.piece != "small" for node in tree.nodes)
    with pytest.raises(SettingsError, match="stop_at"):
        translator.beam_tree(TEXT, constraints=Constraints(stop_at=["cats"]))
