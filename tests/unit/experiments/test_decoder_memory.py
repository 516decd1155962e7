"""Decoding states against those of Hugging Face and PyTorch."""

from __future__ import annotations

import pytest
import torch
import transformers

from transduce.experiments.decoder_memory import DecoderMemorySetting, computed_bytes, decoders, measure, measured_bytes

SMALL = DecoderMemorySetting(width=48, num_heads=6, num_layers=3, shared=2, window=20, contexts=(20, 80))


def test_measured_states_have_the_computed_size() -> None:
    finding = measure(setting=SMALL)
    assert finding.outcome == "holds in part"
    assert [check.passed for check in finding.checks[1:5]] == [True] * 4
    growing = finding.checks[-1]
    assert not growing.passed and "linear attention (× 1.0)" in growing.statement
    for name, config in decoders(SMALL).items():
        assert measured_bytes(config, 80, 1) == pytest.approx(
            computed_bytes(SMALL, name, 80), abs=80 + 64
        )  # slot indices, lengths


@pytest.mark.parametrize(("name", "heads"), [("full", 6), ("grouped", 2), ("multi-query", 1)])
def test_keys_and_values_are_as_large_as_those_of_llama(name: str, heads: int) -> None:
    config = transformers.LlamaConfig(
        vocab_size=16, hidden_size=48, intermediate_size=48, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=heads,
    )  # fmt: skip
    with torch.no_grad():
        past = transformers.LlamaModel(config)(torch.arange(13)[None], use_cache=True).past_key_values
    numbers = sum(part.numel() for layer in past.layers for part in (layer.keys, layer.values))
    assert computed_bytes(SMALL, name, 13) == 4 * numbers


def test_a_recurrent_state_is_as_large_as_that_of_torch() -> None:
    recurrent = torch.nn.LSTM(48, 48, num_layers=3)
    _, (hidden, cell) = recurrent(torch.zeros(13, 1, 48))
    assert computed_bytes(SMALL, "LSTM", 13) == 4 * (hidden.numel() + cell.numel())
