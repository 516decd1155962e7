"""Attention weights and next tokens of imported folders, compared with `output_attentions` and logits there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import transduce
from tests.parity.test_import_export import model_of
from tests.unit.interop.huggingface import folders
from transduce.inference.generator import Generator
from transduce.inference.text_encoder import TextEncoder
from transduce.interop.import_model import import_model

TEXT = "The quick brown fox and don't you (and more)"


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (folders.gpt2, {"n_embd": 15, "n_head": 3, "n_layer": 2, "n_positions": 64}),
        (
            folders.smollm,
            {"hidden_size": 16, "intermediate_size": 19, "num_hidden_layers": 3, "num_attention_heads": 4}
            | {"num_key_value_heads": 2},
        ),
    ],
    ids=["gpt2", "llama"],
)
def test_a_language_model_attends_and_predicts_as_theirs(
    make: Callable[[Path], Path], settings: dict[str, Any], tmp_path: Path
) -> None:
    folder = make(tmp_path / "theirs")
    theirs = model_of(folder, **settings, attn_implementation="eager")
    known = transformers.AutoTokenizer.from_pretrained(folder)
    import_model(folder, tmp_path / "ours")
    ours = transduce.load(tmp_path / "ours")
    assert isinstance(ours, Generator)
    read = known(TEXT, return_tensors="pt")
    with torch.no_grad():
        expected = theirs(**read, output_attentions=True)
    maps = ours.attention(TEXT, top=7)
    weights_LHNN = torch.cat(expected.attentions).numpy()
    np.testing.assert_allclose(maps.maps["causal"], weights_LHNN, rtol=0, atol=2e-6)
    logit_NV, probability_NV = expected.logits[0], expected.logits[0].softmax(dim=-1)
    tokens = read.input_ids[0].tolist()
    for step, logit_V, probability_V in zip(maps.steps, logit_NV, probability_NV, strict=True):
        assert [one.token for one in step.top] == probability_V.topk(7).indices.tolist()
        for one in (*step.top, *([step.chosen] if step.chosen else [])):
            assert one.probability == pytest.approx(float(probability_V[one.token]), abs=1e-6)
            assert one.logit == pytest.approx(float(logit_V[one.token]), abs=2e-5)
        bits = torch.distributions.Categorical(logits=logit_V).entropy() / np.log(2)
        assert step.entropy == pytest.approx(float(bits), abs=1e-4)
    assert [step.chosen.token for step in maps.steps if step.chosen] == tokens[1:]
    assert [one.token for one in ours.next_tokens(TEXT, top=7)] == [one.token for one in maps.steps[-1].top]
    assert maps.columns("causal") == tuple(ours.tokenizer.pieces(tokens))


def test_a_text_encoder_attends_as_theirs(tmp_path: Path) -> None:
    folder = folders.bert(tmp_path / "theirs")
    sizes = {"hidden_size": 15, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 19}
    theirs = model_of(folder, **sizes, max_position_embeddings=64, attn_implementation="eager")
    known = transformers.AutoTokenizer.from_pretrained(folder)
    import_model(folder, tmp_path / "ours")
    ours = transduce.load(tmp_path / "ours")
    assert isinstance(ours, TextEncoder)
    for pair in ([TEXT], [TEXT, "two words"]):
        with torch.no_grad():
            expected = theirs(**known(*pair, return_tensors="pt"), output_attentions=True)
        weights_LHNN = torch.cat(expected.attentions).numpy()
        np.testing.assert_allclose(ours.attention(pair).maps["encoder"], weights_LHNN, rtol=0, atol=2e-6)
