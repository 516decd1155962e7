"""A small language model folder with random but fixed weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from transduce.config import Config
from transduce.model_folder import ModelFolder, save_model
from transduce.models.catalog import build
from transduce.models.gpt import GptConfig
from transduce.models.interface import VocabularySizes
from transduce.models.recurrent_lm import RecurrentLmConfig
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer

TEXT = ["the cat sat on the mat\nand the dog lay down", "a bird sang; naïve cats listened"]
WINDOW = 24
UNLIKELY = -6.0
"""What is added to the scores of ends and of bytes that are no letters."""


def writer(kind: Any = "character", notes: dict[str, Any] | None = None, **settings: Any) -> ModelFolder:
    """A model folder's contents, in memory."""
    tokenizer = train_tokenizer(kind, TEXT * 3, TokenizerConfig(kind=kind, vocab_size=330, min_frequency=1))
    sizes: dict[str, Any] = {"model_dim": 16, "num_heads": 2, "ffn_dim": 19, "num_layers": 2, "tied_embeddings": False}
    sizes |= {"max_positions": WINDOW, "output_bias": True}
    return _contents(GptConfig(**{**sizes, **settings}), tokenizer, notes)


def _contents(config: Config, tokenizer: AnyTokenizer, notes: dict[str, Any] | None = None) -> ModelFolder:
    model = build(config, VocabularySizes(tokenizer.size, tokenizer.size), seed=7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)  # opinions strong enough to differ
        for token, piece in enumerate(tokenizer.pieces(range(tokenizer.size))):
            readable = piece.replace("▁", "").isascii() and piece.isprintable() and not piece.startswith("<0x")
            model.output.bias[token] = 0.0 if readable and token != tokenizer.end else UNLIKELY
    return ModelFolder(model.eval(), config, tokenizer, tokenizer, notes or {})


def save_recurrent_writer(folder: Path) -> Path:
    """A recurrent language model as a folder on disk."""
    tokenizer = train_tokenizer("character", TEXT * 3, TokenizerConfig(kind="character", vocab_size=330))
    config = RecurrentLmConfig(cell="lstm", model_dim=16, num_layers=2, dropout=0.0)
    save_model(folder, _contents(config, tokenizer), "a test's")
    return folder


def save_writer(folder: Path, kind: Any = "character", notes: dict[str, Any] | None = None) -> Path:
    """The same as a folder on disk."""
    save_model(folder, writer(kind, notes), "a test's")
    return folder
