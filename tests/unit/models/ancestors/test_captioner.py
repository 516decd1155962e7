"""The captioner: its equations step by step with torch's own cells, and what it tells those who listen."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.data.batching import collate
from transduce.data.store import PairStore
from transduce.errors import SettingsError
from transduce.models.ancestors.captioner import (
    Captioner,
    CaptionerConfig,
    captioner_paper,
    captioner_small,
    unevenness,
)
from transduce.models.catalog import build
from transduce.models.interface import VocabularySizes
from transduce.nn.hook import record
from transduce.tasks.transducer import transducer_loss
from transduce.text.tokenizer.special import Specials

SIDE, GRID, END = 12, 3, 1
SIZES = VocabularySizes(17, 19)


def captioner(**changes: object) -> Captioner:
    config = CaptionerConfig(
        side=SIDE, pixel_dim=3, channels=(5, 7), region_dim=13, embedding_dim=11, hidden_dim=23
    ).but(**changes)
    model = build(config, SIZES, seed=5)
    assert isinstance(model, Captioner)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(7))
    return model.double().eval()


def pictures(count: int) -> Tensor:
    drawn = torch.randint(2, 17, (count, SIDE * SIDE), generator=torch.Generator().manual_seed(3))
    return torch.cat([drawn, torch.full((count, 1), END)], dim=1)


def read(model: Captioner, source: Tensor, target: Tensor) -> Tensor:
    vectors: Tensor = model(target, model.encode(source, torch.ones_like(source, dtype=torch.bool)))
    return vectors


TARGET = torch.tensor([[3, 7, 11, 2, 13], [3, 5, 5, 17, 8]])


@torch.no_grad()
def test_a_caption_is_written_as_the_paper_says() -> None:
    """Section 3.1.2 with torch's LSTM cell and convolutions as torch's function has them, one word at a time."""
    model, source = captioner(), pictures(2)
    image = model.source_embedding.weight[source[:, :-1]].reshape(2, SIDE, SIDE, 3).permute(0, 3, 1, 2)
    for layer in model.regions.downsample:
        assert isinstance(layer, torch.nn.Conv2d)
        image = F.conv2d(image, layer.weight, layer.bias, stride=2, padding=1).clamp(min=0)
    around = model.regions.context
    image = F.conv2d(image, around.weight, around.bias, padding=1).clamp(min=0)
    a = torch.stack([image[:, :, row, column] for row in range(GRID) for column in range(GRID)], dim=1)
    a = a + model.regions.positions.weight
    decoder, attention, lstm = model.decoder, model.decoder.cross_attention, model.decoder.recurrence.layers[0]
    assert isinstance(lstm, torch.nn.LSTM)
    cell = torch.nn.LSTMCell(11 + 13, 23).double()
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in lstm.state_dict().items()})
    h, c = (torch.tanh(linear(a.mean(dim=1))) for linear in model.bridge.linears)
    for place in range(TARGET.shape[1]):
        score = attention.score_proj(torch.tanh(attention.q_proj(h)[:, None] + attention.k_proj(a)))[..., 0]
        z = (score.exp() / score.exp().sum(dim=1, keepdim=True))[:, :, None].mul(a).sum(dim=1)
        z = z / (1 + torch.exp(-decoder.gate(h)))
        word = model.target_embedding.weight[TARGET[:, place]]
        h, c = cell(torch.cat([word, z], dim=1), (h, c))
        expected = word + h @ decoder.hidden_proj.weight.T + z @ decoder.context_proj.weight.T
        found = read(model, source, TARGET[:, : place + 1])[:, -1]
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_listeners_see_a_weight_for_each_pixel_and_all_pixels_of_a_region_alike() -> None:
    model = captioner()
    with record(model, ("weight", "score")) as recorded:
        read(model, pictures(2), TARGET)
    weight = recorded["decoder.cross_attention.weight"]
    assert weight.shape == (2, 1, 5, SIDE * SIDE + 1)
    torch.testing.assert_close(weight.sum(dim=-1), torch.ones(2, 1, 5, dtype=torch.float64))
    assert not weight[..., -1].any(), "the end token is no pixel"
    blocks = weight[..., :-1].reshape(2, 5, GRID, 4, GRID, 4)
    assert (blocks == blocks[:, :, :, :1, :, :1]).all()
    assert blocks[:, :, :, 0, :, 0].flatten(2).std(dim=-1).min() > 0


def test_the_cost_of_looking_unevenly_adds_up_to_the_papers() -> None:
    weight = torch.rand(2, 5, 7, dtype=torch.float64).softmax(dim=-1)
    cost = unevenness(weight)
    for length in range(1, 6):
        expected = ((1 - weight[:, :length].sum(dim=1)) ** 2).sum(dim=-1) - 7
        torch.testing.assert_close(cost[:, :length].sum(dim=1), expected)


@torch.no_grad()
def test_the_cost_is_a_part_of_what_is_minimised_and_padding_is_not() -> None:
    special, sources = Specials(0, 3, END), pictures(2)[:, :-1].tolist()
    targets = [[7, 11], [5, 5, 17, 8]]

    def loss(rows: list[int], **changes: object) -> float:
        store = PairStore.of([sources[row] for row in rows], [targets[row] for row in rows])
        batch = collate(store, torch.arange(len(rows)).numpy(), special, special)
        return float(transducer_loss(captioner(**changes), batch, 0.0).smoothed)

    together = loss([0, 1], doubly_stochastic=0.7)
    assert together == pytest.approx(loss([0], doubly_stochastic=0.7) + loss([1], doubly_stochastic=0.7))
    model = captioner(doubly_stochastic=0.7)
    with record(model) as recorded:
        read(model, pictures(2)[1:], torch.tensor([[3, *targets[1]]]))
    looked = recorded["decoder.cross_attention.weight"][0, 0, :, :-1].reshape(5, GRID, 4, GRID, 4).sum(dim=(2, 4))
    cost = float(((1 - looked.sum(dim=0)) ** 2).sum()) - GRID * GRID
    assert loss([1], doubly_stochastic=0.7) - loss([1]) == pytest.approx(0.7 * cost)


def test_presets_have_the_regions_that_they_say() -> None:
    assert (captioner_paper().grid, captioner_paper().region_dim) == (14, 512)
    assert (captioner_small().grid, captioner_small().region_side) == (8, 4)
    model = captioner()
    assert (model.image_size, model.max_source, model.max_target) == (SIDE, SIDE * SIDE + 1, None)


def test_regions_that_do_not_fill_a_picture_are_rejected() -> None:
    with pytest.raises(SettingsError, match="side 12 is not divisible into regions of 8 × 8"):
        captioner(channels=(5, 7, 3))
