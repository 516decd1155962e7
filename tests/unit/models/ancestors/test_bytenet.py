"""ByteNet: blocks against torch's own parts, columns that the decoder is unfolded over, how far it sees."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.invariants.cases import Case, case, draw_source, draw_target, encode, make_model
from transduce.config import Config
from transduce.errors import SettingsError
from transduce.models.ancestors.bytenet import ByteNet, ByteNetConfig, MultiplicativeUnit, bytenet_paper, column_at
from transduce.models.catalog import build
from transduce.models.interface import VocabularySizes

SMALL = case("bytenet_paper", dilations=(1, 2, 4))


def model_of(case: Case) -> ByteNet:
    model = make_model(case)
    assert isinstance(model, ByteNet)
    return model


def normalised(norm: torch.nn.LayerNorm, value: Tensor) -> Tensor:
    return F.relu(F.layer_norm(value, norm.normalized_shape, norm.weight, norm.bias))


def test_the_decoder_is_residual_blocks_of_torchs_dilated_convolutions() -> None:
    model, target = model_of(SMALL), draw_target(SMALL, 2, 11)
    with torch.no_grad():
        memory = encode(model, draw_source(SMALL, [5, 5]))
        hidden = model.target_embedding.weight[target] + F.pad(memory.states, (0, 0, 0, 5))
        for block, dilation in zip(model.decoder, (1, 2, 4), strict=True):
            part, mix = block.bottleneck, block.convolution.linear
            read = normalised(part.inner_norm, part.reduce(normalised(part.outer_norm, hidden)))
            padded, weight = F.pad(read.transpose(1, 2), (2 * dilation, 0)), mix.weight.unflatten(1, (3, -1))
            mixed = F.conv1d(padded, weight.transpose(1, 2), mix.bias, dilation=dilation).transpose(1, 2)
            hidden = hidden + part.expand(normalised(part.unit.norm, mixed))
        expected = F.relu(model.final_linear(normalised(model.final_norm, hidden)))
        torch.testing.assert_close(model(target, memory), expected, rtol=0, atol=1e-12)


def test_a_multiplicative_unit_done_by_hand() -> None:
    read, big = torch.tensor([[0.5]]), 100.0
    shut, update = -big, torch.tensor([0.3])
    unit = MultiplicativeUnit(1)
    for gates, expected in [
        ((shut, big, big), 0.0),
        ((big, shut, shut), 0.0),
        ((big, big, shut), torch.tanh(torch.tensor(0.5))),
        ((big, big, big), torch.tanh(0.5 + torch.tanh(torch.tensor(0.3)))),
        ((0.0, big, shut), 0.5 * torch.tanh(torch.tensor(0.5))),
    ]:
        mixed = torch.cat([torch.tensor(gates), update])[None]
        torch.testing.assert_close(unit(read, mixed), torch.as_tensor([[float(expected)]]))


@pytest.mark.parametrize(
    ("stretch", "extra", "length", "columns"), [(1.2, 0, 10, 12), (1.2, 0, 6, 8), (1.0, 3, 7, 10), (1.5, 1, 1, 3)]
)
def test_a_source_has_as_many_columns_as_a_target_hardly_exceeds(
    stretch: float, extra: int, length: int, columns: int
) -> None:
    stretched = case("bytenet_paper", stretch=stretch, extra=extra)
    memory = encode(model_of(stretched), draw_source(stretched, [length]))
    assert memory.states.shape[1] == columns


def test_rows_read_the_column_of_their_own_place_and_zeros_past_the_last() -> None:
    columns = torch.tensor([[[1.0], [2.0]], [[3.0], [4.0]]])
    places = torch.tensor([[0], [1], [2], [1]])
    assert column_at(columns, places, width=2)[:, 0, 0].tolist() == [1.0, 2.0, 0.0, 4.0]


def test_it_sees_as_far_back_as_its_dilations_say_and_remembers_no_more() -> None:
    """Three blocks with kernel 3 and dilations 1, 2, 4 see 2 · 7 tokens back."""
    model, target = model_of(SMALL), draw_target(SMALL, 1, 19)
    with torch.no_grad():
        memory = encode(model, draw_source(SMALL, [5]))
        last = model(target, memory)[0, -1]
        for back, seen in ((14, True), (15, False)):
            changed = target.clone()
            changed[0, -1 - back] = (target[0, -1 - back] + 1) % SMALL.sizes.target
            assert bool((model(changed, memory)[0, -1] != last).any()) is seen
    assert [window.shape[1] for window in model.start(memory).windows.layers] == [2, 4, 8]


def test_the_paper_has_thirty_blocks_a_side() -> None:
    with torch.device("meta"):
        model = build(bytenet_paper(), VocabularySizes(256, 256))
    assert isinstance(model, ByteNet)
    assert len(model.encoder) == len(model.decoder) == 30
    assert max(block.convolution.dilation for block in model.decoder) == 16


def test_settings_that_make_no_sense_are_rejected() -> None:
    kind: type[Config] = ByteNetConfig
    for table in ({"stretch": 0.5}, {"dilations": []}, {"dilations": [0]}):
        with pytest.raises(SettingsError):
            kind.from_table(table, "recipe.toml [model]")
