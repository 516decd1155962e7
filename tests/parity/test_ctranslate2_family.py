"""Language models and readers in CTranslate2's hands: the same vectors and scores as ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import torch

from transduce.errors import SettingsError
from transduce.inference.ctranslate2.export import export
from transduce.model_folder import ModelFolder
from transduce.models.bert import BertConfig
from transduce.models.catalog import build
from transduce.models.gpt import GptConfig, gpt2, gpt_mini, llama_mini
from transduce.models.interface import EncoderModel, LanguageModel, VocabularySizes
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer

SMALL: dict[str, Any] = {"model_dim": 16, "num_heads": 2, "key_value_heads": None, "ffn_dim": 24, "num_layers": 2}


def folder(config: GptConfig | BertConfig) -> ModelFolder:
    """A small model with every weight drawn."""
    tokenizer = train_tokenizer("byte", ["a b c d e f"], TokenizerConfig(kind="byte"))
    model = build(config, VocabularySizes(tokenizer.size, tokenizer.size), seed=3).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return ModelFolder(model, config, tokenizer, tokenizer)


GPTS = {
    "gpt2": gpt2().but(**SMALL),
    "post": gpt2().but(**SMALL, norm="post", activation="gelu"),
    "mini": gpt_mini().but(**SMALL),
    "llama": llama_mini().but(**SMALL),
    "grouped": llama_mini().but(**{**SMALL, "num_heads": 4, "key_value_heads": 2}),
}


@pytest.mark.parametrize("name", GPTS)
def test_a_language_model_gives_the_same_scores(name: str, tmp_path: Path) -> None:
    contents = folder(GPTS[name])
    export(contents, tmp_path / "out")
    model, vocabulary = contents.model, contents.target_tokenizer.vocabulary
    assert isinstance(model, LanguageModel)
    tokens = [[5, 80, 7, 200, 9, 9, 31], [4, 100]]
    generator = ctranslate2.Generator(str(tmp_path / "out"), intra_threads=1)
    for text in tokens:
        found = np.array(generator.forward_batch([[vocabulary[token] for token in text]]))[0]
        read = torch.tensor([text])
        with torch.no_grad():
            expected = model.logits(model(read, model.encode(read[:, :0], read[:, :0].bool())))[0]
        np.testing.assert_allclose(found, expected.numpy(), rtol=0, atol=2e-4)


@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_a_text_encoder_gives_the_same_vectors(activation: Any, tmp_path: Path) -> None:
    config = BertConfig(model_dim=16, num_heads=2, ffn_dim=24, num_layers=2, max_positions=32, activation=activation)
    contents = folder(config)
    export(contents, tmp_path / "out")
    assert isinstance(contents.model, EncoderModel)
    vocabulary, text = contents.source_tokenizer.vocabulary, [1, 80, 7, 200, 2]
    encoder = ctranslate2.Encoder(str(tmp_path / "out"), intra_threads=1)
    found = encoder.forward_batch([[vocabulary[token] for token in text]])
    read = torch.tensor([text])
    with torch.no_grad():
        expected = contents.model(read, torch.ones_like(read).bool())
    assert expected.pooled is not None
    np.testing.assert_allclose(np.array(found.last_hidden_state)[0], expected.states[0].numpy(), rtol=0, atol=2e-4)
    np.testing.assert_allclose(np.array(found.pooler_output)[0], expected.pooled[0].numpy(), rtol=0, atol=2e-4)


def test_what_the_engine_cannot_express_is_rejected_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no shaw positions in such a model"):
        export(folder(llama_mini().but(**SMALL, positions="shaw")), tmp_path / "out")
    with pytest.raises(SettingsError, match="without a head"):
        export(folder(BertConfig(model_dim=16, num_heads=2, ffn_dim=24, num_layers=1, head="labels")), tmp_path / "out")
    with pytest.raises(SettingsError, match="key heads in language models only"):
        export(folder(BertConfig(**{**SMALL, "key_value_heads": 1})), tmp_path / "out")
    assert not (tmp_path / "out").exists()
