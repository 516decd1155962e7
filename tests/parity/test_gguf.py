"""A GGUF file, imported, gives the scores and the tokens that `transformers` gives."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import pytest
import tokenizers
import torch
import transformers
from tokenizers import AddedToken

from tests.unit.interop.huggingface import folders
from transduce.interop.import_model import import_model
from transduce.models.gpt import Gpt

HEADS, GROUPS = 4, 2
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A file with drawn weights; `<tool>` is one token wherever it stands, `<|end|>` is spelled by no text."""
    library = folders.byte_pairs()
    library.add_tokens([AddedToken("<|end|>", special=True), AddedToken("<tool>", special=False)])
    pieces = sorted(library.get_vocab(), key=lambda piece: library.token_to_id(piece))
    kinds = [{"<|end|>": 3, "<tool>": 4}.get(piece, 1) for piece in pieces]
    transformers.PreTrainedTokenizerFast(tokenizer_object=library).save_pretrained(tmp_path)
    config = transformers.LlamaConfig(
        vocab_size=len(pieces),
        hidden_size=24,
        intermediate_size=20,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=GROUPS,
        max_position_embeddings=64,
        tie_word_embeddings=False,
    )
    torch.manual_seed(4)
    model = transformers.LlamaForCausalLM(config)
    file = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    file.add_context_length(64)
    file.add_embedding_length(24)
    file.add_block_count(2)
    file.add_feed_forward_length(20)
    file.add_head_count(HEADS)
    file.add_head_count_kv(GROUPS)
    file.add_layer_norm_rms_eps(config.rms_norm_eps)
    file.add_rope_freq_base(10_000.0)
    file.add_vocab_size(len(pieces))
    file.add_tokenizer_model("gpt2")
    file.add_tokenizer_pre("gpt-2")
    file.add_token_list(pieces)
    file.add_token_types(kinds)
    file.add_token_merges([" ".join(pair) for pair in _merges(library)])
    file.add_eos_token_id(pieces.index("<|end|>"))
    for name, weight in model.state_dict().items():
        place, kind = name.rsplit(".", 1)
        layer = place.split(".")[2] if place.startswith("model.layers.") else None
        part = place if layer is None else place.split(".", 3)[3]
        heads = {"self_attn.q_proj": HEADS, "self_attn.k_proj": GROUPS}.get(part)
        if heads is not None:  # llama.cpp keeps the channels that turn together side by side
            weight = weight.view(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)
        own = NAMES[part] if layer is None else f"blk.{layer}.{NAMES[part]}"
        file.add_tensor(f"{own}.{kind}", weight.float().contiguous().numpy())
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return tmp_path


def _merges(library: tokenizers.Tokenizer) -> list[tuple[str, str]]:
    return [tuple(pair) for pair in json.loads(library.to_str())["model"]["merges"]]


def test_scores_are_those_of_transformers(theirs: Path, tmp_path: Path) -> None:
    contents = import_model(theirs / "model.gguf", tmp_path / "ours")
    other = transformers.AutoModelForCausalLM.from_pretrained(theirs, gguf_file="model.gguf").eval()
    model, token_BN = contents.model, torch.randint(0, contents.target_tokenizer.size, (2, 11))
    assert isinstance(model, Gpt)
    with torch.no_grad():
        memory = model.encode(token_BN[:, :0], token_BN[:, :0].bool())
        torch.testing.assert_close(model.logits(model(token_BN, memory)), other(token_BN).logits, rtol=0, atol=1e-5)


def test_what_a_file_defines_is_found_in_text_and_what_it_controls_is_not(theirs: Path, tmp_path: Path) -> None:
    tokenizer = import_model(theirs / "model.gguf", tmp_path / "ours").target_tokenizer
    known = transformers.PreTrainedTokenizerFast.from_pretrained(theirs)
    text = "call <tool> now"
    tokens = tokenizer.encode(text)
    assert tokens == known(text).input_ids and known.convert_tokens_to_ids("<tool>") in tokens
    assert tokenizer.decode(tokens) == text
    assert tokenizer.end not in tokenizer.encode("typed: <|end|>")
