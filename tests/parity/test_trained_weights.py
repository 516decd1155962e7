"""A real trained Transformer, in CTranslate2's own format, read into ours: it says what CTranslate2 says, as surely."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
import torch

from transduce.inference.search.options import Request, SearchOptions
from transduce.inference.search.search import Search
from transduce.models.interface import VocabularySizes
from transduce.models.transformer import Transformer, TransformerConfig
from transduce.text.tokenizer.special import Specials

FOLDER = Path(__file__).parents[2] / "../shared/data/weights-ct2-aren-transliteration"
SAID = {"atzmon": -0.15167, "atzumon": -0.26603, "atzmun": -0.33511, "atzemon": -0.36614}
"""What CTranslate2 4.8.4 answers to آتزمون with a beam of 4, and its scores."""

RENAMED = {
    "self_attention/linear_0": "self_attention.qkv_proj",
    "self_attention/linear_1": "self_attention.out_proj",
    "self_attention/layer_norm": "self_attention_residual.norm",
    "/attention/linear_0": ".cross_attention.q_proj",
    "/attention/linear_1": ".cross_attention.kv_proj",
    "/attention/linear_2": ".cross_attention.out_proj",
    "/attention/layer_norm": ".cross_attention_residual.norm",
    "ffn/linear_0": "feed_forward.up",
    "ffn/linear_1": "feed_forward.down",
    "ffn/layer_norm": "feed_forward_residual.norm",
    "encoder/embeddings": "source_embedding",
    "decoder/embeddings": "target_embedding",
    "decoder/projection": "output",
    "encoder/layer_norm": "encoder_norm",
    "decoder/layer_norm": "decoder_norm",
    "coder/layer_": "coder.",
    "/gamma": "/weight",
    "/beta": "/bias",
}


def read_weights(file: BinaryIO) -> dict[str, torch.Tensor]:
    """Read version 2 of the format: a name, a shape and the values of each weight."""

    def numbers(form: str) -> tuple[int, ...]:
        return struct.unpack(form, file.read(struct.calcsize(form)))

    def name() -> str:
        return file.read(numbers("H")[0])[:-1].decode()

    assert numbers("I") == (2,)
    assert (name(), *numbers("I")) == ("TransformerBase", 2)
    found = {}
    for _ in range(*numbers("I")):
        key = name()
        shape = numbers(f"{numbers('B')[0]}I")
        size, count = (*numbers("B"), *numbers("I"))
        assert size == 4
        found[key] = torch.from_numpy(np.frombuffer(file.read(size * count), np.float32).reshape(shape).copy())
    return found


def ours(key: str) -> str:
    for theirs, mine in RENAMED.items():
        key = key.replace(theirs, mine)
    return key.replace("/", ".")


def positions(length: int, dim: int) -> torch.Tensor:
    """Its sinusoids: counted from 1, all sines first, and another step between wavelengths than the paper's."""
    rate = torch.exp(torch.arange(dim // 2) * (-math.log(10000.0) / (dim // 2 - 1)))
    angle = torch.arange(1, length + 1)[:, None] * rate
    return torch.cat([angle.sin(), angle.cos()], dim=1)


def test_four_hypotheses_and_their_scores_are_those_of_ctranslate2() -> None:
    if not FOLDER.is_dir():
        pytest.skip("needs shared/data/weights-ct2-aren-transliteration beside the project; put it there")
    source, target = ((FOLDER / f"{side}_vocabulary.txt").read_text().split("\n") for side in ("source", "target"))
    config = TransformerConfig(
        model_dim=32,
        ffn_dim=128,
        num_heads=8,
        norm="pre",
        tied_embeddings="none",
        attention_bias=True,
        output_bias=True,
    )
    model = Transformer(config, VocabularySizes(51, 43)).eval()
    with (FOLDER / "model.bin").open("rb") as file:
        weights = {ours(key): weight for key, weight in read_weights(file).items()}
    model.load_state_dict(weights)
    assert sum(weight.numel() for weight in weights.values()) == 182_731
    for table in (model.source_positions, model.target_positions):
        table.table = positions(512, 32)  # type: ignore[union-attr]
    *word, last = (source.index(letter) for letter in "آتزمون")
    search = Search(model, Specials(0, 1, end=last), Specials(0, 1, 2))  # it reads no end token: the last letter is one
    options = SearchOptions(
        beam_size=4,
        n_best=4,
        length_normalization="power",
        length_penalty=1.0,
        stop_rule="beam_finished",
        max_length=256,
    )
    search.admit([Request(1, word, options)])
    results = []
    while search.active:
        results += search.advance()
    found = {"".join(target[token] for token in answer.tokens): answer.score for answer in results[0].hypotheses}
    assert list(found) == list(SAID)
    assert found == pytest.approx(SAID, abs=1e-5)  # its digits are cut off, not rounded
