"""Pairs of sequences: padding, loss and greedy decoding."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from transduce.experiments.pairs import END, PAD, START, batch_of, build_translator, greedy, loss, share_correct
from transduce.models.transformer import TransformerConfig

CONFIG = TransformerConfig(model_dim=8, num_heads=2, ffn_dim=8, num_layers=1, dropout=0.0)


def test_symbols_come_after_the_special_tokens() -> None:
    batch = batch_of([[0, 1], [2]], [[4], [0, 1]])
    assert batch.source.tolist() == [[3, 4, END], [5, END, PAD]]
    assert batch.target.tolist() == [[START, 7, END, PAD], [START, 3, 4, END]]


def test_the_loss_is_that_of_torch_without_padding() -> None:
    model, batch = build_translator(CONFIG, 6, 6, seed=1), batch_of([[0, 1], [2]], [[4], [0, 1]])
    score_BTV = model.logits(model(batch.target[:, :-1], model.encode(batch.source, batch.source != PAD)))
    expected = F.cross_entropy(score_BTV.flatten(0, 1), batch.target[:, 1:].flatten(), ignore_index=PAD)
    torch.testing.assert_close(loss(model, batch), expected)


def test_greedy_search_ends_at_the_end_token_or_the_limit() -> None:
    model = build_translator(CONFIG, 6, 6, seed=1).eval()
    found = greedy(model, batch_of([[0, 1], [2]], [[4], [0, 1]]).source, longest=4)
    assert len(found) == 2 and all(len(row) <= 5 for row in found)


def test_correct_symbols_stand_in_their_place() -> None:
    assert share_correct([[1, 2, 3], []], [[1, 3], [4, 5]]) == pytest.approx(1 / 4)
