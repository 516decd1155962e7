from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.unit.inspection.example import (
    DECODER_LAYERS,
    ENCODER_LAYERS,
    HEADS,
    SIZES,
    SOURCE_LENGTH,
    SOURCE_TOKENS,
    STEPS,
    TARGET_TOKENS,
    small_transformer,
)
from transduce.errors import DataError, SettingsError, TransduceError
from transduce.inspection.record import attention_of
from transduce.models.interface import AnyTransducer, Memory
from transduce.models.rnn import Rnn, RnnConfig
from transduce.nn.hook import HookPoint, record
from transduce.nn.initialization import initialize

SOURCE_1S = torch.tensor([SOURCE_TOKENS])
REAL_1S = torch.ones_like(SOURCE_1S, dtype=torch.bool)
TARGET_1T = torch.tensor([TARGET_TOKENS[:-1]])
PADDED_2S = torch.tensor([[5, 11, 7, 2, 0], [3, 8, 6, 12, 2]])
PADDED_ALLOWED_2S = torch.tensor([[True, True, True, True, False], [True] * 5])


def rnn(attention: str, **changes: object) -> Rnn:
    config = RnnConfig(embedding_dim=11, hidden_dim=13, bidirectional=False, dropout=0.0)
    model = Rnn(config.but(attention=attention, **changes), SIZES)
    initialize(model, seed=5)
    return model.eval()


def nobody_listens(model: AnyTransducer) -> bool:
    return not any(module.is_hooked for module in model.modules() if isinstance(module, HookPoint))


def test_paths_name_a_hook_point_and_patterns_select_several() -> None:
    model = small_transformer()
    with record(model, ["weight", "residual"]) as recorded, torch.no_grad():
        model(TARGET_1T, model.encode(SOURCE_1S, REAL_1S))
    assert {path.rpartition(".")[2] for path in recorded} == {"weight", "residual"}
    assert sum(path.endswith("weight") for path in recorded) == ENCODER_LAYERS + 2 * DECODER_LAYERS
    assert sum(path.endswith("residual") for path in recorded) == ENCODER_LAYERS + DECODER_LAYERS


def test_every_hook_point_is_recorded_with_its_shape() -> None:
    model = small_transformer(key_dim=5, value_dim=2)
    with record(model, ["query", "key", "value", "score", "weight"]) as recorded:
        model(TARGET_1T, model.encode(SOURCE_1S, REAL_1S))
    shapes = {
        path.rpartition(".")[2]: tuple(value.shape) for path, value in recorded.items() if "decoder.4.cross" in path
    }
    assert shapes == {
        "query": (1, HEADS, STEPS, 5),
        "key": (1, HEADS, SOURCE_LENGTH, 5),
        "value": (1, HEADS, SOURCE_LENGTH, 2),
        "score": (1, HEADS, STEPS, SOURCE_LENGTH),
        "weight": (1, HEADS, STEPS, SOURCE_LENGTH),
    }
    assert not any(value.requires_grad for value in recorded.values())


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("padded", [False, True])
def test_hooks_do_not_change_the_output(norm: str, padded: bool) -> None:
    model = small_transformer(norm=norm).double()  # in double, so that only a mistake could make a difference
    source, allowed = (PADDED_2S, PADDED_ALLOWED_2S) if padded else (SOURCE_1S, REAL_1S)
    target = TARGET_1T.expand(len(source), -1)
    with torch.no_grad():
        fused = model(target, model.encode(source, allowed))
        with record(model):
            plain = model(target, model.encode(source, allowed))
    torch.testing.assert_close(plain, fused, rtol=0, atol=1e-12)


def test_padding_gets_no_weight_and_rows_still_sum_to_one() -> None:
    model = small_transformer()
    with record(model) as recorded, torch.no_grad():
        model(TARGET_1T.expand(2, -1), model.encode(PADDED_2S, PADDED_ALLOWED_2S))
    for path, weight_BHQM in recorded.items():
        torch.testing.assert_close(weight_BHQM.sum(-1), torch.ones(weight_BHQM.shape[:-1]))
        if path.startswith("encoder.") or "cross_attention" in path:
            assert (weight_BHQM[0, :, :, 4] == 0).all() and (weight_BHQM[1, :, :, 4] > 0).all()


def test_listeners_go_when_the_recording_fails() -> None:
    model = small_transformer()
    with pytest.raises(ZeroDivisionError), record(model):
        assert not nobody_listens(model)
        1 / 0
    assert nobody_listens(model)


def test_a_failing_replay_leaves_the_model_as_it_was() -> None:
    model = small_transformer(positions="learned", max_positions=3).train()
    model.encoder[1].eval()
    modes = [module.training for module in model.modules()]
    with pytest.raises(DataError, match="learned 3 positions"):
        attention_of(model, SOURCE_TOKENS, TARGET_TOKENS)
    assert nobody_listens(model)
    assert [module.training for module in model.modules()] == modes


def test_an_unknown_hook_point_is_rejected_with_a_suggestion() -> None:
    with pytest.raises(SettingsError, match="did you mean 'weight'"), record(small_transformer(), ["weigth"]):
        pass


def test_a_transformer_has_three_kinds_of_maps() -> None:
    maps = attention_of(small_transformer(), SOURCE_TOKENS, TARGET_TOKENS).maps
    assert {kind: weights.shape for kind, weights in maps.items()} == {
        "encoder": (ENCODER_LAYERS, HEADS, SOURCE_LENGTH, SOURCE_LENGTH),
        "decoder": (DECODER_LAYERS, HEADS, STEPS, STEPS),
        "cross": (DECODER_LAYERS, HEADS, STEPS, SOURCE_LENGTH),
    }
    for weights in maps.values():
        assert weights.dtype == np.float32 and (weights >= 0).all()
        np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-6)


def test_the_decoder_never_looks_ahead() -> None:
    weights_LHTT = attention_of(small_transformer(), SOURCE_TOKENS, TARGET_TOKENS).maps["decoder"]
    assert (np.triu(weights_LHTT, k=1) == 0).all() and (np.tril(weights_LHTT) == weights_LHTT).all()


def test_the_first_layer_equals_the_formula_of_the_paper() -> None:
    model = small_transformer()
    weights_LHSS = attention_of(model, SOURCE_TOKENS, TARGET_TOKENS).maps["encoder"]
    with torch.no_grad():
        hidden_SD = model.source_embedding(SOURCE_1S)[0] + model.source_positions.first(SOURCE_LENGTH)
    matrix = model.encoder[0].self_attention.qkv_proj.weight.detach().double().numpy()
    hidden = hidden_SD.double().numpy()
    for head in range(HEADS):
        query, key = (hidden @ matrix[start + 7 * head : start + 7 * head + 7].T for start in (0, 21))
        grown = np.exp(query @ key.T / np.sqrt(7))
        np.testing.assert_allclose(weights_LHSS[0, head], grown / grown.sum(1, keepdims=True), atol=1e-5)


@pytest.mark.parametrize("attention", [None, "additive", "general", "dot"])
def test_a_row_is_what_was_looked_at_when_its_token_was_chosen(attention: str | None) -> None:
    model: AnyTransducer = small_transformer() if attention is None else rnn(attention)
    weights_LHTS = attention_of(model, SOURCE_TOKENS, TARGET_TOKENS).maps["cross"]
    with torch.no_grad():
        state = model.start(model.encode(SOURCE_1S, REAL_1S))
        for t, token in enumerate(TARGET_TOKENS[:-1]):
            with record(model) as recorded:
                _, state = model.step(torch.tensor([token]), state)
            stepped_LHS = np.stack([recorded[path][0, :, 0] for path in recorded if "cross_attention" in path])
            np.testing.assert_allclose(weights_LHTS[:, :, t], stepped_LHS, atol=1e-6)


@pytest.mark.parametrize("changes", [{}, {"reverse_source": True}, {"input_feeding": True, "reverse_source": True}])
def test_a_recurrent_model_has_one_map(changes: dict[str, bool]) -> None:
    maps = attention_of(rnn("general", **changes), SOURCE_TOKENS, TARGET_TOKENS).maps
    assert list(maps) == ["cross"] and maps["cross"].shape == (1, 1, STEPS, SOURCE_LENGTH)
    np.testing.assert_allclose(maps["cross"].sum(-1), 1.0, atol=1e-6)


def test_a_model_without_attention_says_so() -> None:
    with pytest.raises(SettingsError, match="no attention maps"):
        attention_of(rnn("none"), SOURCE_TOKENS, TARGET_TOKENS)


def test_dropout_is_off_while_looking() -> None:
    model = small_transformer(dropout=0.5, attention_dropout=0.5).train()
    first, second = (attention_of(model, SOURCE_TOKENS, TARGET_TOKENS).maps["cross"] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert model.training


@pytest.mark.parametrize(("source", "target"), [([], TARGET_TOKENS), (SOURCE_TOKENS, [1]), (SOURCE_TOKENS, [])])
def test_an_empty_side_is_a_clear_error(source: list[int], target: list[int]) -> None:
    with pytest.raises(DataError, match="has no token"):
        attention_of(small_transformer(), source, target)


def test_a_diverged_model_gives_no_maps() -> None:
    model = small_transformer()
    with torch.no_grad():
        model.source_embedding.weight.fill_(torch.nan)
    with pytest.raises(TransduceError, match="not numbers"):
        attention_of(model, SOURCE_TOKENS, TARGET_TOKENS)


def test_a_recording_can_be_made_of_a_memory_alone() -> None:
    model = small_transformer()
    with record(model) as recorded:
        memory: Memory = model.encode(SOURCE_1S, REAL_1S)
    assert len(recorded) == ENCODER_LAYERS and memory.states.shape[1] == SOURCE_LENGTH
