"""A Transformer with random weights whose translation depends on every word of its source, as a model folder.

Its answers are as good as a trained model's where the question is whose answer this is, and whether it is the same
alone and among others. Its sizes are prime or twice a prime; sources have 1 to 60 words.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import torch

from tests.torture.instrumented_worker import WORDS as POISON
from transduce.model_folder import ModelFolder, save_model
from transduce.models.interface import VocabularySizes
from transduce.models.transformer import Transformer, TransformerConfig
from transduce.nn.initialization import initialize
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer

WORDS = [f"{first}{vowel}{last}" for first in "bdfgklm" for vowel in "aeiou" for last in "nrst"]
GAIN = 3.0
"""Times the usual initialisation: with less, a random model writes the same whatever it reads."""
SEARCH = {"method": "greedy", "max_length": 29}


def save_random_model(folder: Path, num_layers: int = 3, ffn_dim: int = 67, words: Sequence[str] = ()) -> Path:
    """Write the model into a folder and return it; it also knows other `words`."""
    tokenizer = train_tokenizer(
        "word", [" ".join([*WORDS, *POISON, *words])], TokenizerConfig(kind="word", min_frequency=1)
    )
    config = TransformerConfig(
        model_dim=58, num_heads=2, ffn_dim=ffn_dim, num_layers=num_layers, norm="pre", tied_embeddings="none"
    )
    model = Transformer(config, VocabularySizes(tokenizer.size, tokenizer.size))
    initialize(model, seed=11)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2 and "embedding" not in name:
                weight *= GAIN
        model.output.weight[[tokenizer.encode(word)[0] for word in POISON]] = 0.0  # they are never written
    save_model(folder, ModelFolder(model, config, tokenizer, tokenizer, {"search": SEARCH}), "a card")
    return folder


def sentences(count: int, seed: int = 1, longest: int = 60) -> list[str]:
    """Different sentences, their lengths log-uniform."""
    draw = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        length = round(longest ** draw.random())
        found[" ".join(draw.choices(WORDS, k=length))] = None
    return list(found)
