"""Attention against sums written out by hand, torch's own module, and the agreement of its two kernels."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from transduce.nn.attention.dot_product import and_causal, attention_scores, attention_weights, fused_attention
from transduce.nn.attention.multi_head import CrossAttention, HeadShape, MultiHeadAttention, PackedLinear, SelfAttention
from transduce.nn.state import KeyValues

BATCH, HEADS, QUERIES, KEYS, KEY_DIM, VALUE_DIM, MODEL_DIM = 2, 3, 5, 7, 11, 13, 17
CPU = torch.device("cpu")


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(23)


def by_hand(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor) -> tuple[list[float], list[float]]:
    """Weights and mixture of one query in plain numbers.  (K), (M K), (M V), (M)."""
    scores = [
        sum(q * k for q, k in zip(query.tolist(), row, strict=True)) / math.sqrt(len(query)) for row in key.tolist()
    ]
    powers = [math.exp(score) if may else 0.0 for score, may in zip(scores, allowed.tolist(), strict=True)]
    weights = [power / sum(powers) for power in powers]
    mixed = [sum(w * row[c] for w, row in zip(weights, value.tolist(), strict=True)) for c in range(value.shape[1])]
    return weights, mixed


def test_every_weight_and_mixture_is_the_formula_of_section_3_2_1() -> None:
    query, key = normal(BATCH, HEADS, QUERIES, KEY_DIM), normal(BATCH, HEADS, KEYS, KEY_DIM)
    value, allowed = normal(BATCH, HEADS, KEYS, VALUE_DIM), torch.rand(BATCH, 1, QUERIES, KEYS) < 0.6
    allowed[..., 0] = True
    weights, mixed = attention_weights(query, key, allowed), fused_attention(query, key, value, allowed, False)
    for b in range(BATCH):
        for h in range(HEADS):
            for q in range(QUERIES):
                weight, mixture = by_hand(query[b, h, q], key[b, h], value[b, h], allowed[b, 0, q])
                torch.testing.assert_close(weights[b, h, q].tolist(), weight, rtol=0, atol=1e-12)
                torch.testing.assert_close(mixed[b, h, q].tolist(), mixture, rtol=0, atol=1e-12)


def test_scores_are_minus_infinity_exactly_where_looking_is_forbidden() -> None:
    allowed = torch.rand(BATCH, 1, QUERIES, KEYS) < 0.5
    scores = attention_scores(normal(BATCH, HEADS, QUERIES, KEY_DIM), normal(BATCH, HEADS, KEYS, KEY_DIM), allowed)
    assert torch.equal(scores == -torch.inf, ~allowed.expand_as(scores))


def test_the_fused_triangle_is_the_written_triangle() -> None:
    query, key, value = normal(2, 3, 5, 11), normal(2, 3, 5, 11), normal(2, 3, 5, 13)
    written = fused_attention(query, key, value, and_causal(None, 5, CPU), False)
    torch.testing.assert_close(fused_attention(query, key, value, None, True), written, rtol=0, atol=1e-12)


def listen(attention: MultiHeadAttention) -> dict[str, Tensor]:
    """Attach to every tap; the returned table fills when the heads are used."""
    recorded: dict[str, Tensor] = {}
    for name in ("query", "key", "value", "score", "weight"):
        tap = getattr(attention, name)
        tap.register_forward_hook(lambda _, __, output, name=name: recorded.__setitem__(name, output))
    return recorded


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_a_hook_changes_the_kernel_and_not_the_output(causal: bool, padded: bool) -> None:
    attention = SelfAttention(MODEL_DIM, HeadShape.plain(HEADS, KEY_DIM, VALUE_DIM)).double().eval()
    hidden = normal(BATCH, KEYS, MODEL_DIM)
    allowed = torch.ones(BATCH, 1, 1, KEYS, dtype=torch.bool)
    allowed[1, ..., 4:] = False
    fused = attention(hidden, allowed if padded else None, causal)
    recorded = listen(attention)
    torch.testing.assert_close(attention(hidden, allowed if padded else None, causal), fused, rtol=0, atol=1e-12)
    weight = recorded["weight"]
    assert weight.shape == (BATCH, HEADS, KEYS, KEYS)
    torch.testing.assert_close(weight.sum(-1), torch.ones(BATCH, HEADS, KEYS, dtype=torch.float64))
    assert bool((weight[1, :, :, 4:] == 0).all()) == padded
    assert bool((weight.triu(1) == 0).all()) == causal
    assert recorded["query"].shape == recorded["key"].shape == (BATCH, HEADS, KEYS, KEY_DIM)
    assert recorded["value"].shape == (BATCH, HEADS, KEYS, VALUE_DIM)
    torch.testing.assert_close(recorded["score"].softmax(-1), weight, rtol=0, atol=1e-12)


def test_nobody_listening_means_the_weights_are_never_made() -> None:
    attention = SelfAttention(MODEL_DIM, HeadShape.plain(HEADS, KEY_DIM, VALUE_DIM)).eval()
    assert not attention.weight.is_hooked
    handle = attention.weight.register_forward_hook(lambda *_: None)
    assert attention.weight.is_hooked
    handle.remove()
    assert not attention.weight.is_hooked


def test_what_a_listener_returns_takes_the_place_of_the_weights() -> None:
    attention = SelfAttention(MODEL_DIM, HeadShape.plain(HEADS, KEY_DIM, VALUE_DIM)).double().eval()
    attention.weight.register_forward_hook(lambda _, __, weight: torch.zeros_like(weight))
    assert bool((attention(normal(1, KEYS, MODEL_DIM)) == 0).all())


@pytest.mark.parametrize("bias", [False, True])
def test_self_attention_equals_torchs_module(bias: bool) -> None:
    ours = SelfAttention(21, HeadShape.plain(3, 7, 7), bias).double()
    theirs = nn.MultiheadAttention(21, 3, bias=bias, batch_first=True, dtype=torch.float64)
    theirs.in_proj_weight.data, theirs.out_proj.weight.data = ours.qkv_proj.weight, ours.out_proj.weight
    if bias:
        theirs.in_proj_bias.data, theirs.out_proj.bias.data = ours.qkv_proj.bias, ours.out_proj.bias
    hidden = normal(BATCH, QUERIES, 21)
    real = torch.tensor([[True] * 5, [True] * 2 + [False] * 3])
    expected, _ = theirs(hidden, hidden, hidden, key_padding_mask=~real)
    torch.testing.assert_close(ours(hidden, real[:, None, None]), expected, rtol=0, atol=1e-12)


def test_cross_attention_reads_the_memory_once_for_any_number_of_rows() -> None:
    attention = CrossAttention(MODEL_DIM, HeadShape.plain(HEADS, KEY_DIM, VALUE_DIM), bias=True).double()
    memory, rows = normal(BATCH, KEYS, MODEL_DIM), normal(BATCH, 5, MODEL_DIM)
    allowed = torch.ones(BATCH, 1, 1, KEYS, dtype=torch.bool)
    allowed[0, ..., 3:] = False
    key, value = attention.project_memory(memory)
    assert key.shape == (BATCH, HEADS, KEYS, KEY_DIM)
    assert value.shape == (BATCH, HEADS, KEYS, VALUE_DIM)
    together = attention(rows, key, value, allowed)
    assert together.shape == rows.shape
    alone = [attention(row[:, None], key, value, allowed)[:, 0] for row in rows.unbind(dim=1)]
    torch.testing.assert_close(together, torch.stack(alone, dim=1), rtol=0, atol=1e-12)


def test_extending_a_past_equals_looking_back_over_the_whole() -> None:
    attention = SelfAttention(MODEL_DIM, HeadShape.plain(HEADS, KEY_DIM, VALUE_DIM)).double()
    hidden = normal(BATCH, KEYS, MODEL_DIM)
    past = KeyValues.empty(1, BATCH, 1, HEADS, (KEY_DIM, VALUE_DIM), hidden)
    pieces = []
    for start, end in [(0, 3), (3, 4), (4, 7)]:
        past.reserve(end - start)
        pieces.append(attention.extend(hidden[:, start:end], past, 0, past.allowed(end - start)))
        past.advance(end - start)
    torch.testing.assert_close(torch.cat(pieces, dim=1), attention(hidden, causal=True), rtol=0, atol=1e-12)


def test_packed_projections_are_the_separate_ones() -> None:
    packed = PackedLinear(7, [2, 3, 5], bias=True).double()
    hidden = normal(2, 3, 7)
    found = packed.project(hidden)
    weights, biases = packed.weight.split([2, 3, 5]), packed.bias.split([2, 3, 5])
    for part, weight, bias in zip(found, weights, biases, strict=True):
        torch.testing.assert_close(part, hidden @ weight.T + bias, rtol=0, atol=1e-12)


def test_dropout_of_weights_acts_in_training_only() -> None:
    attention = SelfAttention(MODEL_DIM, HeadShape.plain(HEADS, KEY_DIM, VALUE_DIM), dropout=0.5)
    hidden = torch.randn(BATCH, KEYS, MODEL_DIM)
    assert not torch.equal(attention.train()(hidden), attention(hidden))
    assert torch.equal(attention.eval()(hidden), attention(hidden))


def test_dropout_of_weights_does_not_open_the_future() -> None:
    attention = SelfAttention(MODEL_DIM, HeadShape.plain(HEADS, KEY_DIM, VALUE_DIM), dropout=0.3).train()
    hidden = torch.randn(1, KEYS, MODEL_DIM, requires_grad=True)
    attention(hidden, causal=True)[0, 2].sum().backward()
    assert hidden.grad is not None
    assert bool((hidden.grad[0, 3:] == 0).all())
