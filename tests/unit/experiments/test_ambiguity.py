"""Ambiguous words: the sentences, ablation, and the verdict."""

from __future__ import annotations

from dataclasses import replace

import torch

from transduce.experiments.ambiguity import (
    BANK,
    DEFAULT,
    EAT,
    FORK,
    HAT,
    KINDS,
    LENS,
    LOOK,
    MONEY,
    WATER,
    WITH,
    WORDS,
    HeadEffect,
    checks,
    measure,
    sentences,
)

SMALL = replace(DEFAULT, width=8, num_heads=2, num_layers=1, batch=2, updates=1, tested=3)


def test_another_word_decides_what_bank_means() -> None:
    for one in sentences(["bank"], 40, False, torch.Generator().manual_seed(1)):
        (decides,) = one.deciding
        assert one.source[one.place] == BANK and decides != one.place
        assert (one.target[one.place] == WORDS) == (one.source[decides] >= MONEY)
        assert WATER <= one.source[decides] < LOOK


def test_verb_and_noun_together_decide_the_attachment() -> None:
    seen = set()
    for one in sentences(["with"], 60, True, torch.Generator().manual_seed(1)):
        looks, thing = one.source[1] < EAT, (one.source[4] >= FORK) + (one.source[4] >= HAT)
        assert one.source[one.place] == WITH and one.source[4] >= LENS
        assert (one.target[one.place] == WORDS + 1) == ((looks, thing) not in {(True, 0), (False, 1)})
        seen.add((looks, thing))
    assert len(seen) == 6


def test_every_head_of_encoder_and_cross_attention_is_ablated() -> None:
    finding = measure(setting=SMALL)
    assert [row[:3] for row in finding.rows] == [
        (stack, 1, head) for stack in ("encoder", "cross") for head in ("1", "2", "all")
    ]


def test_the_verdict_follows_the_effects() -> None:
    def head(number: int, bank: float, attachment: float) -> HeadEffect:
        both = {"bank": bank, "with": attachment}
        return HeadEffect("encoder", 1, number, both, both)

    right = dict.fromkeys(KINDS, 1.0)
    together = head(0, 0.7, 0.7)
    assert all(check.passed for check in checks(right, [head(1, 0.6, 0.0), head(2, 0.1, 0.6), together]))
    passed = [check.passed for check in checks(right, [head(1, 0.1, 0.6), head(2, 0.0, 0.1), together])]
    assert passed == [True, False, True, True, True, False, False]
