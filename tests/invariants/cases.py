"""The models that every invariant is tested on: each model of the catalog, in several shapes, with small prime sizes.

A model that is added to the catalog without a case here fails `test_every_model_and_preset_has_a_case`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transduce.config import Config
from transduce.models.catalog import build, name_of, preset
from transduce.models.interface import AnyTransducer, VocabularySizes
from transduce.nn.attention.dot_product import padding_allowed

PAD = 5
"""Not 0, so that nobody can have assumed 0."""
START = 3
EXACT = {"rtol": 0.0, "atol": 1e-12}
"""How near is equal, in float64: sums may be taken in another order, and nothing else may differ."""


@dataclass(frozen=True)
class Case:
    """A preset made small; `name` is what pytest prints."""

    name: str
    preset: str
    config: Config
    sizes: VocabularySizes

    @property
    def model(self) -> str:
        """The name of the model in the catalog."""
        return name_of(self.config)


READERS = frozenset(("bert", "memory_network", "neural_gpu", "universal_encoder"))
"""Models of the catalog that read and do not write: their invariants are in `test_text_encoders`."""

SMALL: dict[str, dict[str, Any]] = {
    "transformer": {"model_dim": 14, "num_heads": 2, "ffn_dim": 17, "num_layers": 2},
    "gpt": {"model_dim": 12, "num_heads": 2, "key_value_heads": None, "ffn_dim": 17, "num_layers": 2},
    "recurrent_lm": {"model_dim": 7},
    "t5": {"model_dim": 14, "num_heads": 2, "key_dim": None, "value_dim": None, "ffn_dim": 17, "num_layers": 2},
    "universal": {"model_dim": 14, "num_heads": 2, "ffn_dim": 17, "num_layers": 4},
    "rnn": {"embedding_dim": 11, "hidden_dim": 7},
    "turing_machine": {"hidden_dim": 7, "slots": 11, "slot_dim": 3, "reads_target": True},
    "conv_seq2seq": {"embedding_dim": 11, "hidden_dim": 7, "num_layers": 3, "decoder_layers": None},
    "bytenet": {"model_dim": 7, "num_sets": 1, "dilations": (1, 2)},
    "extended_neural_gpu": {"model_dim": 7, "height": 2},
    "captioner": {
        "side": 6,
        "pixel_dim": 3,
        "channels": (5,),
        "region_dim": 13,
        "embedding_dim": 11,
        "hidden_dim": 7,
    },
}
"""What makes any preset of a model small enough to try."""


def case(base: str, name: str = "", joint: bool = False, **changes: Any) -> Case:
    """A preset, made small, then changed; sides have different vocabularies unless `joint`."""
    model, config = preset(base)
    sizes = VocabularySizes(23, 23) if joint else VocabularySizes(23, 29)
    return Case(f"{base}{name and '-'}{name}", base, config.but(**{**SMALL[model], **changes}), sizes)


CASES = [
    case("paper_base", joint=True),
    case("paper_big", joint=True, num_heads=7),
    case("student_6_2", joint=True),
    case("student_12_1", joint=True),
    case("small", joint=True),
    case("tiny", joint=True),
    case("paper_base", "one_layer", tied_embeddings="target", num_layers=1),
    case(
        "paper_base",
        "learned_positions",
        tied_embeddings="none",
        positions="learned",
        max_positions=31,
        output_bias=True,
    ),
    case("paper_base", "uneven_heads", tied_embeddings="target", num_heads=3, key_dim=5, value_dim=7),
    case("paper_base", "deep_encoder", tied_embeddings="target", num_layers=3, decoder_layers=1, activation="gelu"),
    case("small", "gated", tied_embeddings="none", activation="swiglu", decoder_layers=3),
    case("small", "learned_positions", joint=True, positions="learned", max_positions=31, attention_bias=True),
    case("small", "rotary", joint=True, positions="rotary", model_dim=12, key_value_heads=1, norm_kind="rms"),
    case("small", "alibi", tied_embeddings="target", positions="alibi", num_heads=7, activation="silu"),
    case("paper_base", "shaw", tied_embeddings="target", positions="shaw", max_distance=3),
    case("small", "buckets", tied_embeddings="none", positions="buckets", buckets=6, max_distance=9, key_value_heads=1),
    case("paper_base", "marian", joint=True, positions="sinusoidal_marian", activation="silu", output_bias=True),
    case("paper_base", "torch", tied_embeddings="none", final_norm=True, attention_bias=True, output_bias=True),
    case("small", "fairseq", joint=True, positions="sinusoidal_fairseq"),
    *(
        case("small", name, tied_embeddings="target", **settings)
        for name, settings in {
            "window": {"attention": "window", "window": 3},
            "window_global": {"attention": "window", "window": 2, "dilation": 2, "global_tokens": 3},
            "window_rotary": {"attention": "window", "window": 5, "positions": "rotary", "model_dim": 12},
            "strided": {"attention": "strided", "stride": 3, "key_value_heads": 1},
            "low_rank": {"attention": "low_rank", "rank": 5, "max_positions": 31, "decoder_attention": "full"},
            "linear": {"attention": "linear", "key_value_heads": 1},
            "performer": {"attention": "performer", "features": 11},
            "hashed": {"attention": "hashed", "hash_buckets": 4, "hash_rounds": 2, "hash_reach": 3},
            "mixed": {"attention": "window", "window": 3, "decoder_attention": "linear"},
        }.items()
    ),
    case("t5_small", joint=True, buckets=8, max_distance=7),
    case("t5_base", joint=True, num_heads=7),
    case("t5_v1_1_small", joint=True, key_dim=5, value_dim=5),
    case("t5_mini", joint=True),
    case("universal_base", joint=True),
    case(
        "universal_base",
        "shared_keys",
        tied_embeddings="target",
        key_value_heads=1,
        halting_threshold=0.9,
        max_offset=9,
    ),
    case("universal_mini", tied_embeddings="none", output_bias=True),
    case("universal_mini", "no_halting", tied_embeddings="target", halting=False, num_layers=3),
    case("gpt2"),
    case("gpt2_medium", activation="geglu", tied_embeddings=False, output_bias=True),
    case("gpt_mini"),
    case("gpt_mini", "post", norm="post", positions="none"),
    case("llama_mini"),
    case("llama_mini", "grouped", model_dim=24, num_heads=4, key_value_heads=2),
    case("llama_mini", "alibi", positions="alibi", key_value_heads=1),
    case("llama_mini", "shaw", positions="shaw", max_distance=3),
    case("llama_mini", "window", attention="window", window=3, global_tokens=1, key_value_heads=1),
    case("llama_mini", "strided", attention="strided", stride=4),
    case("gpt_mini", "linear", attention="linear"),
    case("llama_mini", "performer", attention="performer", features=7, key_value_heads=1),
    case("gpt_mini", "hashed", attention="hashed", hash_buckets=2, hash_rounds=3, hash_reach=2),
    case("mikolov"),
    case("zaremba_medium"),
    case("zaremba_large", "tied", tied_embeddings=True, output_bias=False, num_layers=3),
    case("lstm_mini", "one_layer", num_layers=1),
    case("gru_mini"),
    case("sutskever"),
    case("sutskever", "bidirectional", bidirectional=True, reverse_source=False),
    case("cho"),
    case("cho", "plain_cell", cell="rnn", num_layers=2, bidirectional=True),
    case("bahdanau"),
    case("bahdanau", "lstm", cell="lstm", num_layers=2),
    case("luong"),
    case("luong", "dot", attention="dot", input_feeding=False, cell="gru"),
    case("luong", "tied_embeddings", joint=True, tied_embeddings="all", hidden_dim=11),
    case("luong", "general_bidirectional", bidirectional=True, input_feeding=False),
    case("ntm_lstm"),
    case("ntm_lstm", "many_heads", read_heads=3, write_heads=2, max_shift=2, num_layers=2),
    case("ntm_feed_forward"),
    case("lstm_alone"),
    case("conv_paper", max_positions=31),
    case("conv_ladder"),
    case("conv_small", tied_embeddings="target", decoder_layers=4, num_layers=2),
    case("conv_small", "even_kernel", joint=True, tied_embeddings="all", kernel=4, output_bias=False),
    case("conv_small", "wide_kernel", kernel=7, num_layers=1, shared_attention=True),
    case("bytenet_paper", unit="multiplicative"),
    case("bytenet_paper", "unstretched", stretch=1.0, extra=3, kernel=4),
    case("bytenet_small", num_sets=2, output_bias=False),
    case("extended_neural_gpu", num_sets=3),
    case("extended_neural_gpu_small", height=3, num_layers=1, output_bias=False),
    case("captioner_paper"),
    case("captioner_small", side=8, channels=(5, 7)),
]


def make_model(case: Case, seed: int = 1) -> AnyTransducer:
    """Build a case's model for exact comparison: float64, no dropout, and no weight left at zero or one."""
    model = build(case.config, case.sizes, seed).double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return model


def draw_tokens(rows: int, length: int, size: int, seed: int) -> Tensor:
    """Tokens other than padding.  -> (rows, length)."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, size - 1, (rows, length), generator=generator)
    return torch.where(tokens >= PAD, tokens + 1, tokens)


def draw_source(case: Case, lengths: list[int], seed: int = 11) -> Tensor:
    """Sources of these lengths, padded on the right.  -> (B S)."""
    tokens = draw_tokens(len(lengths), max(lengths), case.sizes.source, seed)
    beyond = torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None]
    return tokens.masked_fill(beyond, PAD)


def draw_target(case: Case, rows: int, length: int, seed: int = 13) -> Tensor:
    """Targets that begin with the start token.  -> (rows, length)."""
    tokens = draw_tokens(rows, length, case.sizes.target, seed)
    tokens[:, 0] = START
    return tokens


def encode(model: AnyTransducer, source: Tensor) -> Any:
    """Read a padded source."""
    return model.encode(source, padding_allowed(source, PAD))
