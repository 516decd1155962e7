"""First values: which distribution each parameter gets, that a seed means one model, that nothing is forgotten."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from transduce.nn.attention.multi_head import HeadShape, PackedLinear, SelfAttention
from transduce.nn.embedding import Embedding, Output
from transduce.nn.initialization import initialize
from transduce.nn.position import LearnedPositions


class Everything(nn.Module):
    """One of each kind of module, the embedding used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = Embedding(499, 31)
        self.tied = Output(499, 31, bias=True, tied=self.embedding)
        self.positions = LearnedPositions(37, 211)
        self.attention = SelfAttention(31, HeadShape.plain(3, 5, 7), bias=True)
        self.norm = nn.LayerNorm(31)
        self.linear = nn.Linear(31, 97)
        self.recurrent = nn.GRU(31, 17)


def poisoned() -> Everything:
    """Weights that are not numbers, so that one which is not filled cannot hide."""
    model = Everything()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(torch.nan)
    return model


def bound_of(weight: Tensor) -> float:
    return float((6 / (weight.shape[0] + weight.shape[1])) ** 0.5)


def assert_uniform(weight: Tensor, bound: float) -> None:
    """All inside the bound, the extremes near it, and the variance of a uniform distribution."""
    weight = weight.detach()
    largest = float(weight.abs().max())
    assert 0.9 * bound < largest <= bound
    assert float(weight.var()) == pytest.approx(bound**2 / 3, rel=0.2)


def test_no_parameter_is_forgotten() -> None:
    model = poisoned()
    initialize(model, 5)
    assert [name for name, parameter in model.named_parameters() if not parameter.isfinite().all()] == []


def test_a_seed_means_one_model_whatever_was_drawn_before() -> None:
    first, second, other = poisoned(), poisoned(), poisoned()
    initialize(first, 5)
    torch.rand(13)
    initialize(second, 5)
    initialize(other, 6)
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(first.linear.weight, other.linear.weight)


def test_the_global_generator_is_left_alone() -> None:
    model = poisoned()
    before = torch.get_rng_state()
    initialize(model, 5)
    assert torch.equal(before, torch.get_rng_state())


def test_matrices_are_glorot_uniform() -> None:
    model = poisoned()
    initialize(model, 5)
    assert_uniform(model.linear.weight, bound_of(model.linear.weight))


def test_embeddings_positions_and_the_output_may_be_drawn_like_other_matrices() -> None:
    model = nn.ModuleList((Embedding(300, 16), LearnedPositions(16, 80), Output(200, 16, bias=True)))
    initialize(model, 5, rule="glorot")
    embedding, positions, output, bias = model.parameters()
    for weight in (embedding, positions, output):
        assert_uniform(weight, bound_of(weight))
    assert not bias.any()


def test_projections_that_stand_in_one_matrix_are_drawn_for_their_own_shapes() -> None:
    packed = PackedLinear(101, [53, 7], bias=True)
    initialize(packed, 5)
    wide, narrow = packed.weight.split([53, 7])
    assert_uniform(wide, bound_of(wide))
    assert_uniform(narrow, bound_of(narrow))
    assert float(narrow.detach().abs().max()) > bound_of(packed.weight) * 1.1


def test_embeddings_and_learned_positions_are_normal_with_variance_one_over_their_width() -> None:
    model = poisoned()
    initialize(model, 5)
    for weight in (model.embedding.weight.detach(), model.positions.weight.detach()):
        assert float(weight.mean()) == pytest.approx(0, abs=0.01)
        assert float(weight.std()) == pytest.approx(weight.shape[1] ** -0.5, rel=0.05)


def test_biases_are_zero_and_norms_do_nothing_at_first() -> None:
    model = poisoned()
    initialize(model, 5)
    assert model.tied.bias is not None
    biases = [parameter for name, parameter in model.named_parameters() if "bias" in name]
    assert len(biases) == 7
    assert all(bool((bias == 0).all()) for bias in biases)
    assert bool((model.norm.weight == 1).all())


def test_recurrent_weights_keep_torchs_bound() -> None:
    model = poisoned()
    initialize(model, 5)
    assert_uniform(model.recurrent.weight_hh_l0, 17**-0.5)
    assert_uniform(model.recurrent.weight_ih_l0, 17**-0.5)


def test_a_tied_matrix_is_drawn_once_as_an_embedding() -> None:
    model = poisoned()
    initialize(model, 5)
    assert model.tied.weight is model.embedding.weight
    alone = Embedding(499, 31)
    initialize(alone, 5)
    assert torch.equal(alone.weight, model.embedding.weight)


def test_by_torchs_rule_weights_and_biases_are_drawn_as_torchs_modules_draw_them() -> None:
    model = poisoned()
    initialize(model, 5, "torch")
    theirs = torch.nn.Embedding(499, 31)
    for table in (model.embedding.weight.detach(), model.positions.weight.detach()):
        assert float(table.std()) == pytest.approx(float(theirs.weight.detach().std()), rel=0.05)
    layer, torchs = PackedLinear(101, [53, 71], bias=True), torch.nn.Linear(101, 124)
    initialize(layer, 5, "torch")
    assert_uniform(layer.weight, 101**-0.5)
    assert layer.bias is not None
    for ours, other in ((layer.weight, torchs.weight), (layer.bias, torchs.bias)):
        assert float(ours.detach().abs().max()) == pytest.approx(float(other.detach().abs().max()), rel=0.1)
    assert bool((model.norm.weight == 1).all())
