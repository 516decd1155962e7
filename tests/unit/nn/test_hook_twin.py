"""A twin shares its model's weights and nothing else."""

from __future__ import annotations

import torch

from transduce.models.catalog import build
from transduce.models.interface import VocabularySizes
from transduce.models.transformer import Transformer, TransformerConfig
from transduce.nn.hook import is_hooked, record, twin
from transduce.nn.linear import Linear

SOURCE = torch.randint(4, 31, (2, 5), generator=torch.Generator().manual_seed(3))
ALLOWED = torch.ones(2, 5, dtype=torch.bool)


def small() -> Transformer:
    config = TransformerConfig(model_dim=14, num_heads=2, ffn_dim=17, num_layers=2, tied_embeddings="all", dropout=0.0)
    model = build(config, VocabularySizes(31, 31), seed=5)
    assert isinstance(model, Transformer)
    return model.eval()


def test_a_twin_has_the_same_weights_in_the_same_memory() -> None:
    model = small()
    other = twin(model)
    for (name, own), (other_name, shared) in zip(model.named_parameters(), other.named_parameters(), strict=True):
        assert name == other_name and own is not shared and own.data_ptr() == shared.data_ptr()
    assert other.output.weight is other.source_embedding.weight
    with torch.no_grad():
        next(model.parameters()).add_(1.0)
        assert torch.equal(other(SOURCE, other.encode(SOURCE, ALLOWED)), model(SOURCE, model.encode(SOURCE, ALLOWED)))


def test_gradients_hooks_and_modes_of_a_twin_are_its_own() -> None:
    model = small()
    with record(model):
        other = twin(model)
        assert is_hooked(model) and not is_hooked(other)
    other.train()
    with record(other):
        assert not is_hooked(model)
    other(SOURCE, other.encode(SOURCE, ALLOWED)).sum().backward()
    assert all(parameter.grad is None for parameter in model.parameters()) and not model.training
    assert any(parameter.grad is not None for parameter in other.parameters())


def test_frozen_weights_are_kept_when_a_twin_computes_gradients() -> None:
    model = torch.nn.Sequential(Linear(512, 512)).eval()
    model[0].freeze()
    with torch.no_grad():
        before = model[0].packed
    assert before is not None
    twin(model)(torch.randn(2, 512)).sum().backward()
    with torch.no_grad():
        assert model[0].packed is before


def test_a_twin_that_shares_packed_weights_computes_the_same_in_int8() -> None:
    model = torch.nn.Sequential(Linear(512, 512)).eval()
    model[0].freeze("int8")
    value = torch.randn(2, 512)
    with torch.inference_mode():
        other = twin(model, share_packed=True)
        assert torch.equal(other(value), model(value)) and not torch.equal(twin(model)(value), model(value))


def test_what_is_frozen_for_training_stays_frozen_in_a_twin() -> None:
    model = small()
    model.source_embedding.weight.requires_grad_(False)
    assert not twin(model).source_embedding.weight.requires_grad
