"""The loss of guided alignment: by hand, against plain torch, and for every kind of attention."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from transduce.config import Config
from transduce.data.batching import PairBatch, collate, with_guide
from transduce.data.ragged import Ragged
from transduce.data.store import PairStore
from transduce.models.ancestors.conv_seq2seq import ConvSeq2SeqConfig
from transduce.models.catalog import build
from transduce.models.guided_alignment import alignment_loss, cross_attentions, default_alignment_head, record_scores
from transduce.models.interface import AnyTransducer, VocabularySizes
from transduce.models.rnn import RnnConfig
from transduce.models.transformer import TransformerConfig
from transduce.models.universal import UniversalConfig
from transduce.nn.hook import record
from transduce.tasks.transducer import transducer_loss
from transduce.text.tokenizer.special import Specials

SPECIALS = Specials(pad=3, start=1, end=2)
SIZES = VocabularySizes(13, 17)
SOURCES, TARGETS = [[4, 5, 6, 7, 8], [9], [10, 11, 12]], [[16, 15], [4, 5, 6, 7], []]
LINKS = [[0, 3, 0, 4, 1, 0], [2, 0], []]
"""Target token, source token, …"""
SMALL = {"model_dim": 14, "num_heads": 2, "ffn_dim": 19, "tied_embeddings": "none"}
SHARED_KEYS = {**SMALL, "num_layers": 1, "key_value_heads": 1}


def batch(weight: float = 0.5, rows: tuple[int, ...] = (0, 1, 2)) -> PairBatch:
    plain = collate(PairStore.of(SOURCES, TARGETS), np.array(rows), SPECIALS, SPECIALS)
    return with_guide(plain, Ragged.of(LINKS), weight)


def small(config: Config | None = None, **changes: object) -> AnyTransducer:
    config = config or TransformerConfig.from_table({**SMALL, "num_layers": 3, **changes}, "a test")
    model = build(config, SIZES, seed=3).double().eval()
    model.alignment_heads = (default_alignment_head(model),)
    return model


def test_the_guide_spreads_the_weight_over_the_aligned_source_tokens() -> None:
    guide_BTS = batch(0.5).guide
    assert guide_BTS is not None and guide_BTS.shape == (3, 5, 6)
    expected = torch.zeros(3, 5, 6)
    expected[0, 0, 3] = expected[0, 0, 4] = 0.25
    expected[0, 1, 0] = expected[1, 2, 0] = 0.5
    assert torch.equal(guide_BTS, expected)
    part = batch(0.5).part(1, 3)
    assert part.guide is not None and torch.equal(part.guide, expected[1:])


def test_the_loss_is_the_cross_entropy_by_hand() -> None:
    """Two target tokens, three source tokens and padding; the second target token is not aligned."""
    score = torch.tensor([[[1.0, 2.0, 0.0, 9.0], [5.0, -1.0, 3.0, 9.0]]])
    allowed = torch.tensor([[True, True, True, False]])
    guide = torch.tensor([[[0.1, 0.1, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]])
    total = math.exp(1) + math.exp(2) + 1
    by_hand = -0.1 * (1 - math.log(total)) - 0.1 * (2 - math.log(total))
    assert float(alignment_loss(score, allowed, guide)) == pytest.approx(by_hand, rel=1e-6)
    masked = score.masked_fill(~allowed[:, None], -math.inf)  # as recurrent decoders give them
    assert float(alignment_loss(masked, allowed, guide)) == pytest.approx(by_hand, rel=1e-6)


def by_torch(model: AnyTransducer, given: PairBatch, weight: float) -> Tensor:
    """Both losses from the model's own attention weights, pair by pair, in plain torch."""
    kept: list[Tensor] = []
    layer, head = model.alignment_heads[0]
    hook = cross_attentions(model)[layer].weight.register_forward_hook(lambda _, __, value: kept.append(value))  # type: ignore[union-attr,operator]
    hidden = model(given.target[:, :-1], model.encode(given.source, given.source_allowed))
    hook.remove()
    log_probability = model.logits(hidden).log_softmax(dim=-1)
    loss = torch.zeros((), dtype=torch.float64)
    for row, links in enumerate(LINKS):
        for place in range(len(TARGETS[row]) + 1):
            loss = loss - log_probability[row, place, given.target[row, place + 1]]
            sources = [source for target, source in zip(links[::2], links[1::2], strict=True) if target == place]
            for source in sources:
                loss = loss - weight / len(sources) * kept[-1][row, head, place, source].log()
    return loss


@pytest.mark.parametrize(
    "config",
    [
        TransformerConfig.from_table({**SMALL, "num_layers": 3}, "a test"),
        TransformerConfig.from_table(SHARED_KEYS, "a test"),
        UniversalConfig.from_table(SMALL, "a test"),
        RnnConfig(embedding_dim=7, hidden_dim=11, attention="additive"),
        RnnConfig(embedding_dim=7, hidden_dim=11, attention="general", input_feeding=True),
        ConvSeq2SeqConfig(embedding_dim=10, hidden_dim=12, num_layers=2),
    ],
    ids=["transformer", "shared keys", "universal", "additive", "multiplicative", "convolutional"],
)
def test_losses_and_gradients_are_those_of_plain_torch(config: Config) -> None:
    model, given = small(config), batch(0.7)
    if config == TransformerConfig.from_table(SHARED_KEYS, "a test"):
        model.alignment_heads = ((0, 1),)
    for loss in model.auxiliary_losses:  # of a Universal Transformer, which ponders
        loss.weight = 0.0
    found = transducer_loss(model, given, smoothing=0.0).smoothed
    found.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad()
    expected = by_torch(model, given, 0.7)
    expected.backward()
    assert float(found.detach()) == pytest.approx(float(expected.detach()), rel=1e-6)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-5, atol=1e-7)


def test_the_head_of_the_second_last_layer_is_guided_alone() -> None:
    model, given = small(), batch(1.0)
    assert model.alignment_heads == ((1, 0),)
    assert default_alignment_head(small(num_layers=1)) == (0, 0)
    with record_scores(model, (1, 0)) as scores, record(model, inside="cross_attention") as weights:
        model(given.target[:, :-1], model.encode(given.source, given.source_allowed))
    masked = scores[0].masked_fill(~given.source_allowed[:, None], -math.inf)
    torch.testing.assert_close(masked.softmax(dim=-1), weights["decoder.1.cross_attention.weight"][:, 0])
    assert not any(module._forward_hooks for module in model.modules())
    assert given.guide is not None
    alignment_loss(scores[0], given.source_allowed, given.guide).backward()
    moved = {
        name for name, parameter in model.named_parameters() if parameter.grad is not None and parameter.grad.any()
    }
    assert "decoder.1.cross_attention.q_proj.weight" in moved and "decoder.1.feed_forward.up.weight" not in moved
    changed = model.get_parameter("decoder.1.cross_attention.q_proj.weight").grad
    assert changed is not None and changed[:7].any() and not changed[7:].any()  # of the first head alone


@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_loss_is_the_same_in_micro_batches_and_with_recomputed_blocks(checkpointing: bool) -> None:
    model = small()
    whole = transducer_loss(model, batch(), smoothing=0.1).smoothed
    parts = [transducer_loss(model, batch().part(*ends), smoothing=0.1).smoothed for ends in ((0, 1), (1, 3))]
    assert float(torch.stack(parts).sum().detach()) == pytest.approx(float(whole.detach()), rel=1e-9)
    model = small(dropout=0.0).train()
    transducer_loss(model, batch(), smoothing=0.1).smoothed.backward()
    plain = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad()
    model.gradient_checkpointing = checkpointing
    transducer_loss(model, batch(), smoothing=0.1).smoothed.backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, plain[name])


def test_r_drop_guides_both_passes() -> None:
    model, given = small(dropout=0.0).train(), batch()
    once, twice = (transducer_loss(model, given, 0.1, r_drop) for r_drop in (0.0, 5.0))
    assert float(twice.smoothed.detach()) == pytest.approx(
        float(once.smoothed.detach()), rel=1e-9
    )  # no dropout: both passes agree


def test_without_a_guide_nothing_changes() -> None:
    model, given = small(), batch()
    guided, plain = (transducer_loss(model, one, 0.1) for one in (given, replace(given, guide=None)))
    assert float(guided.plain) == float(plain.plain) and float((guided.smoothed - plain.smoothed).detach()) > 0
    model.alignment_heads = ()
    assert torch.equal(transducer_loss(model, replace(given, guide=None), 0.1).smoothed, plain.smoothed)
