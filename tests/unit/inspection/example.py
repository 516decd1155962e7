"""Small models and one translation that the tests of this folder look into; sizes are different primes."""

from __future__ import annotations

from transduce.inspection.maps import AttentionMaps
from transduce.inspection.record import attention_of
from transduce.inspection.replay import next_tokens
from transduce.models.interface import VocabularySizes
from transduce.models.transformer import Transformer, TransformerConfig
from transduce.nn.initialization import initialize

SIZES = VocabularySizes(source=29, target=31)
SOURCE_TOKENS = (5, 11, 7, 23, 3, 17, 2)
TARGET_TOKENS = (1, 13, 30, 4, 9, 2)
HEADS, ENCODER_LAYERS, DECODER_LAYERS = 3, 2, 5
SOURCE_LENGTH, STEPS = len(SOURCE_TOKENS), len(TARGET_TOKENS) - 1

HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    "<!--",
    "\"'`&amp;",
    "a\u2028b\u2029c",
    "\x00\x07\x1b[31m",
    "\ud83d",
    "{{script}}",
)
"""What a source of seven tokens might spell."""


def small_transformer(**changes: object) -> Transformer:
    config = TransformerConfig(
        model_dim=21,
        ffn_dim=37,
        num_heads=HEADS,
        num_layers=ENCODER_LAYERS,
        decoder_layers=DECODER_LAYERS,
        tied_embeddings="none",
    ).but(**changes)
    model = Transformer(config, SIZES)
    initialize(model, seed=3)
    return model.eval()


def hostile_maps() -> AttentionMaps:
    model = small_transformer()
    maps = attention_of(
        model,
        SOURCE_TOKENS,
        TARGET_TOKENS,
        source_pieces=HOSTILE,
        target_pieces=("<s>", "東京", "مرحبا", "$x_1$", "</script>", "</s>"),
        source="</script><script>alert(1)</script>",
        translation="\u202eabc",
    )
    return maps.with_steps(next_tokens(model, SOURCE_TOKENS, TARGET_TOKENS, top=4))
