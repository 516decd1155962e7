"""GGUF files (llama.cpp's format) of the Llama architecture: config, weights and tokenizer in one file.

The header is parsed by `gguf_header`; quantized weights are dequantized to float32 by the `gguf` package (extra
`gguf`). llama.cpp permutes the rows of queries and keys; the permutation is undone.
"""

from __future__ import annotations

import math
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers
from torch import Tensor

from transduce.config import Table
from transduce.errors import MissingInput, ModelFolderError, SettingsError, brief, one_line
from transduce.interop.gguf_header import GgufHeader, GgufTensor
from transduce.interop.huggingface.architecture import Settings
from transduce.storage.untrusted import open_regular

SETTINGS = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
    "vocab_size": "vocab_size",
}
"""Keys of Hugging Face's `config.json` -> keys of the GGUF file."""

LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP_LEVEL = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""GPT-2's pre-tokenization."""
DEFAULT_SPLITS = (r"[\p{P}$+<=>^~|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]")
SPLITS: dict[str, list[Any]] = {
    "gpt-2": [],
    "default": [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in DEFAULT_SPLITS],
    "smollm": [pre_tokenizers.Digits(individual_digits=True)],
}
"""Pre-tokenization before byte-level BPE, by its name in the file. llama.cpp's default is not GPT-2's but close to
Falcon's: punctuation, then GPT-2's pattern, then numbers, then groups of three digits."""

CONTROL, USER_DEFINED = 3, 4
"""Token types besides normal ones: control tokens are never found in text, user-defined ones always as a whole."""


class GgufFile:
    """One file, with the names of Hugging Face's Llama."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not os.path.lexists(self.path):
            raise MissingInput(f"{self.path}: no such file; give a .gguf file")
        self._gguf = _library()
        try:
            header = GgufHeader(Path(os.path.realpath(self.path)), self.path)
        except (ValueError, struct.error) as error:
            raise ModelFolderError(
                f"{self.path}: is not a complete GGUF file ({one_line(error)}); download it again"
            ) from None
        self._fields = header.fields
        if self._fields.get("general.architecture") != "llama":
            raise ModelFolderError(
                f"{self.path}: general.architecture = {brief(self._fields.get('general.architecture'))} is not "
                "supported; only llama is"
            )
        self._tensors = {_huggingface_name(name): tensor for name, tensor in header.tensors.items()}
        self._ends = {name: self._check_end(name, tensor, header.size) for name, tensor in self._tensors.items()}

    @property
    def table(self) -> Table:
        """The equivalent of `config.json`."""
        found = {name: self._fields.get(f"llama.{key}") for name, key in SETTINGS.items()}
        table = {name: value for name, value in found.items() if value is not None}
        if f"{self._fields.get('llama.rope.scaling.type', 'none')}" != "none":
            table["rope_scaling"] = {"rope_type": str(self._fields["llama.rope.scaling.type"])}
        return {"model_type": "llama", **table}

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensors[name].shape

    def _check_end(self, name: str, tensor: GgufTensor, size: int) -> int:
        """Return where the values of a tensor end, if that is within the file."""
        try:
            values, width = self._gguf.GGML_QUANT_SIZES[self._gguf.GGMLQuantizationType(tensor.kind)]
        except (KeyError, ValueError):
            raise ModelFolderError(
                f"{self.path}: the weight {brief(name)} has type {tensor.kind}, which is not supported"
            ) from None
        row = tensor.shape[-1] if tensor.shape else 1
        end = int(tensor.begin + math.prod(tensor.shape) // values * width)
        if row % values or end > size:
            raise ModelFolderError(
                f"{self.path}: is not a complete GGUF file (the weight {brief(name)} has shape {tensor.shape}, which "
                "the file does not hold); download it again"
            )
        return end

    def load(self, name: str) -> Tensor:
        tensor = self._tensors[name]
        try:
            kind = self._gguf.GGMLQuantizationType(tensor.kind)
            with open_regular(Path(os.path.realpath(self.path))) as file:
                file.seek(tensor.begin)
                content = np.frombuffer(file.read(self._ends[name] - tensor.begin), dtype=np.uint8)
            rows = content.reshape(*tensor.shape[:-1], -1)
            values = self._gguf.quants.dequantize(rows, kind).astype(np.float32).reshape(tensor.shape)
        except Exception as error:
            raise ModelFolderError(
                f"{self.path}: the weight '{name}' cannot be dequantized ({one_line(error)})"
            ) from None
        weight = torch.from_numpy(values)
        part = next((part for part in ("q_proj", "k_proj") if part in name.split(".")), None)
        if part is None:
            return weight
        settings = Settings(self.table, str(self.path))
        heads = settings.integer("num_attention_heads")
        if part == "k_proj":
            heads = settings.integer("num_key_value_heads", heads)
        if weight.dim() == 0 or heads < 1 or len(weight) % (2 * heads):
            raise ModelFolderError(
                f"{self.path}: the weight '{name}' has shape {tuple(weight.shape)}, which does not fit {heads} heads; "
                "download the file again"
            )
        return _to_huggingface_rows(weight, heads)

    @property
    def special(self) -> dict[str, int | None]:
        """Ids of the start, end, padding and unknown tokens; None where the file has none."""
        named = {"start": "bos", "end": "eos", "pad": "padding", "unknown": "unknown"}
        return {ours: self._fields.get(f"tokenizer.ggml.{theirs}_token_id") for ours, theirs in named.items()}

    @property
    def adds_start(self) -> bool:
        """Whether a text begins with the start token."""
        return bool(self._fields.get("tokenizer.ggml.add_bos_token", False))

    def tokenizer(self) -> tokenizers.Tokenizer:
        """Return the library tokenizer; the library may raise anything on invalid lists."""
        model, split = (self._fields.get(f"tokenizer.ggml.{name}") for name in ("model", "pre"))
        if model == "gpt2" and split is None:
            raise ModelFolderError(
                f"{self.path}: has no tokenizer.ggml.pre, like files from before May 2024; "
                "use a newer file of this model, or convert it again"
            )
        if model != "gpt2" or not isinstance(split, str) or split not in SPLITS:
            raise ModelFolderError(
                f"{self.path}: tokenizer {brief(model)} with pre-tokenizer {brief(split)} is not supported; "
                f"supported: gpt2 with {', '.join(SPLITS)}"
            )
        pieces = self._list("tokens", str)
        merges = [tuple(merge.split(" ", 1)) for merge in self._list("merges", str)]
        if len(set(pieces)) < len(pieces):
            raise ValueError("two tokens have the same text")
        made = tokenizers.Tokenizer(models.BPE({piece: token for token, piece in enumerate(pieces)}, merges))
        bytes_joined = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.pre_tokenizer = pre_tokenizers.Sequence([*SPLITS[split], bytes_joined])
        made.decoder = decoders.ByteLevel()
        kinds = self._list("token_type", int) if "tokenizer.ggml.token_type" in self._fields else []

        def of_kind(wanted: int) -> list[AddedToken]:
            found = (piece for piece, kind in zip(pieces, kinds, strict=False) if kind == wanted)
            return [AddedToken(piece, normalized=False, special=wanted == CONTROL) for piece in found]

        made.add_special_tokens(of_kind(CONTROL))
        made.add_tokens(of_kind(USER_DEFINED))
        return made

    def _list(self, name: str, kind: type) -> list[Any]:
        """Return one of the tokenizer's lists."""
        values = self._fields.get(f"tokenizer.ggml.{name}")
        if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
            raise ValueError(f"{name} is not a list of {'strings' if kind is str else 'numbers'}")
        return values


def _to_huggingface_rows(weight: Tensor, heads: int) -> Tensor:
    """Undo llama.cpp's permutation of each head's rows, which interleaves their two halves."""
    paired = weight.view(heads, -1, 2, *weight.shape[1:])
    return paired.transpose(1, 2).reshape(weight.shape)


def _huggingface_name(name: str) -> str:
    """Return Hugging Face's name of a tensor; an unknown one keeps its own and is rejected later."""
    if "." not in name:
        return name
    *path, part, kind = name.split(".")
    if not path and part in TOP_LEVEL:
        return f"{TOP_LEVEL[part]}.{kind}"
    if len(path) == 2 and path[0] == "blk" and part in LAYER:
        return f"model.layers.{path[1]}.{LAYER[part]}.{kind}"
    return name


def _library() -> Any:
    try:
        import gguf
        import gguf.quants
    except ImportError:
        raise SettingsError("GGUF files need the gguf package; run `pip install 'transduce[gguf]'`") from None
    return gguf
