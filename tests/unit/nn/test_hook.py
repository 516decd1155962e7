"""Hooks record and replace what passes, and cost and change nothing otherwise."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from transduce.errors import SettingsError
from transduce.models.catalog import build, preset
from transduce.models.interface import AnyTransducer, VocabularySizes
from transduce.models.rnn import RnnConfig
from transduce.models.transformer import TransformerConfig
from transduce.nn.hook import HOOK_POINTS, hook_points, is_hooked, record, replace

SOURCE = torch.randint(4, 31, (2, 5), generator=torch.Generator().manual_seed(3))
ALLOWED = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
HEAD, VALUE_DIM = 1, 7
CONFIG = TransformerConfig(model_dim=14, num_heads=2, ffn_dim=17, num_layers=2, tied_embeddings="all", dropout=0.0)


def model(config: TransformerConfig = CONFIG) -> AnyTransducer:
    return build(config, VocabularySizes(31, 31), seed=5).eval()  # type: ignore[return-value]


@torch.no_grad()
def hidden(given: AnyTransducer) -> Tensor:
    return given(SOURCE, given.encode(SOURCE, ALLOWED))  # type: ignore[no-any-return]


@torch.no_grad()
def stepped(given: AnyTransducer) -> Tensor:
    state, found = given.start(given.encode(SOURCE, ALLOWED)), []
    for tokens in SOURCE.unbind(dim=1):
        vector, state = given.step(tokens, state)
        found.append(vector)
    return torch.stack(found, dim=1)


@pytest.mark.parametrize("attention", ["full", "window", "linear"])
@pytest.mark.parametrize("path", ["encoder.1.self_attention", "decoder.0.self_attention", "decoder.1.cross_attention"])
def test_a_head_replaced_by_zero_is_a_head_whose_output_columns_are_zero(path: str, attention: str) -> None:
    config = CONFIG.but(attention=attention, window=2)
    ablated = model(config)
    with replace(ablated, {f"{path}.head": lambda value: value.index_fill(1, torch.tensor(HEAD), 0.0)}):
        found, found_stepwise = hidden(ablated), stepped(ablated)
    expected = model(config)
    with torch.no_grad():
        expected.get_submodule(path).out_proj.weight[:, HEAD * VALUE_DIM : (HEAD + 1) * VALUE_DIM] = 0.0  # type: ignore[union-attr,operator,index]
    torch.testing.assert_close(found, hidden(expected))
    torch.testing.assert_close(found_stepwise, stepped(expected))
    assert not torch.allclose(found, hidden(model(config)))


def test_a_patched_residual_carries_one_run_into_another() -> None:
    """With the last residual of another target in its place, the output is the other's (activation patching)."""
    given = model()
    memory = given.encode(SOURCE, ALLOWED)
    other = SOURCE.flip(1)
    with torch.no_grad(), record(given, ["residual"], inside="decoder.1") as recorded:
        expected = given(other, memory)
    residual = recorded["decoder.1.residual"]
    with torch.no_grad(), replace(given, {"decoder.1.residual": lambda _: residual}):
        assert torch.equal(given(SOURCE, memory), expected)


@pytest.mark.parametrize("name", ["query", "key", "value", "score", "weight", "head", "output", "residual"])
def test_every_hook_point_is_replaced_by_what_a_hook_returns(name: str) -> None:
    given = model()
    plain = hidden(given)
    path = "decoder.1.residual" if name == "residual" else f"decoder.1.cross_attention.{name}"
    noise = torch.Generator().manual_seed(1)
    with replace(given, {path: lambda value: value + torch.randn(value.shape, generator=noise)}):
        assert not torch.allclose(hidden(given), plain)
    assert torch.equal(hidden(given), plain) and not is_hooked(given)


def test_the_outputs_of_attention_and_feed_forward_are_what_residuals_add() -> None:
    given = model(CONFIG.but(norm="pre", num_layers=1))
    with torch.no_grad(), record(given, ["output", "residual"], inside="encoder.0") as recorded:
        given.encode(SOURCE, ALLOWED)
        embedded = given.source_embedding(SOURCE) + given.source_positions.first(5)  # type: ignore[operator,union-attr]
    added = recorded["encoder.0.self_attention.output"] + recorded["encoder.0.feed_forward.output"]
    torch.testing.assert_close(recorded["encoder.0.residual"], embedded + added)


@pytest.mark.parametrize("name", ["query", "key", "value", "head", "output", "residual"])
def test_recording_what_fused_kernels_compute_changes_no_bit(name: str) -> None:
    given = model()
    plain = hidden(given)
    with record(given, [name]) as recorded:
        assert torch.equal(hidden(given), plain)
    assert recorded


@pytest.mark.parametrize("name", ["paper_base", "gpt_mini", "t5_mini", "universal_mini"])
def test_hook_points_have_neither_parameters_nor_buffers(name: str) -> None:
    with torch.device("meta"):
        points = hook_points(build(preset(name)[1], VocabularySizes(31, 31)))
    assert {path.rpartition(".")[2] for path in points} == set(HOOK_POINTS) - {"read", "write", "slots"}
    assert not any(list(point.parameters()) + list(point.buffers()) for point in points.values())


def test_a_hook_point_that_does_not_exist_is_rejected_by_its_path() -> None:
    with pytest.raises(SettingsError, match=r"encoder\.7\.residual"), replace(model(), {"encoder.7.residual": abs}):
        pass


def test_a_replacement_of_another_shape_is_rejected() -> None:
    given = model()
    cut = replace(given, {"encoder.0.residual": lambda value: value[:, :1]})
    with pytest.raises(SettingsError, match=r"encoder\.0\.residual.*shape"), cut:
        hidden(given)
    assert not is_hooked(given)


def test_what_a_recurrent_decoder_only_shows_cannot_be_replaced() -> None:
    given = build(RnnConfig(embedding_dim=7, hidden_dim=5), VocabularySizes(31, 31), seed=1)
    with pytest.raises(SettingsError, match="not replaced"), replace(given, {"decoder.cross_attention.weight": abs}):
        pass
