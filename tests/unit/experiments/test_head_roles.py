"""Roles of heads: hand-made attention is recognised, and a small model's weights are those it really used."""

from __future__ import annotations

import torch
from torch import Tensor

from transduce.experiments.finding import silent
from transduce.experiments.head_roles import (
    Repeating,
    SelfAttentionMaps,
    draw,
    finding,
    heads_of,
    looks_of_small,
    measure,
    places,
    trained,
)
from transduce.nn.attention.dot_product import causal_allowed

TEXT = ("a", "b", "a", "c", "b", "a")
SMALL = Repeating(width=8, num_heads=2, symbols=5, shortest=3, longest=5, batch=8, updates=3, tested=7)


def pointing(targets: list[int]) -> Tensor:
    """A head whose position i looks at `targets[i]` alone.  -> (N N)."""
    return torch.nn.functional.one_hot(torch.tensor(targets), len(targets)).float()


def test_places_are_where_a_person_would_point() -> None:
    found = places(TEXT, causal=True)
    after = {(row, column) for row, column in found["after same word"].nonzero().tolist()}
    assert after == {(2, 1), (4, 2), (5, 1), (5, 3)}
    assert found["same word"].nonzero().tolist() == [[2, 0], [4, 1], [5, 0], [5, 2]]
    assert found["first"][:, 0].tolist() == [False, False, True, True, True, True]
    assert [2, 5] in places(TEXT, causal=False)["same word"].nonzero().tolist()


def test_heads_made_by_hand_have_the_roles_they_were_made_for() -> None:
    weights_LHNN = torch.stack(
        [
            torch.stack([pointing([0, 0, 1, 2, 3, 4]), pointing([0, 0, 0, 0, 0, 0])]),
            torch.stack([pointing([0, 1, 0, 3, 1, 2]), pointing([0, 1, 1, 3, 2, 3])]),
            torch.stack([pointing([0, 1, 2, 3, 4, 5]), causal_allowed(6) / torch.arange(1, 7)[:, None]]),
        ]
    )
    heads = heads_of([SelfAttentionMaps("decoder", weights_LHNN, TEXT)])
    assert [head.role for head in heads] == ["previous", "first", "same word", "after same word", "itself", "mixed"]
    assert heads[0].shares["previous"] == 1 and heads[3].shares["after same word"] == 1
    assert heads[4].distance == 0 and heads[0].distance == 5 / 6
    verdict = finding([SelfAttentionMaps("decoder", weights_LHNN, TEXT)], {}, [])
    passed = {check.statement.split(" (")[0].split(":")[0]: check.passed for check in verdict.checks}
    assert passed == {
        "some head looks mostly at the token before": True,
        "some head looks mostly at the first token": True,
        "some head looks mostly at the same word": True,
        "some head looks mostly at what came after the same word": True,
        "every head has a role with a name": False,
        "no two heads of a layer have the same one": True,
        "the decoder's last layer looks further than its first": False,
    }
    twice = finding([SelfAttentionMaps("decoder", weights_LHNN[:, [0, 0]], TEXT)], {}, [])
    (alike,) = [check for check in twice.checks if "the same one" in check.statement]
    assert not alike.passed and "(in 0 of 3 layers)" in alike.statement


def test_texts_say_everything_twice_and_weights_are_of_the_past() -> None:
    text_BN = draw(SMALL, 4, 5, torch.Generator().manual_seed(1))
    assert text_BN.shape == (4, 11) and (text_BN[:, 0] == 0).all()
    assert torch.equal(text_BN[:, 1:6], text_BN[:, 6:])
    looks, knew = looks_of_small(trained(SMALL, 1, silent), SMALL, seed=1)
    assert len(looks) == 7 and 0 <= knew < 1
    weights_LHNN = looks[0].weights
    assert weights_LHNN.shape == (2, 2, 8, 8) == (2, 2, len(looks[0].tokens), len(looks[0].tokens))
    torch.testing.assert_close(weights_LHNN.sum(dim=-1), torch.ones(2, 2, 8))
    assert not weights_LHNN[..., ~causal_allowed(8)].any()


def test_a_model_that_has_learned_nothing_is_told_so() -> None:
    verdict = measure(setting=SMALL)
    assert not verdict.checks[0].passed and len(verdict.rows) == 4
