"""GGUF files: a whole one is read, and of every other kind it is said in one sentence what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tokenizers import Regex, pre_tokenizers

import transduce
from transduce.cli.main import run
from transduce.errors import ModelFolderError, SettingsError
from transduce.inference.generator import Generator
from transduce.interop.gguf import GgufFile
from transduce.interop.import_model import import_model

DIM, HEADS, GROUPS, FFN = 16, 2, 1, 24
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
PIECES = ["<|end|>", *BYTES, "th", "the"]
SIZE = len(PIECES)

FIELDS: dict[str, Any] = {
    "llama.embedding_length": DIM,
    "llama.feed_forward_length": FFN,
    "llama.block_count": 1,
    "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": GROUPS,
    "llama.context_length": 32,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "default",
    "tokenizer.ggml.tokens": PIECES,
    "tokenizer.ggml.merges": ["t h", "th e"],
    "tokenizer.ggml.token_type": [3, *[1] * (SIZE - 1)],
    "tokenizer.ggml.bos_token_id": 0,
    "tokenizer.ggml.eos_token_id": 0,
}
SHAPES: dict[str, tuple[int, ...]] = {
    "token_embd.weight": (SIZE, DIM),
    "output_norm.weight": (DIM,),
    "blk.0.attn_norm.weight": (DIM,),
    "blk.0.ffn_norm.weight": (DIM,),
    "blk.0.attn_q.weight": (DIM, DIM),
    "blk.0.attn_k.weight": (DIM // HEADS * GROUPS, DIM),
    "blk.0.attn_v.weight": (DIM // HEADS * GROUPS, DIM),
    "blk.0.attn_output.weight": (DIM, DIM),
    "blk.0.ffn_gate.weight": (FFN, DIM),
    "blk.0.ffn_up.weight": (FFN, DIM),
    "blk.0.ffn_down.weight": (DIM, FFN),
}


def put(path: Path, fields: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> Path:
    """Write a file with these fields, None for none, and random weights of these shapes."""
    writer = gguf.GGUFWriter(path, "llama")
    for name, value in fields.items():
        if isinstance(value, list):
            writer.add_array(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        elif value is not None:
            writer.add_int32(name, value)
    draw = np.random.default_rng(1)
    for name, shape in shapes.items():
        writer.add_tensor(name, draw.normal(size=shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_small_file_is_read_and_goes_on(tmp_path: Path) -> None:
    import_model(put(tmp_path / "small.gguf", FIELDS, SHAPES), tmp_path / "ours")
    model = transduce.load(tmp_path / "ours")
    assert isinstance(model, Generator)
    assert model.tokenizer.pieces(model.tokenizer.encode("the")) == ["the"]
    assert model.generate(["the"], n_best=1, method="greedy", max_length=4)[0][0].tokens > 0


def test_a_language_model_has_no_languages_to_translate(tmp_path: Path) -> None:
    path = put(tmp_path / "a.gguf", FIELDS, SHAPES)
    with pytest.raises(SettingsError, match="language model"):
        import_model(path, tmp_path / "ours", source_language="de")
    assert not (tmp_path / "ours").exists()


def test_the_default_splitting_is_as_falcons_and_not_as_gpt2s(tmp_path: Path) -> None:
    """llama.cpp has one list of rules for both, but for numbers of other scripts and for backticks; Falcon's own
    tokenizer is made of these parts of the library."""
    falcon = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Punctuation("contiguous"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
            pre_tokenizers.Digits(individual_digits=False),
            pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
        ]
    )
    ours = GgufFile(put(tmp_path / "small.gguf", FIELDS, SHAPES)).tokenizer().pre_tokenizer
    text = "it's  12345 dollars ($3.50+x),  isn't it?\n\n\tÄrger — 東京 42% a_b  "
    pieces = [piece for piece, _ in falcon.pre_tokenize_str(text)]
    assert [piece for piece, _ in ours.pre_tokenize_str(text)] == pieces
    assert pieces != [piece for piece, _ in pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(text)]


def test_as_many_key_heads_as_query_heads_is_the_default(tmp_path: Path) -> None:
    fields = {**FIELDS, "llama.attention.head_count_kv": None}
    shapes = {**SHAPES, "blk.0.attn_k.weight": (DIM, DIM), "blk.0.attn_v.weight": (DIM, DIM)}
    assert import_model(put(tmp_path / "small.gguf", fields, shapes), tmp_path / "ours").model.sizes.target == SIZE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"llama.embedding_length": "wide"}, "hidden_size must be an integer, not 'wide'"),
        ({"llama.embedding_length": None}, "hidden_size must be an integer, not None"),
        ({"llama.attention.head_count": [2, 2]}, "num_attention_heads must be an integer"),
        ({"llama.attention.head_count": 0}, "num_heads = 0"),
        ({"llama.attention.head_count": 4}, "has shape"),
        ({"llama.attention.layer_norm_rms_epsilon": float("nan")}, "norm_eps = nan"),
        ({"llama.rope.scaling.type": "yarn"}, "rope_scaling"),
        ({"tokenizer.ggml.model": None}, "tokenizer None"),
        ({"tokenizer.ggml.pre": ["gpt-2"]}, "with pre-tokenizer"),
        ({"tokenizer.ggml.pre": None}, "tokenizer.ggml.pre"),
        ({"tokenizer.ggml.tokens": None}, "tokens is not a list of strings"),
        ({"tokenizer.ggml.tokens": "abc"}, "tokens is not a list of strings"),
        ({"tokenizer.ggml.tokens": [1, 2, 3]}, "tokens is not a list of strings"),
        ({"tokenizer.ggml.tokens": [*PIECES[:-1], "th"]}, "two tokens have the same text"),
        ({"tokenizer.ggml.tokens": [*PIECES, "one more"]}, "but the model has only"),
        ({"tokenizer.ggml.merges": None}, "merges is not a list of strings"),
        ({"tokenizer.ggml.merges": ["th"]}, "a GGUF file with a tokenizer that can be read"),
        ({"tokenizer.ggml.merges": ["q q"]}, "a GGUF file with a tokenizer that can be read"),
        ({"tokenizer.ggml.token_type": ["x"]}, "token_type is not a list of numbers"),
        ({"tokenizer.ggml.eos_token_id": 10**6}, "token 1000000 is outside"),
        ({"tokenizer.ggml.eos_token_id": -1}, "token -1 is outside"),
        ({"tokenizer.ggml.bos_token_id": "<s>"}, "start = '<s>'"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_fields_that_make_no_sense_are_rejected_and_nothing_is_written(
    change: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = put(tmp_path / "odd.gguf", {**FIELDS, **change}, SHAPES)
    assert run(["import", str(path), "--output", str(tmp_path / "ours")]) == 65
    error = capsys.readouterr().err
    assert message in error and str(path) in error and error.count("\n") == 1, error
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unnamed": (3,)}, "unexpected weight 'unnamed'"),
        ({"blk.0.attn_q.weight": (DIM - 1, DIM)}, "does not fit 2 heads"),
        ({"blk.0.attn_q.weight": (DIM,)}, "has shape"),
        ({"blk.0.ffn_up.weight": (FFN, DIM + 1)}, "has shape"),
        ({"token_embd.weight": (SIZE,)}, "should be a matrix"),
    ],
    ids=str,
)
def test_weights_of_other_shapes_are_rejected(change: dict[str, tuple[int, ...]], message: str, tmp_path: Path) -> None:
    path = put(tmp_path / "odd.gguf", FIELDS, {**SHAPES, **change})
    with pytest.raises(ModelFolderError, match=message):
        import_model(path, tmp_path / "ours")


@pytest.mark.parametrize("kept", [0, 3, 24, 200, 5000, -1])
def test_a_file_that_is_cut_short_is_rejected(kept: int, tmp_path: Path) -> None:
    path = put(tmp_path / "cut.gguf", FIELDS, SHAPES)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ModelFolderError, match="not a complete GGUF file"):
        import_model(path, tmp_path / "ours")
