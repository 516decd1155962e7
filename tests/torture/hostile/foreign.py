"""Hostile folders in Hugging Face's layout, and hostile GGUF files."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tests.torture.hostile.case import (
    IMPORT,
    IMPORT_GGUF,
    IMPORT_T5,
    SHORTLIST,
    Case,
    Damage,
    fifo,
    file,
    gguf_string,
    link,
    replaced,
    table,
    weights,
)
from tests.torture.hostile.native import giant, many_tensors, many_values, pickled
from tests.unit.sentencepiece_models import trained

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"


def settings(**changes: Any) -> Damage:
    return table(CONFIG, lambda content: content.update(changes), "foreign")


def sharded(shard: str | Callable[[Path], object], names: Callable[[], dict[str, str]] | None = None) -> Damage:
    """An index in place of the weights; `shard` is the name of a shard, or makes one."""

    def damage(place: Path) -> None:
        folder = place / "foreign"
        (folder / WEIGHTS).rename(place / "outside.safetensors")
        name = shard if isinstance(shard, str) else "a.safetensors"
        if callable(shard):
            shard(folder / name)
        listed = {"w": name} if names is None else names()
        (folder / INDEX).write_text(json.dumps({"weight_map": listed}))

    return damage


def only(name: str) -> Damage:
    """A pickle in place of the weights."""

    def damage(place: Path) -> None:
        (place / "foreign" / WEIGHTS).unlink()
        pickled(place / "foreign" / name)

    return damage


def spellings() -> dict[str, str]:
    """One shard under 20,000 names."""
    return {f"w{number}": "./" * (number % 200) + "/" * (number // 200) + "a.safetensors" for number in range(20_000)}


def quarter(path: Path) -> None:
    save_file({"transformer.wte.weight": torch.zeros(300, 6).to(torch.float8_e5m2)}, path)


def sentencepiece(place: Path) -> None:
    """Two million pieces for a model of a few hundred."""
    (place / "t5/tokenizer.json").unlink()
    more = b"".join(b"\x0a\x0d\x0a\x07%07d\x15\x00\x00\x80\xbf" % number for number in range(2_000_000))
    (place / "t5/spiece.model").write_bytes(trained(model_type="unigram") + more)


def quarter_list(place: Path) -> None:
    lists = {name: torch.zeros(3).to(torch.float8_e4m3fn) for name in ("tokens", "offsets", "always")}
    save_file(lists, place / "shortlist.safetensors")


FOREIGN: dict[str, Case] = {
    "foreign: weights are a pickle": Case(IMPORT, weights(pickled, "foreign"), "safetensors"),
    "foreign: only a .pt file": Case(IMPORT, only("model.pt"), "pickled"),
    "foreign: only a .bin file": Case(IMPORT, only("pytorch_model.bin"), "pickled"),
    "foreign: auto_map": Case(IMPORT, settings(auto_map={"AutoModel": "evil.Model"}), "auto_map"),
    "foreign: auto_map of the tokenizer": Case(
        IMPORT,
        table("tokenizer_config.json", lambda content: content.update(auto_map={"AutoTokenizer": "evil.T"}), "foreign"),
        "auto_map",
    ),
    "foreign: shard outside": Case(IMPORT, sharded("../outside.safetensors"), "shard"),
    "foreign: shard is a pipe": Case(IMPORT, sharded(fifo), "regular file"),
    "foreign: shard is a device": Case(IMPORT, sharded(link("/dev/zero")), "outside"),
    "foreign: one shard, 20,000 names": Case(
        IMPORT, sharded(lambda path: path.write_bytes(b"x" * 99), spellings), INDEX
    ),
    "foreign: config is a pipe": Case(IMPORT, replaced(CONFIG, fifo, "foreign"), "config.json"),
    "foreign: config is a link out": Case(IMPORT, replaced(CONFIG, link("../moved"), "foreign"), "config.json"),
    "foreign: config of five million lists": Case(IMPORT, file(CONFIG, many_values, "foreign"), "config.json"),
    "foreign: 10^9 dimensions": Case(IMPORT, settings(n_embd=10**9), ""),
    "foreign: 10^9 layers": Case(IMPORT, settings(n_layer=10**9), ""),
    "foreign: 1,000 layers": Case(IMPORT, settings(n_layer=1000), ""),
    "foreign: 100,000 tensors": Case(IMPORT, weights(many_tensors, "foreign"), "model.safetensors"),
    "foreign: weights in float8": Case(IMPORT, weights(quarter, "foreign"), ""),
    "foreign: tensor of 20 GB": Case(IMPORT, weights(giant, "foreign"), ""),
    "foreign: SentencePiece of two million pieces": Case(IMPORT_T5, sentencepiece, "spiece.model"),
    "shortlist is a pipe": Case(SHORTLIST, lambda place: fifo(place / "shortlist.safetensors"), "shortlist"),
    "shortlist in float8": Case(SHORTLIST, quarter_list, "shortlist"),
}


# GGUF: magic, version, number of tensors, number of fields, fields, tensors.

U32, STRING, ARRAY = 4, 8, 9


def gguf(fields: bytes = b"", number: int = 1, tensors: int = 0, rest: bytes = b"") -> Damage:
    content = b"GGUF" + struct.pack("<IQQ", 3, tensors, number) + fields + rest
    return lambda place: (place / "model.gguf").write_bytes(content)


def field(name: bytes, kind: int, value: bytes) -> bytes:
    return gguf_string(name) + struct.pack("<I", kind) + value


def array(kind: int, length: int, values: bytes = b"") -> bytes:
    return struct.pack("<IQ", kind, length) + values


LLAMA = field(b"general.architecture", STRING, gguf_string(b"llama"))
TOKENS = b"tokenizer.ggml.tokens"
GGUF: dict[str, Case] = {
    "gguf: array of 2^60 numbers in 94 bytes": Case(IMPORT_GGUF, gguf(field(TOKENS, ARRAY, array(U32, 2**60)))),
    "gguf: array of 2^60 strings": Case(IMPORT_GGUF, gguf(field(TOKENS, ARRAY, array(STRING, 2**60)))),
    "gguf: arrays of arrays": Case(
        IMPORT_GGUF, gguf(field(TOKENS, ARRAY, b"".join([array(ARRAY, 1)] * 50_000) + array(U32, 1, bytes(4))))
    ),
    "gguf: two million empty strings": Case(
        IMPORT_GGUF, gguf(LLAMA + field(TOKENS, ARRAY, array(STRING, 2_000_000, bytes(16_000_000))), 2)
    ),
    "gguf: 600,000 empty strings": Case(
        IMPORT_GGUF, gguf(LLAMA + field(TOKENS, ARRAY, array(STRING, 600_000, bytes(4_800_000))), 2)
    ),
    "gguf: 2^63 fields": Case(IMPORT_GGUF, gguf(LLAMA, 2**63)),
    "gguf: 2^63 tensors": Case(IMPORT_GGUF, gguf(LLAMA, 1, 2**63)),
    "gguf: a string of 2^63 bytes": Case(IMPORT_GGUF, gguf(struct.pack("<Q", 2**63) + b"x")),
    "gguf: a tensor of 2^62 rows": Case(
        IMPORT_GGUF,
        gguf(LLAMA, 1, 1, gguf_string(b"token_embd.weight") + struct.pack("<IQQIQ", 2, 6, 2**62, 0, 0) + bytes(64)),
    ),
    "gguf: a tensor of a billion axes": Case(
        IMPORT_GGUF, gguf(LLAMA, 1, 1, gguf_string(b"token_embd.weight") + struct.pack("<I", 10**9))
    ),
    "gguf: is a pipe": Case(IMPORT_GGUF, lambda place: os.mkfifo(place / "model.gguf")),
    "gguf: is a device": Case(IMPORT_GGUF, lambda place: (place / "model.gguf").symlink_to("/dev/zero")),
}
