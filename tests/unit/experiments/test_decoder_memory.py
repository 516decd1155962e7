"""What decoders keep, against what Hugging Face's programs keep."""

from __future__ import annotations

import pytest
import torch
import transformers

from transduce.experiments.decoder_memory import DecoderMemorySetting, computed, decoders, kept, measure

SMALL = DecoderMemorySetting(width=48, num_heads=6, num_layers=3, shared=2, window=20, contexts=(20, 80))


def test_states_are_as_large_as_their_formulas_say() -> None:
    finding = measure(setting=SMALL)
    assert finding.outcome == "holds in part"
    assert [check.passed for check in finding.checks[1:5]] == [True] * 4
    growing = finding.checks[-1]
    assert not growing.passed and "linear attention (× 1.0)" in growing.statement
    for name, config in decoders(SMALL).items():
        assert kept(config, 80, 1) == pytest.approx(computed(SMALL, name, 80), abs=80 + 64)  # whose slots, lengths


@pytest.mark.parametrize(("name", "heads"), [("full", 6), ("grouped", 2), ("multi-query", 1)])
def test_keys_and_values_are_those_of_llama(name: str, heads: int) -> None:
    config = transformers.LlamaConfig(
        vocab_size=16, hidden_size=48, intermediate_size=48, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=heads,
    )  # fmt: skip
    with torch.no_grad():
        past = transformers.LlamaModel(config)(torch.arange(13)[None], use_cache=True).past_key_values
    numbers = sum(part.numel() for layer in past.layers for part in (layer.keys, layer.values))
    assert computed(SMALL, name, 13) == 4 * numbers


def test_a_recurrent_state_is_that_of_torch() -> None:
    recurrent = torch.nn.LSTM(48, 48, num_layers=3)
    _, (hidden, cell) = recurrent(torch.zeros(13, 1, 48))
    assert computed(SMALL, "LSTM", 13) == 4 * (hidden.numel() + cell.numel())
