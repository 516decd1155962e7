"""Parameter counts of a public ladder of translation models, recomputed to the unit.

The ladder is bentrevett/pytorch-seq2seq on Multi30k German-English, with 7,853 source and 5,893 target words: what
stands in its stored outputs is held against our presets.
"""

from __future__ import annotations

import pytest

from transduce.config import Config
from transduce.models.ancestors.conv_seq2seq import conv_ladder
from transduce.models.catalog import build
from transduce.models.interface import VocabularySizes
from transduce.models.rnn import bahdanau, cho, sutskever
from transduce.models.transformer import TransformerConfig

SIZES = VocabularySizes(source=7_853, target=5_893)

TRANSFORMER = TransformerConfig(
    model_dim=256,
    num_heads=8,
    ffn_dim=512,
    num_layers=3,
    positions="learned",
    max_positions=100,
    tied_embeddings="none",
    attention_bias=True,
    output_bias=True,
)

LADDER: dict[str, tuple[Config, int]] = {
    "sutskever": (sutskever(), 13_898_501),
    "cho": (cho(), 14_219_781),
    "bahdanau": (bahdanau(), 20_518_405),
    "convolutional": (conv_ladder(), 37_351_173),
    "transformer": (TRANSFORMER, 9_038_341),
}


@pytest.mark.parametrize("name", LADDER)
def test_a_model_of_the_ladder_has_exactly_the_published_parameters(name: str) -> None:
    config, published = LADDER[name]
    assert sum(parameter.numel() for parameter in build(config, SIZES).parameters()) == published
