"""Recurrent stacks against torch's own, and single-head attention against arithmetic done by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from transduce.nn.attention.additive import AdditiveAttention, MultiplicativeAttention, ProjectedMemory
from transduce.nn.recurrence import CELLS, Bridge, Cell, Recurrence, reversed_within

IN, HIDDEN, LAYERS, LENGTHS = 5, 7, 3, (11, 2, 1, 6)


def library_twin(ours: Recurrence, bidirectional: bool) -> nn.RNNBase:
    """Torch's multi-layer module with our layers' weights copied in."""
    twin = CELLS[ours.cell](IN, HIDDEN, LAYERS, batch_first=True, bidirectional=bidirectional).double()
    names = {
        name.replace("_l0", f"_l{index}"): value
        for index, layer in enumerate(ours.layers)
        for name, value in layer.state_dict().items()
    }
    twin.load_state_dict(names)
    return twin


def parts_of(carried: Tensor | tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    return carried if isinstance(carried, tuple) else (carried,)


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_padded_rows_read_as_torch_reads_packed_ones(cell: Cell, bidirectional: bool) -> None:
    torch.manual_seed(0)
    ours = Recurrence(cell, IN, HIDDEN, LAYERS, bidirectional).double()
    sequence = torch.randn(len(LENGTHS), max(LENGTHS), IN, dtype=torch.float64)
    lengths = torch.tensor(LENGTHS)
    packed = pack_padded_sequence(sequence, lengths, batch_first=True, enforce_sorted=False)
    packed, after = library_twin(ours, bidirectional)(packed)
    expected, _ = pad_packed_sequence(packed, batch_first=True)

    read, carried = ours(sequence, lengths=lengths)

    torch.testing.assert_close(read, expected, rtol=0, atol=1e-12)
    for part, twin in zip(carried, parts_of(after), strict=True):
        directions = twin.view(LAYERS, -1, len(LENGTHS), HIDDEN)
        torch.testing.assert_close(part, torch.cat(list(directions.unbind(1)), dim=-1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_reading_goes_on_from_what_was_carried(cell: Cell) -> None:
    torch.manual_seed(1)
    ours = Recurrence(cell, IN, HIDDEN, LAYERS).double()
    sequence = torch.randn(3, 11, IN, dtype=torch.float64)
    start = tuple(torch.randn(LAYERS, 3, HIDDEN, dtype=torch.float64) for _ in range(ours.num_carried))
    expected, after = library_twin(ours, False)(sequence, start if cell == "lstm" else start[0])

    first, carried = ours(sequence[:, :4], start)
    second, carried = ours(sequence[:, 4:], carried)

    torch.testing.assert_close(torch.cat([first, second], dim=1), expected, rtol=0, atol=1e-12)
    for part, twin in zip(carried, parts_of(after), strict=True):
        torch.testing.assert_close(part, twin, rtol=0, atol=1e-12)


def test_dropout_stands_between_layers_and_not_behind_the_last() -> None:
    torch.manual_seed(2)
    sequence = torch.randn(3, 5, IN)
    single = Recurrence("gru", IN, HIDDEN, 1, dropout=0.5)
    double = Recurrence("gru", IN, HIDDEN, 2, dropout=0.5)
    assert torch.equal(single(sequence)[0], single(sequence)[0])
    assert not torch.equal(double(sequence)[0], double(sequence)[0])
    double.eval()
    assert torch.equal(double(sequence)[0], double(sequence)[0])


def test_a_bridge_bends_every_layer_and_part_by_its_own_matrix() -> None:
    torch.manual_seed(3)
    bridge = Bridge(num_carried=2, num_layers=3, in_dim=5, out_dim=7)
    hidden, cell = torch.randn(3, 2, 5), torch.randn(3, 2, 5)
    bent_hidden, bent_cell = bridge((hidden, cell))
    for layer in range(3):
        for bent, value, linear in (
            (bent_hidden, hidden, bridge.linears[layer]),
            (bent_cell, cell, bridge.linears[3 + layer]),
        ):
            torch.testing.assert_close(bent[layer], torch.tanh(value[layer] @ linear.weight.T + linear.bias))


@given(st.lists(st.lists(st.integers(0, 96), max_size=7), min_size=1, max_size=5))
def test_reversal_turns_the_real_tokens_and_leaves_the_padding(rows: list[list[int]]) -> None:
    width = max(len(row) for row in rows)
    padded = torch.tensor([row + [-1] * (width - len(row)) for row in rows], dtype=torch.long).view(len(rows), width)
    turned = reversed_within(padded, torch.tensor([len(row) for row in rows]))
    assert turned.tolist() == [row[::-1] + [-1] * (width - len(row)) for row in rows]


def test_additive_attention_is_the_arithmetic_of_the_paper() -> None:
    """Widths of one, so that everything can be written down: score = v tanh(w q + u m + b)."""
    attention = AdditiveAttention(1, 1, 1).double()
    with torch.no_grad():
        attention.q_proj.weight.fill_(0.5)
        attention.k_proj.weight.fill_(-2.0)
        attention.k_proj.bias.fill_(0.25)
        attention.score_proj.weight.fill_(3.0)
    memory = torch.tensor([[[1.0], [-0.5], [9.0]]], dtype=torch.float64)
    source = attention.project_memory(memory, torch.tensor([[True, True, False]]))

    context, score = attention(torch.tensor([[[0.7]]], dtype=torch.float64), source)

    first, second = 3 * math.tanh(0.35 - 2 + 0.25), 3 * math.tanh(0.35 + 1 + 0.25)
    share = math.exp(first) / (math.exp(first) + math.exp(second))
    assert score.flatten().tolist() == pytest.approx([first, second, -math.inf], abs=1e-14)
    assert context.item() == pytest.approx(share * 1.0 + (1 - share) * -0.5, abs=1e-14)


def test_additive_attention_is_one_matrix_over_query_and_memory_side_by_side() -> None:
    torch.manual_seed(4)
    attention = AdditiveAttention(5, 7, 3)
    side_by_side = nn.Linear(5 + 7, 3)
    with torch.no_grad():
        side_by_side.weight.copy_(torch.cat([attention.q_proj.weight, attention.k_proj.weight], dim=1))
        side_by_side.bias.copy_(attention.k_proj.bias)
    query, memory = torch.randn(2, 1, 5), torch.randn(2, 11, 7)
    _, score = attention(query, attention.project_memory(memory, torch.ones(2, 11, dtype=torch.bool)))
    expected = (
        torch.tanh(side_by_side(torch.cat([query.expand(-1, 11, -1), memory], dim=-1))) @ attention.score_proj.weight[0]
    )
    torch.testing.assert_close(score[:, 0], expected)


@pytest.mark.parametrize("projected", [True, False])
def test_multiplicative_attention_is_a_product_through_a_matrix_or_without(projected: bool) -> None:
    torch.manual_seed(5)
    attention = MultiplicativeAttention(5, 7 if projected else 5, projected)
    matrix = attention.k_proj.weight if projected else torch.eye(5)
    query, memory = torch.randn(2, 3, 5), torch.randn(2, 11, matrix.shape[1])
    context, score = attention(query, attention.project_memory(memory, torch.ones(2, 11, dtype=torch.bool)))
    expected = torch.einsum("bqd,de,bme->bqm", query, matrix, memory)
    torch.testing.assert_close(score, expected)
    torch.testing.assert_close(context, torch.einsum("bqm,bme->bqe", expected.softmax(-1), memory))


@pytest.mark.parametrize("attention", [AdditiveAttention(5, 7, 3), MultiplicativeAttention(5, 7)])
def test_rows_of_one_sentence_share_its_memory(attention: AdditiveAttention | MultiplicativeAttention) -> None:
    torch.manual_seed(6)
    memory, allowed = torch.randn(2, 11, 7), torch.arange(11) < torch.tensor([[11], [4]])
    query = torch.randn(2 * 3, 2, 5)
    shared, _ = attention(query, attention.project_memory(memory, allowed))
    copied, _ = attention(
        query, attention.project_memory(memory.repeat_interleave(3, 0), allowed.repeat_interleave(3, 0))
    )
    torch.testing.assert_close(shared, copied)


def test_memories_of_different_lengths_join_and_come_apart() -> None:
    torch.manual_seed(7)
    short = ProjectedMemory(torch.randn(2, 3, 5), torch.randn(2, 3, 7), torch.ones(2, 3, dtype=torch.bool))
    long = ProjectedMemory(torch.randn(1, 11, 5), torch.randn(1, 11, 7), torch.ones(1, 11, dtype=torch.bool))
    joined = short.join(long)
    assert joined.allowed.sum(dim=1).tolist() == [3, 3, 11]
    swapped = joined.select(torch.tensor([2, 0]))
    assert torch.equal(swapped.key[0], long.key[0]) and torch.equal(swapped.value[1, :3], short.value[0])
    assert joined.select(torch.arange(3)) is joined
