"""ConvS2S against its formulas written with torch's own convolutions, and what is particular to it."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.invariants.cases import PAD, Case, case, draw_source, draw_target, encode, make_model
from transduce.errors import DataError
from transduce.inference.alignment import cross_attention
from transduce.inspection.record import attention_of
from transduce.models.ancestors.conv_seq2seq import ConvSeq2Seq, ConvState
from transduce.text.tokenizer.special import Specials

LADDER = case("conv_ladder", decoder_layers=2)
PAPER = case("conv_paper", kernel=5)
SCALE = math.sqrt(0.5)


def model_of(case: Case) -> ConvSeq2Seq:
    model = make_model(case)
    assert isinstance(model, ConvSeq2Seq)
    return model


def through_torch(block: torch.nn.Module, hidden: Tensor, before: int, after: int, kernel: int) -> Tensor:
    """GLU(Conv1d) in torch's layout.  (B N H) -> (B N H)."""
    mix = block.convolution.linear
    weight_DCK = mix.weight.unflatten(1, (kernel, -1)).transpose(1, 2)
    padded = F.pad(hidden.transpose(1, 2), (before, after))
    return F.glu(F.conv1d(padded, weight_DCK, mix.bias), dim=1).transpose(1, 2)


def formulas(model: ConvSeq2Seq, source: Tensor, target: Tensor, length_scaled: bool) -> Tensor:
    """Sections 3.2 and 3.3 for sentences without padding, layer by layer."""
    kernel = model.config.kernel
    source_embedded = model.source_embedding.weight[source] + model.source_positions.weight[: source.shape[1]]
    hidden = model.encoder_in(source_embedded)
    for block in model.encoder:
        hidden = (through_torch(block, hidden, (kernel - 1) // 2, kernel // 2, kernel) + hidden) * SCALE
    keys = model.encoder_out(hidden)
    values = (keys + source_embedded) * SCALE
    embedded = model.target_embedding.weight[target] + model.target_positions.weight[: target.shape[1]]
    hidden = model.decoder_in(embedded)
    for block in model.decoder:
        mixed = through_torch(block, hidden, kernel - 1, 0, kernel)
        question = (block.cross_attention.q_proj(mixed) + embedded) * SCALE
        answer = torch.softmax(question @ keys.transpose(1, 2), dim=-1) @ values
        if length_scaled:
            answer = answer * (source.shape[1] * math.sqrt(1.0 / source.shape[1]))
        mixed = (mixed + block.cross_attention.out_proj(answer)) * SCALE
        hidden = (mixed + hidden) * SCALE
    return model.decoder_out(hidden)


@pytest.mark.parametrize(("case", "length_scaled"), [(LADDER, False), (PAPER, True)], ids=["ladder", "paper"])
def test_it_is_its_formulas(case: Case, length_scaled: bool) -> None:
    model, source, target = model_of(case), draw_source(case, [7, 7, 7]), draw_target(case, 3, 11)
    with torch.no_grad():
        found = model(target, encode(model, source))
        expected = formulas(model, source, target, length_scaled)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_one_way_of_asking_serves_all_layers_or_each_has_its_own() -> None:
    for each, ways in ((LADDER, 1), (PAPER, 3)):
        model = model_of(each)
        assert len({id(block.cross_attention.q_proj.weight) for block in model.decoder}) == ways


def test_a_state_does_not_grow_with_what_was_read() -> None:
    model, sizes = model_of(LADDER), []
    state = model.start(encode(model, draw_source(LADDER, [5])))
    for token in range(3, 23):
        _, state = model.step(torch.tensor([token]), state)
        assert isinstance(state, ConvState)
        sizes.append(sum(window.numel() for window in state.windows.layers))
    assert set(sizes) == {2 * 2 * 7}  # layers × (kernel - 1) × width


def test_the_encoders_gradient_is_divided_by_the_number_of_layers_that_ask() -> None:
    source, target = draw_source(PAPER, [7]), draw_target(PAPER, 1, 5)
    grads = []
    for scaled in (True, False):
        model = model_of(case("conv_paper", encoder_gradient_scaled=scaled, num_layers=3))
        model(target, encode(model, source)).sum().backward()
        assert model.encoder_out.weight.grad is not None
        grads.append(model.encoder_out.weight.grad)
    torch.testing.assert_close(3 * grads[0], grads[1], rtol=1e-9, atol=1e-12)


def test_every_layers_look_at_the_source_can_be_inspected() -> None:
    model = model_of(PAPER)
    maps = attention_of(model, [7, 2, 9, 1], [3, 8, 4, 6])
    assert set(maps.maps) == {"cross"} and maps.maps["cross"].shape == (3, 1, 3, 4)
    assert torch.from_numpy(maps.maps["cross"].copy()).sum(-1).allclose(torch.ones(3, 1, 3))
    (weight,) = cross_attention(model, [[7, 2, 9]], [[8, 4]], Specials(PAD, 3, 1), Specials(PAD, 3, 1))
    assert weight.shape == (2, 3)


def test_a_text_that_is_longer_than_its_positions_is_rejected() -> None:
    short = case("conv_ladder", max_positions=4)
    model = model_of(short)
    with pytest.raises(DataError, match="learned 4 positions"):
        encode(model, draw_source(short, [5]))
    state = model.start(encode(model, draw_source(short, [4, 2])))
    _, state = model.extend(draw_target(short, 2, 3), torch.tensor([1, 3]), state)
    _, state = model.step(torch.tensor([2, 2]), state)
    with pytest.raises(DataError, match="learned 4 positions"):
        model.step(torch.tensor([2, 2]), state)
    model.step(torch.tensor([2]), state.select(torch.tensor([0])))  # the row that has room goes on
