"""The loss against its definition, written out token by token."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.data.batching import PairBatch, collate
from transduce.data.store import PairStore
from transduce.inference.scoring import score_targets
from transduce.models.catalog import build, preset
from transduce.models.interface import AnyTransducer, Transducer, VocabularySizes
from transduce.models.transformer import TransformerConfig
from transduce.nn.dropout import DropoutKey, set_dropout_key
from transduce.tasks.transducer import transducer_loss
from transduce.text.tokenizer.special import Specials

SPECIALS = Specials(pad=3, start=1, end=2)
SIZES = VocabularySizes(13, 17)
SOURCES = [[4, 5, 6, 7, 8], [9], [10, 11, 12], []]
TARGETS = [[16, 15], [4, 5, 6, 7, 8, 9, 10], [], [11]]


def small(**changes: object) -> AnyTransducer:
    config = TransformerConfig(model_dim=14, num_heads=2, ffn_dim=19, num_layers=1, tied_embeddings="none").but(
        **changes
    )
    return build(config, SIZES, seed=3).double().eval()


def batch_of(rows: list[int]) -> PairBatch:
    return collate(PairStore.of(SOURCES, TARGETS), np.array(rows), SPECIALS, SPECIALS)


def wider(batch: PairBatch) -> PairBatch:
    """The same pairs with more padding on both sides."""
    return replace(
        batch,
        source=F.pad(batch.source, (0, 3), value=SPECIALS.pad),
        source_allowed=F.pad(batch.source_allowed, (0, 3)),
        target=F.pad(batch.target, (0, 5), value=SPECIALS.pad),
    )


@pytest.mark.parametrize("preset_name", ["small", "universal_mini", "extended_neural_gpu_small", "bahdanau"])
def test_with_two_readings_slices_add_up_to_the_whole(preset_name: str) -> None:
    """How often a dropout is used may depend on a slice's longest row: the second reading must not hear of it."""
    model = build(preset(preset_name)[1].but(dropout=0.3), VocabularySizes(17, 17), seed=3).double().train()
    assert isinstance(model, Transducer)
    whole = collate(PairStore.of(SOURCES[:3], TARGETS[:3]), np.arange(3), SPECIALS, SPECIALS)

    def loss(first: int, last: int) -> float:
        set_dropout_key(model, DropoutKey(seed=1, update=2, first_row=first))
        return float(transducer_loss(model, whole.part(first, last), 0.1, r_drop=5.0).smoothed.detach())

    assert loss(0, 1) + loss(1, 3) == pytest.approx(loss(0, 3), rel=1e-9)


def by_definition(model: AnyTransducer, rows: list[int], smoothing: float) -> Tensor:
    """Sum over pairs and places of -Σ q(k) log p(k): the true token has q = 1 - ε, each of the others ε / (K - 1)."""
    total = torch.zeros((), dtype=torch.float64)
    for row in rows:
        source = torch.tensor([[*SOURCES[row], SPECIALS.end]])
        memory = model.encode(source, torch.ones_like(source, dtype=torch.bool))
        hidden = model(torch.tensor([[SPECIALS.start, *TARGETS[row]]]), memory)
        for log_probability_V, true in zip(
            model.logits(hidden)[0].log_softmax(dim=-1), [*TARGETS[row], SPECIALS.end], strict=True
        ):
            for token in range(SIZES.target):
                share = 1 - smoothing if token == true else smoothing / (SIZES.target - 1)
                total = total - share * log_probability_V[token]
    return total


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.37, 0.999])
@pytest.mark.parametrize("changes", [{}, {"tied_embeddings": "target"}, {"output_bias": True}], ids=str)
def test_the_loss_and_its_gradient_are_the_definition_of_smoothing(
    smoothing: float, changes: dict[str, object]
) -> None:
    model, rows = small(**changes), [0, 1, 2, 3]
    found = transducer_loss(model, batch_of(rows), smoothing).smoothed
    found.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    expected = by_definition(model, rows, smoothing)
    expected.backward()
    assert float(found.detach()) == pytest.approx(float(expected.detach()), rel=1e-12)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-9, atol=1e-12, msg=name)


def test_a_model_without_opinion_pays_the_logarithm_of_the_vocabulary() -> None:
    """By hand: with all scores equal every token costs ln 17, smoothed or not."""
    model = small()
    with torch.no_grad():
        model.output.weight.zero_()
    for smoothing in (0.0, 0.1, 0.9):
        found = transducer_loss(model, batch_of([0, 1]), smoothing)
        assert float(found.smoothed.detach()) == pytest.approx((3 + 8) * math.log(17), rel=1e-12)
        assert float(found.plain) == pytest.approx((3 + 8) * math.log(17), rel=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_padding_does_not_change_the_loss_or_the_gradient(smoothing: float) -> None:
    model = small()
    results = []
    for batch in (batch_of([0, 1, 2, 3]), wider(batch_of([0, 1, 2, 3]))):
        model.zero_grad(set_to_none=True)
        found = transducer_loss(model, batch, smoothing)
        found.smoothed.backward()
        results.append([found.smoothed.detach(), found.plain, *(p.grad for p in model.parameters())])
    for narrow, wide in zip(*results, strict=True):
        torch.testing.assert_close(narrow, wide, rtol=1e-10, atol=1e-12)


def test_the_loss_of_a_batch_is_the_sum_over_its_pairs() -> None:
    model = small()
    together = transducer_loss(model, batch_of([0, 1, 2, 3]), 0.1)
    alone = [transducer_loss(model, batch_of([row]), 0.1) for row in range(4)]
    assert float(together.smoothed.detach()) == pytest.approx(
        sum(float(one.smoothed.detach()) for one in alone), rel=1e-12
    )
    assert float(together.plain) == pytest.approx(sum(float(one.plain) for one in alone), rel=1e-12)


def test_plain_loss_and_hits_are_those_of_scoring() -> None:
    model = small()
    with torch.inference_mode():
        found = transducer_loss(model, batch_of([0, 1, 2, 3]), 0.1)
    scored = score_targets(model, SOURCES, TARGETS, SPECIALS, SPECIALS)
    assert float(found.plain) == pytest.approx(-sum(target.log_probability for target in scored), rel=1e-5)
    assert int(found.correct) == sum(sum(target.hits) for target in scored)


def test_the_plain_loss_carries_no_gradient() -> None:
    found = transducer_loss(small(), batch_of([0, 1]), 0.1)
    assert found.smoothed.requires_grad
    assert not found.plain.requires_grad


def test_an_end_token_that_also_fills_up_rows_is_learnt_where_a_text_ends() -> None:
    """As in GPT-2, which has no token for filling up."""
    filled_with_end = SPECIALS._replace(pad=SPECIALS.end)
    batch = collate(PairStore.of(SOURCES, TARGETS), np.arange(4), SPECIALS, filled_with_end)
    model = small()
    assert int(batch.is_predicted.sum()) == batch.num_target_tokens
    expected = by_definition(model, [0, 1, 2, 3], 0.1)
    torch.testing.assert_close(transducer_loss(model, batch, 0.1).smoothed, expected, rtol=0, atol=1e-9)
