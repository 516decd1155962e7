"""Roles of heads: hand-made attention is classified correctly, and recorded maps are those of the model."""

from __future__ import annotations

import torch
from torch import Tensor

from transduce.experiments.finding import silent
from transduce.experiments.head_roles import (
    ROLES,
    HeadRoleSetting,
    finding,
    maps_of_small,
    measure,
    sample_texts,
    train_small,
)
from transduce.inspection.head_role import SampledMaps, classify_heads
from transduce.nn.attention.dot_product import causal_allowed

TEXT = ("a", "b", "a", "c", "b", "a")
SMALL = HeadRoleSetting(width=8, num_heads=2, symbols=5, shortest=3, longest=5, batch=8, updates=3, tested=7)


def pointing(targets: list[int]) -> Tensor:
    """Return a head whose position i attends to `targets[i]` alone.  -> (N N)."""
    return torch.nn.functional.one_hot(torch.tensor(targets), len(targets)).float()


def test_heads_made_by_hand_have_the_roles_they_were_made_for() -> None:
    weights_LHNN = torch.stack(
        [
            torch.stack([pointing([0, 0, 1, 2, 3, 4]), pointing([0, 0, 0, 0, 0, 0])]),
            torch.stack([pointing([0, 1, 0, 3, 1, 2]), pointing([0, 1, 1, 3, 2, 3])]),
            torch.stack([pointing([0, 1, 2, 3, 4, 5]), causal_allowed(6) / torch.arange(1, 7)[:, None]]),
        ]
    )
    heads = classify_heads([SampledMaps("decoder", weights_LHNN, TEXT)])
    roles = [head.role_among(ROLES) for head in heads]
    assert roles == [
        "previous",
        "first",
        "same word",
        "after same word",
        "itself",
        "mixed",
    ]
    assert heads[0].shares["previous"] == 1 and heads[3].shares["after same word"] == 1
    assert heads[4].distance == 0 and heads[0].distance == 5 / 6
    verdict = finding([SampledMaps("decoder", weights_LHNN, TEXT)], {}, [])
    passed = {check.statement.split(" (")[0].split(":")[0]: check.passed for check in verdict.checks}
    assert passed == {
        "some head attends mostly to the previous token": True,
        "some head attends mostly to the first token": True,
        "some head attends mostly to the same word": True,
        "some head attends mostly to the token after the same word": True,
        "every head has one of the named roles": False,
        "no two heads of a layer have the same role": True,
        "the decoder's last layer attends further than its first": False,
    }
    twice = finding([SampledMaps("decoder", weights_LHNN[:, [0, 0]], TEXT)], {}, [])
    (alike,) = [check for check in twice.checks if "the same role" in check.statement]
    assert not alike.passed and "(in 0 of 3 layers)" in alike.statement


def test_texts_repeat_and_attention_is_causal() -> None:
    text_BN = sample_texts(SMALL, 4, 5, torch.Generator().manual_seed(1))
    assert text_BN.shape == (4, 11) and (text_BN[:, 0] == 0).all()
    assert torch.equal(text_BN[:, 1:6], text_BN[:, 6:])
    maps, accuracy = maps_of_small(train_small(SMALL, 1, silent), SMALL, seed=1)
    assert len(maps) == 7 and 0 <= accuracy < 1
    weights_LHNN = maps[0].weights
    assert weights_LHNN.shape == (2, 2, 8, 8) == (2, 2, len(maps[0].tokens), len(maps[0].tokens))
    torch.testing.assert_close(weights_LHNN.sum(dim=-1), torch.ones(2, 2, 8))
    assert not weights_LHNN[..., ~causal_allowed(8)].any()


def test_a_model_that_has_learned_nothing_fails_the_first_check() -> None:
    verdict = measure(setting=SMALL)
    assert not verdict.checks[0].passed and len(verdict.rows) == 4
