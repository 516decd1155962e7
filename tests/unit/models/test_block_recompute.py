"""Computing again for the gradient: the same gradient, dropout included, from less memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from transduce.models.block import recomputed
from transduce.models.catalog import build
from transduce.models.interface import AnyTransducer, VocabularySizes
from transduce.models.transformer import TransformerConfig
from transduce.nn.dropout import Dropout, DropoutKey, set_dropout_key


class Block(nn.Module):
    """Uses one dropout twice, as a loop over time does."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 5)
        self.dropout = Dropout(0.5)

    def forward(self, value: Tensor) -> Tensor:
        return self.dropout(self.linear(self.dropout(value)).tanh())


def gradients(model: AnyTransducer, recompute: bool) -> list[Tensor]:
    model.gradient_checkpointing = recompute
    model.train()
    set_dropout_key(model, DropoutKey(seed=1, update=2))
    source, target = torch.randint(3, 11, (7, 13)), torch.randint(3, 11, (7, 5))
    memory = model.encode(source, torch.ones_like(source, dtype=torch.bool))
    (model(target, memory) ** 2).sum().backward()
    found = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    return found


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_gradients_are_the_same_to_the_last_bit(norm: str) -> None:
    config = TransformerConfig(
        model_dim=14, num_heads=2, ffn_dim=19, num_layers=3, norm=norm, dropout=0.3, attention_dropout=0.2
    )
    model = build(config, VocabularySizes(11, 11), seed=1)
    torch.manual_seed(3)
    plain = gradients(model, recompute=False)
    torch.manual_seed(3)
    again = gradients(model, recompute=True)
    assert len(plain) == len(again) > 20
    assert all(torch.equal(one, other) for one, other in zip(plain, again, strict=True))


def test_a_dropout_that_is_used_twice_gets_its_masks_back() -> None:
    block = Block()
    value = torch.randn(3, 5)
    results = []
    for run in (block, lambda entered: recomputed(block, entered)):
        set_dropout_key(block, DropoutKey(seed=1, update=2))
        entered = value.clone().requires_grad_()
        (run(run(entered)) ** 2).sum().backward()
        results.append(entered.grad)
    assert torch.equal(results[0], results[1])


def test_what_a_block_computed_is_not_kept() -> None:
    """Counted in tensors that the graph saves: those inside a block are not among them."""
    model = build(
        TransformerConfig(model_dim=14, num_heads=2, ffn_dim=19, num_layers=3), VocabularySizes(11, 11), seed=1
    )
    kept = {}
    for recompute in (False, True):
        sizes: list[int] = []

        def keep(tensor: Tensor, sizes: list[int] = sizes) -> Tensor:
            sizes.append(tensor.numel())
            return tensor

        model.gradient_checkpointing = recompute
        model.train()
        source = torch.randint(3, 11, (7, 13))
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            model.encode(source, torch.ones_like(source, dtype=torch.bool))
        kept[recompute] = sum(sizes)
    assert kept[True] < kept[False] / 3
