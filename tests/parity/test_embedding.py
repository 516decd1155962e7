"""Vectors of texts equal those of `transformers`: the mean of its encoder's output, or of its hidden states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import transduce
from tests.parity.test_import_export import SIDES, TEXTS, model_of
from tests.unit.interop.huggingface import folders
from transduce.errors import SettingsError


def test_a_translator_pools_the_output_of_its_encoder(tmp_path: Path) -> None:
    folder = folders.marian(tmp_path / "theirs")
    theirs = model_of(folder, **SIDES, activation_function="swish")
    known = transformers.MarianTokenizer.from_pretrained(folder)
    read = known(TEXTS, return_tensors="pt", padding=True)
    with torch.no_grad():
        states = theirs.get_encoder()(input_ids=read.input_ids, attention_mask=read.attention_mask).last_hidden_state
    plain = transduce.from_pretrained(folder)
    assert isinstance(plain, transduce.Translator)
    plain.languages.tags = None  # `transformers` reads no tag either
    for number, text in enumerate(TEXTS):
        own = states[number][read.attention_mask[number].bool()].numpy()
        np.testing.assert_allclose(plain.embed([text])[0], own.mean(axis=0), atol=1e-5)
        np.testing.assert_allclose(plain.embed([text], pool="last")[0], own[-1], atol=1e-5)


def test_a_generator_pools_its_hidden_states(tmp_path: Path) -> None:
    folder = folders.gpt2(tmp_path / "theirs")
    theirs = model_of(folder, n_embd=16, n_layer=2, n_head=2, n_positions=32)
    known = transformers.AutoTokenizer.from_pretrained(folder)
    generator = transduce.from_pretrained(folder)
    assert isinstance(generator, transduce.Generator)
    first = generator.tokenizer.end if generator.prompt_start is None else generator.prompt_start
    for text, vector in zip(TEXTS, generator.embed(TEXTS), strict=True):
        tokens = [first, *known(text, add_special_tokens=False).input_ids]
        with torch.no_grad():
            states = theirs.transformer(torch.tensor([tokens])).last_hidden_state[0].numpy()
        np.testing.assert_allclose(vector, states.mean(axis=0), atol=1e-5)
        np.testing.assert_allclose(generator.embed([text], pool="last")[0], states[-1], atol=1e-5)


def test_vectors_depend_on_nothing_else(tmp_path: Path) -> None:
    folder = folders.marian_apart(tmp_path / "theirs")
    model_of(folder, **SIDES, activation_function="swish", share_encoder_decoder_embeddings=False)
    translator: Any = transduce.from_pretrained(folder)
    together = translator.embed([*TEXTS, "", TEXTS[0] * 50], normalize=True)
    assert together.shape == (5, 16) and together.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    for text, vector in zip(TEXTS, together, strict=False):
        np.testing.assert_allclose(translator.embed([text], normalize=True)[0], vector, atol=1e-5)
    assert translator.embed([]).shape == (0, 16)
    with pytest.raises(TypeError, match=r"\[text\]"):
        translator.embed("one text")
    with pytest.raises(SettingsError, match="max"):
        translator.embed(TEXTS, pool="max")
