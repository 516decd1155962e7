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
from tests.parity.test_import_export import SIDES, TEXTS, model_of
from tests.unit.interop.huggingface import folders
from transduce.inference.generator import Generator
from transduce.inference.text_encoder import TextEncoder
from transduce.inference.translator import Translator
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


def test_the_lens_and_the_gradients_of_a_language_model_are_theirs(tmp_path: Path) -> None:
    folder = folders.gpt2(tmp_path / "theirs")
    theirs = model_of(folder, n_embd=15, n_head=3, n_layer=3, n_positions=64)
    known = transformers.AutoTokenizer.from_pretrained(folder)
    import_model(folder, tmp_path / "ours")
    ours = transduce.load(tmp_path / "ours")
    assert isinstance(ours, Generator)
    tokens = known(TEXT, return_tensors="pt").input_ids
    with torch.no_grad():
        states = theirs(tokens, output_hidden_states=True).hidden_states
        logits = [theirs.lm_head(theirs.transformer.ln_f(state)) for state in states[:-1]]
        logits.append(theirs.lm_head(states[-1]))  # normalised there already
    lens = ours.logit_lens(TEXT, top=3)
    for steps, logit_1NV in zip(lens.layers, logits, strict=True):
        probability_NV = logit_1NV[0].softmax(dim=-1)
        for step, probability_V in zip(steps, probability_NV, strict=True):
            assert [one.token for one in step.top] == probability_V.topk(3).indices.tolist()
            assert step.chosen is not None
            assert step.chosen.probability == pytest.approx(float(probability_V[step.chosen.token]), abs=1e-6)
    norm_LN = torch.cat(states[:-1]).norm(dim=-1)
    np.testing.assert_allclose(lens.norms["decoder"][:-1], norm_LN.numpy(), rtol=1e-5)

    found = ours.attribute(TEXT, 4, instead_of=7)
    embedded = theirs.transformer.wte(tokens[:, :5]).detach().requires_grad_()
    logit_V = theirs(inputs_embeds=embedded).logits[0, -1]
    (logit_V[tokens[0, 5]] - logit_V[7]).backward()
    expected = (embedded.grad * embedded).sum(dim=-1)[0].tolist()
    assert found.prefix == pytest.approx(expected, abs=1e-4)


def test_the_lens_and_the_gradients_of_a_translator_are_theirs(tmp_path: Path) -> None:
    folder = folders.marian(tmp_path / "theirs")
    theirs = model_of(folder, **SIDES, activation_function="swish")
    import_model(folder, tmp_path / "ours")
    ours = transduce.load(tmp_path / "ours")
    assert isinstance(ours, Translator)
    lens = ours.logit_lens(TEXTS[0], top=3, max_length=5)
    tokens = [step.chosen.token for step in lens.layers[-1] if step.chosen]
    source = torch.tensor([[*ours.source.encode(TEXTS[0]), ours.source.end]])
    read = torch.tensor([[ours.target.start, *tokens[:-1]]])
    encoder = theirs.model.encoder
    embedded = (encoder.embed_tokens(source) * encoder.embed_scale).detach().requires_grad_()
    output = theirs.model(inputs_embeds=embedded, decoder_input_ids=read, output_hidden_states=True)
    for steps, state in zip(lens.layers, output.decoder_hidden_states, strict=True):
        probability_TV = (theirs.lm_head(state) + theirs.final_logits_bias)[0].softmax(dim=-1).detach()
        for step, probability_V in zip(steps, probability_TV, strict=True):
            assert [one.token for one in step.top] == probability_V.topk(3).indices.tolist()
            assert step.top[0].probability == pytest.approx(float(probability_V.max()), abs=1e-6)
    for stack, states in (("encoder", output.encoder_hidden_states), ("decoder", output.decoder_hidden_states)):
        norm_LN = torch.cat(states).norm(dim=-1).detach()
        np.testing.assert_allclose(lens.norms[stack], norm_LN.numpy(), rtol=1e-4)  # type: ignore[index]
    log_V = (theirs.lm_head(output.last_hidden_state) + theirs.final_logits_bias)[0, 2].log_softmax(dim=-1)
    log_V[tokens[2]].backward()
    expected = (embedded.grad * embedded).sum(dim=-1)[0].tolist()
    assert ours.attribute(TEXTS[0], 2, max_length=5).source == pytest.approx(expected, abs=1e-4)
