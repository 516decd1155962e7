"""Attention maps and next tokens of a language model."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.unit.small_language_model import WINDOW, writer
from transduce.errors import SettingsError
from transduce.inference.generator import Generator
from transduce.inspection import record
from transduce.model_folder import ModelFolder
from transduce.models.catalog import build
from transduce.models.interface import VocabularySizes
from transduce.models.recurrent_lm import RecurrentLmConfig

PROMPT = "the cat sat"


@pytest.fixture(scope="module")
def generator() -> Generator:
    return Generator(writer())


def recurrent() -> Generator:
    """A language model without attention."""
    contents = writer()
    config = RecurrentLmConfig(cell="gru", model_dim=7, num_layers=1, dropout=0.0)
    size = contents.target_tokenizer.size
    model = build(config, VocabularySizes(size, size), seed=3).eval()
    return Generator(ModelFolder(model, config, contents.target_tokenizer, contents.target_tokenizer, {}))


def test_rows_sum_to_one_and_the_future_is_not_attended_to(generator: Generator) -> None:
    maps = generator.attention(PROMPT)
    weight_LHNN = maps.maps["causal"]
    length = len(generator.tokenizer.encode(PROMPT)) + 1  # a document begins with the end token of another one
    assert weight_LHNN.shape == (2, 2, length, length)
    np.testing.assert_allclose(weight_LHNN.sum(axis=-1), 1.0, atol=1e-5)
    assert not np.triu(weight_LHNN, k=1).any()
    assert maps.rows("causal") == maps.columns("causal")
    assert maps.subject == "prompt" and maps.source == PROMPT and maps.translation == ""


def test_next_tokens_are_the_best_of_the_last_position(generator: Generator) -> None:
    tokens = torch.tensor([[generator.tokenizer.end, *generator.tokenizer.encode(PROMPT)]])
    with torch.no_grad():
        memory = generator.model.encode(tokens[:, :0], tokens[:, :0].bool())
        logit_V = generator.model.logits(generator.model(tokens, memory))[0, -1]
    best = generator.next_tokens(PROMPT, top=3)
    assert [one.token for one in best] == logit_V.topk(3).indices.tolist()
    assert [one.logit for one in best] == pytest.approx(logit_V.topk(3).values.tolist(), abs=1e-5)
    assert [one.probability for one in best] == pytest.approx(logit_V.softmax(0).topk(3).values.tolist(), abs=1e-6)
    assert [one.piece for one in best] == generator.tokenizer.pieces([one.token for one in best])
    assert len(generator.next_tokens(PROMPT)) == 10
    with pytest.raises(SettingsError, match="at least 1"):
        generator.next_tokens(PROMPT, top=0)


def test_a_step_follows_every_token_and_the_last_is_open(generator: Generator) -> None:
    maps = generator.attention(PROMPT, top=4)
    tokens = generator.tokenizer.encode(PROMPT)
    assert len(maps.steps) == len(maps.source_pieces) == len(tokens) + 1
    assert [step.position for step in maps.steps] == list(range(len(tokens) + 1))
    assert [step.chosen.token for step in maps.steps[:-1] if step.chosen] == tokens
    last = maps.steps[-1]
    assert last.chosen is None and last.rank is None
    assert [one.token for one in last.top] == [one.token for one in generator.next_tokens(PROMPT, top=4)]


def test_a_continuation_is_part_of_the_maps(generator: Generator) -> None:
    maps = generator.attention(PROMPT, max_length=5)
    assert maps.translation == generator.generate([PROMPT], method="greedy", max_length=5)[0]
    assert maps.generated == 5
    written = maps.steps[-1 - maps.generated : -1]
    assert all(step.rank == 1 for step in written), "greedy search takes the likeliest token"
    before = len(generator.tokenizer.encode(PROMPT)) + 1
    alone = generator.attention(PROMPT).maps["causal"]
    np.testing.assert_allclose(maps.maps["causal"][:, :, :before, :before], alone, atol=1e-5)


def test_of_a_long_prompt_the_end_is_read(generator: Generator) -> None:
    assert generator.inspect_note is None
    long = Generator(writer())
    maps = long.attention("the cat sat on the mat and the dog lay down")
    assert len(maps.source_pieces) == WINDOW
    assert long.counts.shortened == 1 and "only its end" in str(long.inspect_note)
    assert maps.source_pieces[-4:] == tuple(long.tokenizer.pieces(long.tokenizer.encode("a lay down")[-4:]))


def test_a_model_without_attention_has_steps_but_no_maps() -> None:
    generator = recurrent()
    assert len(generator.next_tokens(PROMPT, top=3)) == 3
    maps = generator.inspect(PROMPT, top=3)
    assert not maps.maps and maps.default_kind is None
    assert [one.token for one in maps.steps[-1].top] == [one.token for one in generator.next_tokens(PROMPT, top=3)]
    with pytest.raises(SettingsError, match="no attention"):
        generator.attention(PROMPT)


def test_maps_that_would_not_fit_in_memory_are_rejected(generator: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "MAX_WEIGHTS", 4 * 5**2)
    assert generator.attention("the ")
    with pytest.raises(SettingsError, match="limited to 5"):
        generator.attention(PROMPT)
    assert generator.next_tokens(PROMPT)


# Beyond attention: lens, attribution, ablation, neuron view and head summary, on the same code as a translator's.


def test_the_lens_of_a_prompt_ends_with_the_next_tokens(generator: Generator) -> None:
    lens, expected = generator.logit_lens(PROMPT, top=5), generator.next_tokens(PROMPT, top=5)
    assert [one.token for one in lens.layers[-1][-1].top] == [one.token for one in expected]
    assert lens.layers[-1][-1].top[0].probability == pytest.approx(expected[0].probability, abs=1e-6)
    assert lens.ranks[-1, -1] == 1 and len(lens.layers) == 3
    assert lens.pieces[:-1] == lens.read_pieces[1:]
    assert set(lens.norms) == {"decoder"}


def test_an_ablated_head_changes_the_continuation_as_zero_columns_do(generator: Generator) -> None:
    found = generator.ablate(PROMPT, heads=[("causal", 2, 1)], max_length=7)
    changed = Generator(writer())
    with torch.no_grad():
        changed.model.get_submodule("decoder.1.self_attention").out_proj.weight[:, :8] = 0.0  # type: ignore[union-attr,operator,index]
    for one, output in ((generator, found.original), (changed, found.changed)):
        (expected,) = one.generate([PROMPT], method="greedy", max_length=7, n_best=1)[0]
        assert output.text == expected.text
        side = output.log_probability_before if one is generator else output.log_probability_after
        assert side == pytest.approx(expected.log_probability, abs=1e-4)
    with pytest.raises(SettingsError, match="no source"):
        generator.ablate(PROMPT, words=[1])


def test_attribution_is_to_the_prompt_alone(generator: Generator) -> None:
    for method in ("gradient_x_input", "value_zeroing"):
        found = generator.attribute(PROMPT, instead_of="a", method=method)  # type: ignore[arg-type]
        assert found.source == () and found.source_share == 0.0
        assert found.token == generator.next_tokens(PROMPT, top=1)[0].piece
        assert len(found.prefix) == len(found.prefix_pieces) == len(generator.attention(PROMPT).source_pieces)


def test_the_neuron_view_and_the_summary_are_of_causal_attention(generator: Generator) -> None:
    view, maps = generator.neuron_view(PROMPT, layer=2, head=2, row=3), generator.attention(PROMPT)
    np.testing.assert_allclose(view.weight, maps.head("causal", 2, 2)[3], atol=1e-6)
    heads = generator.head_summary([PROMPT]).heads
    assert [(head.kind, head.layer, head.number) for head in heads] == [
        ("causal", layer, head) for layer in (1, 2) for head in (1, 2)
    ]
    own = np.diagonal(maps.head("causal", 2, 2)).mean()
    assert heads[3].shares["itself"] == pytest.approx(float(own), abs=1e-6)


def test_a_recurrent_language_model_has_gradients_only() -> None:
    given = recurrent()
    assert len(given.attribute("the cat").prefix) == 8
    for call, message in (
        (lambda: given.logit_lens("the cat"), "stack of decoder layers"),
        (lambda: given.ablate("the cat", heads=[("causal", 1, 1)]), "no attention heads"),
        (lambda: given.head_summary(["the cat"]), "no attention"),
    ):
        with pytest.raises(SettingsError, match=message):
            call()
