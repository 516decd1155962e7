"""Whatever a model is set to, an export either says what ours says in `transformers`, or is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from transduce.config import Config
from transduce.errors import ModelFolderError, SettingsError
from transduce.interop.export_model import to_huggingface
from transduce.interop.huggingface.architecture import InMemoryWeights, Settings
from transduce.interop.huggingface.bert import BERT
from transduce.interop.huggingface.seq2seq import M2M100
from transduce.model_folder import save_weights
from transduce.models.bert import Bert, BertConfig
from transduce.models.catalog import build
from transduce.models.gpt import Gpt, GptConfig, llama_mini
from transduce.models.interface import Transducer, VocabularySizes
from transduce.models.t5 import T5Config
from transduce.models.transformer import TransformerConfig

VOCABULARY = 19
SMALL: dict[str, Any] = {"model_dim": 12, "num_heads": 2, "ffn_dim": 20, "num_layers": 1, "dropout": 0.0}
READS: dict[str, Any] = {**SMALL, "attention_dropout": 0.0, "max_positions": 64}

BASES: dict[str, Config] = {
    "post-norm": TransformerConfig(**SMALL, max_positions=64),
    "pre-norm": TransformerConfig(**SMALL, norm="pre", max_positions=64),
    "t5": T5Config(**SMALL),
    "gpt2": GptConfig(**SMALL, max_positions=64),
    "llama": llama_mini().but(**SMALL, key_value_heads=None),
    "bert": BertConfig(**READS),
    "bert, language": BertConfig(**READS, head="language"),
    "bert, labels": BertConfig(**READS, head="labels", num_labels=5),
}
CHANGES: dict[str, tuple[Any, ...]] = {
    "key_value_heads": (1,),
    "key_dim": (4,),
    "value_dim": (4,),
    "norm": ("post", "pre"),
    "final_norm": (True, False),
    "norm_kind": ("layer", "rms"),
    "norm_eps": (1e-2,),
    "feed_forward": ("relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu"),
    "ffn_bias": (None, True, False),
    "positions": (
        *("sinusoidal", "sinusoidal_marian", "sinusoidal_fairseq", "learned"),
        *("rotary", "alibi", "shaw", "buckets", "none"),
    ),
    "rotary_base": (50.0,),
    "max_distance": (17,),
    "buckets": (8,),
    "attention_bias": (True, False),
    "scale_attention": (True, False),
    "attention": ("window", "strided", "low_rank", "linear", "performer", "hashed"),
    "decoder_attention": ("window", "linear"),
    "decoder_layers": (2,),
    "tied_embeddings": ("all", "target", "sides", "none", True, False),
    "scale_embeddings": (True, False),
    "output_bias": (True, False),
    "scale_output": (True, False),
    "segments": (1, 3),
    "next_sentence": (False,),
    "num_labels": (3,),
}
"""Every setting that changes what is computed, and what it may be."""


def changed(base: Config) -> list[Config]:
    """A model with each of its settings changed, as far as that is possible and matters."""
    found = [base]
    for name, values in CHANGES.items():
        for value in values if name in type(base).model_fields and _matters(name, base) else ():
            try:
                config = base.but(**{name: value})
            except SettingsError:  # no such model here either
                continue
            found += [config] if config != base else []
    return found


def _matters(name: str, config: Any) -> bool:
    needed = {"rotary_base": "rotary", "max_distance": "buckets", "buckets": "buckets"}
    return needed.get(name, config.positions) == config.positions


def said_by_both(config: Config, folder: Path, pad: int = 0) -> tuple[Tensor, Tensor] | None:
    """What ours and theirs say of the same tokens; None where the export is refused."""
    model = build(config, VocabularySizes(VOCABULARY, VOCABULARY), seed=2).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    try:
        theirs = to_huggingface(model, config, pad)
    except SettingsError:
        return None
    special = {"pad_token_id": pad, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    (folder / "config.json").write_text(json.dumps({**theirs.settings, **special}))
    save_weights(folder / "model.safetensors", theirs.weights)
    other = getattr(transformers, theirs.class_name).from_pretrained(folder).eval()
    source, target = (torch.randint(3, VOCABULARY, (2, length), generator=generator) for length in (23, 13))
    everything = torch.ones_like(source, dtype=torch.bool)
    with torch.no_grad():
        if isinstance(model, Bert):
            segments = (torch.arange(23) > 13).long().expand(2, -1).clamp(max=model.config.segments - 1)
            read, answer = model(source, everything, segments), other(source, token_type_ids=segments)
            return read.states if model.head is None else model.head(read), answer[0]
        assert isinstance(model, Transducer)
        if isinstance(model, Gpt):
            nothing = target[:, :0]
            return model.logits(model(target, model.encode(nothing, nothing.bool()))), other(target).logits
        ours = model.logits(model(target, model.encode(source, everything)))
        return ours, other(input_ids=source, decoder_input_ids=target, use_cache=False).logits


@pytest.mark.parametrize("name", BASES)
def test_every_setting_arrives_or_is_rejected(name: str, tmp_path: Path) -> None:
    arrived = 0
    for config in changed(BASES[name]):
        both = said_by_both(config, tmp_path)
        if both is not None:
            torch.testing.assert_close(
                *both, rtol=0, atol=1e-4, msg=lambda reported, config=config: f"{config!r}: {reported}"
            )
            arrived += 1
    assert arrived > 3


@pytest.mark.parametrize("pad", [0, 1])
def test_positions_do_not_depend_on_which_token_pads(pad: int, tmp_path: Path) -> None:
    both = said_by_both(TransformerConfig(**SMALL, norm="pre", positions="sinusoidal_fairseq"), tmp_path, pad)
    assert both is not None
    torch.testing.assert_close(*both, rtol=0, atol=1e-4)


def test_what_would_be_read_as_another_model_is_rejected() -> None:
    sizes = {"hidden_size": 12, "num_attention_heads": 2, "intermediate_size": 20, "num_hidden_layers": 2}
    relu = {**sizes, "max_position_embeddings": 64, "hidden_act": "relu", "architectures": ["BertForMaskedLM"]}
    with pytest.raises(ModelFolderError, match="hidden_act = 'relu'"):
        BERT.read(Settings(relu, "config.json"), InMemoryWeights({}))
    with pytest.raises(ModelFolderError, match="pad_token_id = 0"):
        M2M100.read(Settings({"pad_token_id": 0}, "config.json"), InMemoryWeights({}))
