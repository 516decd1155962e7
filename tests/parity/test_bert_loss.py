"""What a reader minimises beside the losses of `transformers`' BERT, with the same weights and the same wishes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.parity.test_bert import batch, twins
from transduce.tasks.text_encoding.batches import EncoderBatch, encoder_loss, score_cross_entropy

transformers = pytest.importorskip("transformers", reason="compares with transformers; install the extra dev")

SIZES = (2, 7, 29, 3)


def options(kind: str, pieces: int, allowed: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """What is wanted, in our form and in theirs."""
    generator = torch.Generator().manual_seed(11)
    rows, width = allowed.shape
    if kind == "labels":
        label = torch.randint(0, 5, (rows,), generator=generator)
        return label[:, None], {"labels": label}
    if kind == "span":
        lengths = allowed.sum(dim=1)
        places = torch.stack([torch.zeros_like(lengths), lengths - 1], dim=1)
        return places, {"start_positions": places[:, 0], "end_positions": places[:, 1]}
    some = (torch.rand(rows, width, generator=generator) < 0.5) & allowed
    some[:, 0] = False
    some[0, 1] = True
    value = torch.randint(0, pieces if kind != "tags" else 5, (rows, width), generator=generator)
    wanted = torch.where(some, value, -1)
    theirs = {"labels": wanted.masked_fill(~some, -100)}
    if kind == "language":
        follows = torch.randint(0, 2, (rows,), generator=generator)
        wanted[:, 0] = follows
        theirs["next_sentence_label"] = follows
    return wanted, theirs


def encoder_batch(tokens: Tensor, allowed: Tensor, segments: Tensor, labels: Tensor, count: int) -> EncoderBatch:
    return EncoderBatch(
        tokens=tokens,
        allowed=allowed,
        segments=segments,
        labels=labels,
        num_target_tokens=count,
        num_rows=len(tokens),
        rows=np.arange(len(tokens)),
    )


@pytest.mark.parametrize("kind", ["language", "masked", "labels", "tags", "span"])
def test_the_loss_is_theirs(kind: str) -> None:
    pair = twins(kind, torch.float64, SIZES)
    tokens, allowed, segments = batch(pair.pieces, left=False)
    if kind == "span":  # they let padding compete for the answer, we do not: without padding both are the same
        tokens, segments, allowed = tokens[:1, :7], segments[:1, :7], allowed[:1, :7]
    wanted, theirs = options(kind, pair.pieces, allowed)
    expected = pair.theirs(tokens, attention_mask=allowed.long(), token_type_ids=segments, **theirs).loss
    hidden = int((wanted[:, 1:] >= 0).sum())
    asked = {"labels": len(tokens), "span": 2 * len(tokens)}.get(kind, hidden)
    given = encoder_batch(tokens, allowed, segments, wanted, asked)
    found = encoder_loss(pair.ours, given, smoothing=0.0).smoothed / asked
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["language", "labels", "tags", "span"])
def test_the_loss_of_a_batch_is_the_sum_of_its_parts(kind: str) -> None:
    pair = twins(kind, torch.float64, SIZES)
    tokens, allowed, segments = batch(pair.pieces, left=False)
    wanted, _ = options(kind, pair.pieces, allowed)
    whole = encoder_batch(tokens, allowed, segments, wanted, 17)
    parts = [whole.part(start, start + 1) for start in range(len(tokens))]
    with torch.no_grad():
        total = sum(float(encoder_loss(pair.ours, part, 0.1).smoothed) for part in parts)
        assert float(encoder_loss(pair.ours, whole, 0.1).smoothed) == pytest.approx(total, rel=1e-9)
    assert [len(part) for part in parts] == [1] * len(tokens)


def test_smoothing_is_that_of_pairs_and_candidates_that_are_none_get_nothing() -> None:
    """Against torch's own: theirs gives every label ε / K, ours the true one 1 - ε and each other ε / (K - 1)."""
    generator = torch.Generator().manual_seed(2)
    score = torch.randn(7, 5, generator=generator, dtype=torch.float64)
    wanted = torch.randint(0, 5, (7,), generator=generator)
    epsilon = 0.2
    expected = torch.nn.functional.cross_entropy(score, wanted, label_smoothing=epsilon * 5 / 4, reduction="sum")
    assert float(score_cross_entropy([score], wanted, epsilon).smoothed) == pytest.approx(float(expected))
    padded = torch.cat([score, torch.full((7, 3), -torch.inf, dtype=torch.float64)], dim=1).requires_grad_()
    found = score_cross_entropy([padded], wanted, epsilon)
    assert float(found.smoothed.detach()) == pytest.approx(float(expected))
    found.smoothed.backward()  # type: ignore[no-untyped-call]
    assert padded.grad is not None and bool(padded.grad.isfinite().all()) and float(padded.grad[:, 5:].abs().max()) == 0


def test_two_readings_that_agree_cost_nothing_more_and_others_their_divergence() -> None:
    generator = torch.Generator().manual_seed(2)
    first, second = (torch.randn(7, 5, generator=generator, dtype=torch.float64) for _ in range(2))
    wanted = torch.randint(0, 5, (7,), generator=generator)
    alone: Any = score_cross_entropy([first], wanted, 0.0)
    assert float(score_cross_entropy([first, first], wanted, 0.0, 3.0).smoothed) == pytest.approx(float(alone.smoothed))
    p, q = first.log_softmax(1), second.log_softmax(1)
    both = (torch.nn.functional.kl_div(p, q, log_target=True, reduction="sum")) + (
        torch.nn.functional.kl_div(q, p, log_target=True, reduction="sum")
    )
    mean = sum(torch.nn.functional.nll_loss(log, wanted, reduction="sum") for log in (p, q)) / 2
    found = score_cross_entropy([first, second], wanted, 0.0, 3.0).smoothed
    assert float(found) == pytest.approx(float(mean + 3.0 / 4 * both))
