"""Teacher forcing against free running: the tasks, both kinds of decoding, and the optimal errors."""

from __future__ import annotations

import pytest
import torch

from transduce.experiments.teacher_forcing import (
    TeacherForcingSetting,
    count_errors,
    measure,
    optimal_errors,
    sample_pairs,
)
from transduce.models.catalog import build
from transduce.models.interface import Transducer, VocabularySizes
from transduce.models.transformer import TransformerConfig

SMALL = TeacherForcingSetting(width=16, num_heads=2, symbols=3, length=5, hidden=0.2, batch=32, updates=20, tested=300)


@pytest.mark.parametrize("task", ["running sum", "copy"])
def test_targets_are_sums_or_copies_of_what_is_not_hidden(task: str) -> None:
    source_BN, target_BT = sample_pairs(task, SMALL, 200, torch.Generator().manual_seed(1))
    assert (target_BT[:, 0] == 0).all() and target_BT[:, 1:].min() == 1 and target_BT.max() == 3
    answer_BT = target_BT[:, 1:] - 1
    before_BT = torch.nn.functional.pad(answer_BT, (1, 0))[:, :-1] if task == "running sum" else 0
    seen_BN = source_BN > 0
    assert torch.equal(((answer_BT - before_BT) % 3)[seen_BN], source_BN[seen_BN] - 1)
    assert 0.15 < 1 - seen_BN.double().mean() < 0.25


def test_optimal_errors_are_those_of_guessing_hidden_symbols() -> None:
    """Sum the visible symbols, and take 0 for hidden ones."""
    source_BN, target_BT = sample_pairs("running sum", SMALL, 20_000, torch.Generator().manual_seed(2))
    own_BT = (source_BN - 1).clamp(min=0).cumsum(dim=1) % 3
    wrong_T = (own_BT + 1 != target_BT[:, 1:]).double().mean(dim=0)
    # among three symbols two wrong guesses often cancel out, and then the sum is as likely to be right as any other
    torch.testing.assert_close(wrong_T, optimal_errors(SMALL)["running sum"], atol=0.01, rtol=0)
    assert optimal_errors(SMALL)["copy"].tolist() == pytest.approx([0.2 * 2 / 3] * 5)


def test_both_kinds_of_decoding_against_a_full_forward_pass_per_token() -> None:
    config = TransformerConfig(model_dim=8, ffn_dim=11, num_heads=2, num_layers=2, dropout=0.0)
    model = build(config, VocabularySizes(4, 4), seed=3).eval()
    assert isinstance(model, Transducer)
    source_BN, target_BT = sample_pairs("running sum", SMALL, 23, torch.Generator().manual_seed(4))
    memory = model.encode(source_BN, torch.ones_like(source_BN, dtype=torch.bool))
    forced, own_BT = [], target_BT[:, :1]
    for position in range(1, 6):
        forced.append(model.logits(model(target_BT[:, :position], memory)[:, -1]).argmax(dim=-1))
        following = model.logits(model(own_BT, memory)[:, -1]).argmax(dim=-1)
        own_BT = torch.cat([own_BT, following[:, None]], dim=1)
    found = count_errors(model, source_BN, target_BT)
    assert torch.equal(found.forced, (torch.stack(forced, dim=1) != target_BT[:, 1:]).double().mean(dim=0))
    assert torch.equal(found.free, (own_BT != target_BT)[:, 1:].double().mean(dim=0))
    assert found.max_difference < 1e-5 and not torch.equal(found.forced, found.free)


def test_a_model_that_has_learned_little_fails_the_second_check() -> None:
    finding = measure(setting=SMALL)
    assert finding.checks[0].passed and not finding.checks[1].passed
    assert [row[:2] for row in finding.rows[:4]] == [("running sum", place) for place in (1, 2, 4, 5)]
    assert measure(setting=SMALL) == finding
