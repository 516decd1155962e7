"""Costs that are read off the model, against formulas worked out by hand."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from transduce.errors import SettingsError
from transduce.inspection.cost import Workload, estimate, kept_for_backward, observe, parameters_by_part
from transduce.models import catalog
from transduce.models.gpt import GptConfig
from transduce.models.interface import LanguageModel, VocabularySizes
from transduce.models.rnn import RnnConfig
from transduce.models.transformer import TransformerConfig, paper_base

SIZES = VocabularySizes(53, 59)
D, H, K, V, F, LAYERS, LATER = 14, 3, 5, 7, 23, 2, 3
CONFIG = TransformerConfig(
    model_dim=D,
    num_heads=H,
    key_dim=K,
    value_dim=V,
    ffn_dim=F,
    num_layers=LAYERS,
    decoder_layers=LATER,
    tied_embeddings="target",
)
S, T = 11, 13
WORK = Workload(source_length=S, target_length=T, tokens=10 * T)


def attention_flops(queries: int, keys: int) -> int:
    """QK^T and the weights' sum of values, then the way back to D."""
    return 2 * queries * keys * H * (K + V) + 2 * queries * H * V * D


@pytest.mark.parametrize("name", ["bert_mini", "universal_encoder", "memn2n"])
def test_the_cost_of_a_text_encoder_has_no_target(name: str) -> None:
    config = catalog.preset(name)[1]
    work = [Workload(source_length=24, target_length=n, tokens=960) for n in (2, 24, 90)]
    bills = [estimate(config, VocabularySizes(101, 101), each) for each in work]
    assert bills[0] == bills[1] == bills[2]


def test_flops_of_a_transformer_are_those_of_its_formulas() -> None:
    packed, feed_forward, scores = 2 * D * H * (2 * K + V), 2 * 2 * D * F, 2 * D * SIZES.target
    encode = LAYERS * (S * packed + attention_flops(S, S) + S * feed_forward)
    cross_memory = 2 * S * D * H * (K + V)
    cross_query = 2 * D * H * K
    own = T * packed + attention_flops(T, T)
    cross = cross_memory + T * cross_query + attention_flops(T, S)
    forward = LATER * (own + cross + T * feed_forward) + T * scores
    step = LATER * (packed + attention_flops(1, T) + cross_query + attention_flops(1, S) + feed_forward) + scores

    found = estimate(CONFIG, SIZES, WORK).flops_per_token
    assert found == {"train": 3 * (encode + forward) // T, "decode": step, "encode": encode // S}


def test_gradients_cost_twice_the_forward_pass() -> None:
    """The 3 in "three times the forward pass", counted: all but the first layer's input needs both products."""
    with torch.device("meta"):
        model = catalog.build(CONFIG.but(model_dim=48, num_layers=7, decoder_layers=7), SIZES)
        seen = observe(model, S, T)
        with FlopCounterMode(display=False) as counter:
            memory = model.encode(torch.zeros(1, S, dtype=torch.long), torch.ones(1, S, dtype=torch.bool, device="cpu"))
            model.logits(model(torch.zeros(1, T, dtype=torch.long), memory)).sum().backward()
    assert counter.get_total_flops() == pytest.approx(3 * (seen.encode_flops + seen.forward_flops), rel=0.001)


@pytest.mark.parametrize(("cell", "gates"), [("rnn", 1), ("gru", 3), ("lstm", 4)])
def test_flops_of_recurrent_cells_are_those_of_their_gates(cell: str, gates: int) -> None:
    config = RnnConfig(cell=cell, embedding_dim=17, hidden_dim=19, num_layers=2, bidirectional=False, attention="none")
    first, second = 2 * gates * (17 + 19) * 19, 2 * gates * (19 + 19) * 19
    scores = 2 * 19 * SIZES.target
    found = estimate(config, SIZES, WORK).flops_per_token
    assert found["encode"] == first + second
    assert found["decode"] == first + second + scores
    assert found["train"] == 3 * (S * (first + second) + T * (first + second + scores)) // T


@pytest.mark.parametrize("name", [preset for entry in catalog.MODELS.values() for preset in entry.presets])
def test_every_preset_has_a_cost(name: str) -> None:
    cost = estimate(catalog.preset(name)[1], VocabularySizes(101, 101), Workload(source_length=3, target_length=2))
    assert cost.parameters == sum(cost.parts.values()) > 0
    reads_nothing = issubclass(catalog.entry(catalog.preset(name)[0]).model, LanguageModel)  # type: ignore[arg-type]
    assert min(flops for kind, flops in cost.flops_per_token.items() if kind != "encode" or not reads_nothing) > 0
    assert cost.memory_bytes["train"]["weights"] == 4 * cost.parameters


def test_parts_of_the_base_model_are_those_of_the_paper() -> None:
    with torch.device("meta"):
        parts = parameters_by_part(catalog.build(paper_base(), VocabularySizes(41_100, 41_100)))
    assert parts == {
        "embeddings": 41_100 * 512,
        "encoder_self_attention": 6 * 4 * 512 * 512,
        "encoder_feed_forward": 6 * (2 * 512 * 2048 + 2048 + 512),
        "encoder_norms": 6 * 2 * 2 * 512,
        "decoder_self_attention": 6 * 4 * 512 * 512,
        "decoder_cross_attention": 6 * 4 * 512 * 512,
        "decoder_feed_forward": 6 * (2 * 512 * 2048 + 2048 + 512),
        "decoder_norms": 6 * 3 * 2 * 512,
        "output": 0,
    }


def test_shared_matrices_count_once_and_all_parameters_are_in_some_part() -> None:
    both = VocabularySizes(53, 53)
    counts = {}
    for tied in ("all", "target", "none"):
        model = catalog.build(
            CONFIG.but(tied_embeddings=tied, positions="learned", norm="pre", attention_bias=True), both
        )
        parts = parameters_by_part(model)
        assert sum(parts.values()) == sum(parameter.numel() for parameter in model.parameters())
        counts[tied] = parts["embeddings"], parts["output"]
    assert counts == {"all": (53 * D, 0), "target": (2 * 53 * D, 0), "none": (2 * 53 * D, 53 * D)}


def test_training_memory_is_sixteen_bytes_a_parameter_and_the_batch() -> None:
    once, twice = (estimate(CONFIG, SIZES, WORK.but(tokens=n * T)).memory_bytes["train"] for n in (10, 20))
    parameters = estimate(CONFIG, SIZES, WORK).parameters
    assert once["weights"] + once["gradients"] + once["moments"] == 16 * parameters
    assert once["scores"] == 4 * 10 * T * SIZES.target
    assert twice["activations"] == 2 * once["activations"] > 0
    assert once["total"] == sum(size for kind, size in once.items() if kind != "total")


def test_activations_are_what_autograd_keeps_in_a_real_run() -> None:
    """With dropout in the attention the plain kernel runs on both devices, so that they keep the same."""
    config = CONFIG.but(attention_dropout=0.1)
    with torch.device("meta"):
        expected = observe(catalog.build(config, SIZES), S, T).kept_bytes
    model = catalog.build(config, SIZES, seed=3).train()
    with kept_for_backward(model) as kept:
        memory = model.encode(torch.zeros(1, S, dtype=torch.long), torch.ones(1, S, dtype=torch.bool))
        model.logits(model(torch.zeros(1, T, dtype=torch.long), memory))
    assert sum(tensor.untyped_storage().nbytes() for tensor in kept.values()) == pytest.approx(expected, rel=0.1)


def test_decoding_state_holds_the_keys_and_values_of_both_sides() -> None:
    state = estimate(CONFIG, SIZES, WORK.but(target_length=41)).memory_bytes["decode"]["state"]
    per_position = 4 * LATER * H * (K + V)
    assert per_position * (S + 40) <= state <= per_position * (S + 2 * 40) + 64  # buffers grow by doubling


def test_a_recurrent_state_does_not_grow() -> None:
    config = RnnConfig(cell="lstm", bidirectional=False, attention="none", hidden_dim=19)
    short, long = (estimate(config, SIZES, WORK.but(target_length=n)).memory_bytes["decode"]["state"] for n in (1, 17))
    assert short == long == 4 * 2 * 19


def test_table_1_is_for_the_models_width() -> None:
    attention, recurrent, *_ = estimate(CONFIG, SIZES, WORK).table_1
    assert (attention.operations, recurrent.operations) == (S * S * D, S * D * D)
    rnn = RnnConfig(hidden_dim=19, embedding_dim=17)
    assert estimate(rnn, SIZES, WORK).table_1[1].operations == S * 19 * 19


def test_a_model_of_hundreds_of_billions_of_parameters_is_counted_without_building_it() -> None:
    config = paper_base().but(model_dim=32_768, ffn_dim=65_536, num_layers=4)
    assert estimate(config, VocabularySizes(10**6, 10**6), Workload()).parameters > 10**11


@pytest.mark.parametrize("sizes", [(0, 5), (5, -3), (5, 10**12)])
def test_impossible_vocabularies_are_rejected(sizes: tuple[int, int]) -> None:
    with pytest.raises(SettingsError, match="vocabulary size"):
        estimate(CONFIG, VocabularySizes(*sizes), WORK)


def test_a_length_past_the_learned_positions_is_rejected() -> None:
    config = CONFIG.but(positions="learned", max_positions=12)
    with pytest.raises(SettingsError, match=r"target of 13 tokens does not fit .* 12 positions"):
        estimate(config, SIZES, WORK)


def test_counting_leaves_no_device_behind() -> None:
    estimate(CONFIG, SIZES, WORK)
    assert torch.zeros(1).device.type == "cpu"


@pytest.mark.parametrize("attention", ["window", "strided", "linear", "performer", "hashed"])
def test_attention_that_scales_is_counted_too(attention: str) -> None:
    config = CONFIG.but(attention=attention, window=4, stride=4, features=4, hash_reach=4)
    growth = []
    for kind in (CONFIG, config):
        short, long = (estimate(kind, SIZES, WORK.but(source_length=n)).flops_per_token["encode"] for n in (64, 256))
        growth.append(long - short)
    assert growth[1] < growth[0] / 2


def test_a_sum_of_features_does_not_grow() -> None:
    config = GptConfig(model_dim=14, num_heads=2, attention="linear", num_layers=2)
    short, long = (estimate(config, SIZES, Workload(target_length=n)).memory_bytes["decode"] for n in (8, 64))
    assert long["state"] == short["state"]
