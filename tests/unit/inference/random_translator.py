"""A translator with random weights, large enough to have opinions; sizes are primes where they can be."""

from __future__ import annotations

from typing import Any

import torch

from tests.unit.copy_translator import tokenizer
from transduce.inference.translator import Translator
from transduce.model_folder import ModelFolder
from transduce.models.catalog import build
from transduce.models.interface import VocabularySizes
from transduce.models.rnn import RnnConfig
from transduce.models.transformer import TransformerConfig

TEXT = "the lazy dog sleep under ten tree,"
OTHER = "one small fox jumps over old tree,"
"""Texts of as many different words, all known."""
OPTIONS: dict[str, Any] = {"beam_size": 3, "max_length": 11}
KEY, VALUE, HEADS = 7, 5, 3


def random_translator(kind: str = "word", **changes: Any) -> Translator:
    """A transformer: 2 encoder layers, 3 decoder layers, 3 heads."""
    config = TransformerConfig(
        model_dim=22,
        ffn_dim=37,
        num_heads=HEADS,
        key_dim=KEY,
        value_dim=VALUE,
        num_layers=2,
        decoder_layers=3,
        norm="pre",
        tied_embeddings="none",
        attention_bias=True,
        output_bias=True,
    ).but(**changes)
    return _translator(config, kind)


def random_rnn() -> Translator:
    return _translator(RnnConfig(embedding_dim=11, hidden_dim=13, dropout=0.0), "word")


def _translator(config: Any, kind: str) -> Translator:
    known = tokenizer(kind)
    model: Any = build(config, VocabularySizes(known.size, known.size), seed=31)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.4)
        if getattr(model.output, "bias", None) is not None:
            model.output.bias[known.end] += 3.5  # translations end
    return Translator(ModelFolder(model.eval(), config, known, known, {}))
