"""What makes the Universal Transformer one: shared weights, coordinates at every step, halting and its cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.invariants.cases import PAD, START, case, draw_tokens, make_model
from transduce.data.batching import PairBatch
from transduce.errors import SettingsError
from transduce.inference.alignment import cross_attention
from transduce.models.catalog import build
from transduce.models.interface import VocabularySizes, collect_losses
from transduce.models.universal import Universal, UniversalConfig, UniversalEncoder, UniversalEncoderConfig
from transduce.nn.position import sinusoids
from transduce.tasks.text_encoding.batches import EncoderBatch, encoder_loss
from transduce.tasks.transducer import transducer_loss
from transduce.text.tokenizer.special import Specials

SIZES = VocabularySizes(23, 23)
SMALL = {"model_dim": 14, "num_heads": 2, "ffn_dim": 17, "num_layers": 4, "dropout": 0.0}


def made(**settings: Any) -> Universal:
    model = build(UniversalConfig(**{**SMALL, **settings}), SIZES, seed=1)
    assert isinstance(model, Universal)
    return model.double()


def batch(source_padding: int = 0, target_padding: int = 0) -> PairBatch:
    source, target = draw_tokens(3, 7, 23, 11), draw_tokens(3, 6, 23, 13)
    source = torch.cat([source, torch.full((3, source_padding), PAD)], dim=1)
    target = torch.cat([target, torch.full((3, target_padding), PAD)], dim=1)
    return PairBatch(
        source=source,
        source_allowed=source != PAD,
        target=target,
        target_lengths=torch.full((3,), 5),
        num_target_tokens=15,
        rows=np.arange(3),
    )


def test_who_listens_hears_the_same_in_any_batch() -> None:
    model = make_model(case("universal_base", tied_embeddings="none", num_layers=8))
    assert isinstance(model, Universal) and model.decoder_halting is not None
    with torch.no_grad():  # so that some halt earlier than others
        model.decoder_halting.probability.weight.mul_(1.5)
        model.decoder_halting.probability.bias.fill_(1.0)
    sources, targets = [[7, 8, 9], [10, 11, 12, 13, 2], [14]], [[6, 7], [9, 8, 7, 6, 2, 4], [4]]
    specials = Specials(pad=PAD, start=START, end=1)
    (among, *_), (alone,) = (
        cross_attention(model, sources[:count], targets[:count], specials, specials) for count in (3, 1)
    )
    np.testing.assert_allclose(among, alone, atol=1e-6)


def test_more_steps_need_no_more_weights() -> None:
    counts = [sum(p.numel() for p in made(num_layers=steps).parameters()) for steps in (1, 9)]
    assert counts[0] == counts[1]


def test_an_encoder_without_halting_is_its_block_applied_to_the_state_and_its_coordinates() -> None:
    model = made(halting=False, num_layers=3).eval()
    source = draw_tokens(2, 5, 23, 1)
    signal = sinusoids(8, 14)
    hidden = model.source_embedding(source)
    for step in (1, 2, 3):
        hidden = model.encoder(hidden + signal[:5] + signal[step], None)
    found = model.encode(source, torch.ones_like(source, dtype=torch.bool))
    torch.testing.assert_close(found.states, hidden, rtol=0, atol=1e-6)  # the table of signals was made in float32


def test_who_is_sure_at_once_stops_after_one_step() -> None:
    model = made().eval()
    assert model.encoder_halting is not None
    with torch.no_grad():
        model.encoder_halting.probability.bias.fill_(100.0)
    source = draw_tokens(2, 5, 23, 1)
    found = model.encode(source, torch.ones_like(source, dtype=torch.bool))
    once = made(halting=False, num_layers=1).eval()
    once.load_state_dict(model.state_dict(), strict=False)
    torch.testing.assert_close(found.states, once.encode(source, found.allowed).states, rtol=0, atol=1e-12)


def test_the_loss_is_charged_for_every_real_position_of_both_sides_and_for_no_other() -> None:
    free, charged = made(ponder_cost=0.0), made(ponder_cost=0.5)
    sums = []
    for padding in ((0, 0), (4, 0), (0, 5)):
        losses = [transducer_loss(model, batch(*padding), 0.0) for model in (free, charged)]
        sums.append(float(losses[1].smoothed.detach() - losses[0].smoothed.detach()))
        assert float(losses[0].plain) == float(losses[1].plain)  # what validation shows has no cost in it
    positions = 3 * 7 + 3 * 5
    assert sums[1:] == pytest.approx([sums[0]] * 2, abs=1e-6)
    assert 0.5 * positions * 1.0 < sums[0] <= 0.5 * positions * 5.0


def test_with_r_drop_the_cost_is_the_mean_of_both_readings() -> None:
    model, twice = made(ponder_cost=0.5).train(), batch()
    free = made(ponder_cost=0.0).train()
    once = transducer_loss(model, twice, 0.0).smoothed - transducer_loss(free, twice, 0.0).smoothed
    both = transducer_loss(model, twice, 0.0, 1.0).smoothed - transducer_loss(free, twice, 0.0, 1.0).smoothed
    assert float(both.detach()) == pytest.approx(float(once.detach()), abs=1e-6)


def test_positions_that_begin_elsewhere_in_training_begin_at_zero_afterwards() -> None:
    model, source = made(max_offset=500), draw_tokens(2, 5, 23, 1)
    allowed = torch.ones_like(source, dtype=torch.bool)
    torch.manual_seed(1)
    moved = model.train().encode(source, allowed)
    assert moved.offset.max() > 0
    still = model.eval().encode(source, allowed)
    assert still.offset.max() == 0
    assert (still.states - moved.states).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attention": "window"}, "attention = .*window.*"),
        ({"positions": "rotary"}, "positions = .*rotary.*"),
        ({"halting_threshold": 1.0}, "halting_threshold = 1.0"),
    ],
    ids=str,
)
def test_what_it_has_not_is_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        UniversalConfig.from_table(settings, "recipe.toml: model")


def reader(**settings: Any) -> UniversalEncoder:
    model = build(UniversalEncoderConfig(**{**SMALL, "head": "labels", "num_labels": 3, **settings}), SIZES, seed=1)
    assert isinstance(model, UniversalEncoder)
    return model.double()


def questions(padding: int = 0) -> EncoderBatch:
    tokens = torch.cat([draw_tokens(3, 7, 23, 11), torch.full((3, padding), PAD)], dim=1)
    segments = (torch.arange(7 + padding) > 4).long().expand(3, -1)
    return EncoderBatch(
        tokens=tokens,
        allowed=tokens != PAD,
        segments=segments,
        labels=torch.tensor([[0], [2], [1]]),
        num_target_tokens=3,
        num_rows=3,
        rows=np.arange(3),
    )


def test_a_text_encoder_reads_as_the_encoder_of_the_whole_model() -> None:
    """The same weights, and no mark of a question: what the encoder of both forms makes of a text is the same."""
    for halting in (True, False):
        whole, alone = made(halting=halting, norm="pre").eval(), reader(halting=halting, norm="pre", head="none").eval()
        names = {"source_embedding": "embedding", "encoder_halting": "halting"}
        shared = {
            ".".join([names.get(first, first), *rest]): weight
            for (first, *rest), weight in ((name.split("."), weight) for name, weight in whole.state_dict().items())
        }
        missing, _ = alone.load_state_dict(shared, strict=False)
        assert missing == ["question_embedding.weight"]
        with torch.no_grad():
            alone.question_embedding.weight.zero_()
        tokens, allowed = questions(4).tokens, questions(4).allowed
        states, expected = alone(tokens, allowed).states, whole.encode(tokens, allowed).states
        torch.testing.assert_close(states[allowed], expected[allowed], rtol=0, atol=1e-12)


def test_a_text_encoder_that_is_sure_at_once_stops_after_one_step() -> None:
    model, batch = reader().eval(), questions()
    assert model.halting is not None
    with torch.no_grad():
        model.halting.probability.bias.fill_(100.0)
    once = reader(halting=False, num_layers=1).eval()
    once.load_state_dict(model.state_dict(), strict=False)
    found, expected = (each(batch.tokens, batch.allowed, batch.segments).states for each in (model, once))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_a_text_encoder_is_charged_for_every_real_position_and_for_no_other() -> None:
    """Sure at once, a position costs its one step and the rest that it gives away, which is all: two."""
    free, charged = reader(ponder_cost=0.0), reader(ponder_cost=0.5)
    for sure, r_drop in ((True, 0.0), (False, 0.0), (False, 1.0)):
        for model in (free, charged):
            assert model.halting is not None
            with torch.no_grad():
                model.halting.probability.bias.fill_(100.0 if sure else 0.0)
        sums = []
        for padding in (0, 4):
            losses = [encoder_loss(model, questions(padding), 0.0, r_drop) for model in (free, charged)]
            sums.append(float(losses[1].smoothed.detach() - losses[0].smoothed.detach()))
            assert float(losses[0].plain) == float(losses[1].plain)  # what validation shows has no cost in it
        assert sums[1] == pytest.approx(sums[0], abs=1e-9)
        if sure:
            assert sums[0] == pytest.approx(0.5 * 21 * 2, abs=1e-9)
        else:
            assert 0.5 * 21 * 2 < sums[0] <= 0.5 * 21 * 5


def test_the_ponder_cost_teaches_a_text_encoder_to_halt_sooner() -> None:
    model, batch = reader(ponder_cost=0.5), questions()
    optimizer = torch.optim.SGD(model.halting.parameters(), 0.05) if model.halting else None
    assert optimizer is not None
    costs = []
    for _ in range(20):
        optimizer.zero_grad()
        with collect_losses(model.auxiliary_losses) as recorded:
            model(batch.tokens, batch.allowed, batch.segments)
        cost = recorded[0][1].sum()
        cost.backward()
        optimizer.step()
        costs.append(float(cost.detach()))
    assert costs[-1] < 0.8 * costs[0]


def test_a_story_may_have_any_number_of_facts_and_its_question_is_marked() -> None:
    model, batch = reader().eval(), questions()
    facts = torch.tensor([0, 0, 1, 2, 3, 4, 4]).expand(3, -1)
    pair = torch.tensor([0, 0, 0, 0, 0, 1, 1]).expand(3, -1)
    story, two = (model(batch.tokens, batch.allowed, segments).states for segments in (facts, pair))
    torch.testing.assert_close(story, two, rtol=0, atol=0)  # where a fact ends, its end token says
    assert (story - model(batch.tokens, batch.allowed).states).abs().max() > 1e-3
