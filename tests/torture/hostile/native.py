"""Hostile folders in our own format; each manifest fits, because an attacker writes one, too."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tests.torture.hostile.case import (
    CANARY,
    GENERATE,
    TRANSLATE,
    Case,
    Damage,
    fifo,
    file,
    header_of,
    link,
    raw,
    replaced,
    sparse,
    table,
    weights,
)
from transduce.storage.atomic import read_json
from transduce.storage.layout import MANIFEST
from transduce.storage.manifest import save_manifest

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
HUGE = 20 * 2**30


class Canary:
    """Runs code when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def pickled(path: Path) -> None:
    path.write_bytes(pickle.dumps(Canary(path.parents[1] / CANARY)))


def without_manifest(then: Damage) -> Damage:
    def damage(place: Path) -> None:
        (place / "native" / MANIFEST).unlink()
        then(place)

    return damage


def listed(change: Callable[[dict[str, Any]], object]) -> Damage:
    """Change the list of files of the manifest, with a digest that fits."""

    def damage(place: Path) -> None:
        manifest = read_json(place / "native" / MANIFEST)
        change(manifest["files"])
        save_manifest(place / "native", manifest)

    return damage


def many_spellings(files: dict[str, Any]) -> None:
    """The weights under 30,000 names, each to be hashed."""
    files.update({"./" * number + WEIGHTS: files[WEIGHTS] for number in range(1, 300)})
    files.update({f".{'/' * number}{WEIGHTS}": files[WEIGHTS] for number in range(1, 30_000)})


def settings(**changes: Any) -> Damage:
    return table(CONFIG, lambda content: content["settings"].update(changes))


def declared(change: Callable[[dict[str, Any]], object], data: bytes = b"") -> Damage:
    """Change the header of the weights."""

    def put(path: Path) -> None:
        header, old = header_of(path)
        change(header)
        path.write_bytes(raw(json.dumps(header).encode(), old + data))

    return weights(put)


def converted(dtype: torch.dtype) -> Damage:
    def put(path: Path) -> None:
        header, _ = header_of(path)
        tensors = {name: torch.zeros(entry["shape"]).to(dtype) for name, entry in header.items()}
        save_file(tensors, path)

    return weights(put)


def many_tensors(path: Path) -> None:
    """The weights of the model, and 100,000 more without values."""
    header, data = header_of(path)
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [len(data), len(data)]}
    path.write_bytes(raw(json.dumps(header | {f"w{number}": empty for number in range(100_000)}).encode(), data))


def giant(path: Path) -> None:
    """20 GB of zeros follow, which cost an attacker nothing; the last tensor claims them."""
    header, data = header_of(path)
    header["giant"] = {"dtype": "F32", "shape": [HUGE // 4], "data_offsets": [len(data), len(data) + HUGE]}
    content = raw(json.dumps(header).encode(), data)
    path.write_bytes(content)
    sparse(path, len(content) + HUGE)


def giant_rest(path: Path) -> None:
    sparse(path, path.stat().st_size + HUGE)


def wide(path: Path) -> None:
    """As many rows as the largest vocabulary, in half precision."""
    header, _ = header_of(path)
    shapes = {name: [10_000_000, 1] if "embedding" in name else entry["shape"] for name, entry in header.items()}
    save_file({name: torch.zeros(shape, dtype=torch.float16) for name, shape in shapes.items()}, path)


def wide_folder(place: Path) -> None:
    """A vocabulary of ten million tokens that the weights confirm, of which the tokenizer spells a few."""
    settings(model_dim=1, num_heads=1)(place)
    table(CONFIG, lambda content: content.update(vocabulary={"source": 10**7, "target": 10**7}))(place)
    weights(wide)(place)
    content = read_json(place / "native" / TOKENIZER)
    known = {"family": "gpt2", "size": 10**7, "pad": 0, "start": 1, "end": 2}
    imported = {"imported": 1, "settings": known, "codec": {"tokenizer": content, "special": []}}
    file(TOKENIZER, json.dumps(imported))(place)


def nested(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


def many_values() -> bytes:
    """15 MB of empty lists, which take a gigabyte once parsed."""
    return b'{"format": 2, "x": [' + b"[]," * 5_000_000 + b"[]]}"


def many_entries() -> bytes:
    entries = b",".join(b'"f%d": {}' % number for number in range(5_000_000))
    return b'{"kind": "transduce model", "format": 2, "files": {' + entries + b"}}"


def bare(name: str, content: Callable[[], bytes]) -> Damage:
    """Write a file without a manifest that fits."""
    return lambda place: (place / "native" / name).write_bytes(content())


NATIVE: dict[str, Case] = {
    "manifest is a device": Case(TRANSLATE, replaced(MANIFEST, link("/dev/zero")), "manifest.json"),
    "manifest is a pipe": Case(TRANSLATE, replaced(MANIFEST, fifo), "manifest.json"),
    "manifest is a link out of the folder": Case(TRANSLATE, replaced(MANIFEST, link("../moved")), "manifest.json"),
    "manifest of five million entries": Case(TRANSLATE, bare(MANIFEST, many_entries), "manifest.json"),
    "manifest of five million lists": Case(TRANSLATE, bare(MANIFEST, many_values), "manifest.json"),
    "manifest nested a million deep": Case(TRANSLATE, bare(MANIFEST, lambda: nested(10**6)), "manifest.json"),
    "manifest names a path outside": Case(
        TRANSLATE, listed(lambda files: files.update({"../input.txt": {"size": 1}})), "input.txt"
    ),
    "manifest lists the weights 30,000 times": Case(TRANSLATE, listed(many_spellings), "manifest.json"),
    "manifest has a key twice": Case(
        TRANSLATE,
        lambda place: (place / "native" / MANIFEST).write_bytes(
            (place / "native" / MANIFEST).read_bytes().replace(b'"format": 2,', b'"format": 3, "format": 2,')
        ),
        "manifest.json",
    ),
    "config is a device, no manifest": Case(TRANSLATE, without_manifest(replaced(CONFIG, link("/dev/zero")))),
    "config is a pipe, no manifest": Case(TRANSLATE, without_manifest(replaced(CONFIG, fifo))),
    "config is a link out of the folder": Case(TRANSLATE, replaced(CONFIG, link("../moved")), "config.json"),
    "config is a pipe": Case(TRANSLATE, replaced(CONFIG, fifo), "config.json"),
    "config of 180 MB": Case(
        TRANSLATE,
        table(CONFIG, lambda content: content.update(notes={"x": ["y" * 10] * 13_000_000})),
        "config.json",
    ),
    "config of five million lists": Case(TRANSLATE, file(CONFIG, many_values), "config.json"),
    "config nested a million deep": Case(TRANSLATE, file(CONFIG, lambda: nested(10**6)), "config.json"),
    "config with a key twice": Case(
        TRANSLATE, file(CONFIG, b'{"format": 2, "task": "translation", "format": 2}'), "config.json"
    ),
    "config of 10^9 dimensions": Case(TRANSLATE, settings(model_dim=10**9), "model_dim"),
    "config of the largest dimensions": Case(TRANSLATE, settings(model_dim=65_536, ffn_dim=65_536, num_heads=1)),
    "config of 1,000 layers": Case(TRANSLATE, settings(num_layers=1000)),
    "config of a million positions": Case(
        TRANSLATE, settings(positions="learned", max_positions=1_000_000), "model.safetensors"
    ),
    "config of a vocabulary of ten million": Case(
        TRANSLATE, table(CONFIG, lambda content: content.update(vocabulary={"source": 10**7, "target": 10**7}))
    ),
    "vocabulary of ten million in all files": Case(TRANSLATE, wide_folder),
    "weights are a pickle": Case(TRANSLATE, weights(pickled), "safetensors"),
    "weights are a pipe": Case(TRANSLATE, replaced(WEIGHTS, fifo), "model.safetensors"),
    "weights are a device": Case(TRANSLATE, replaced(WEIGHTS, link("/dev/zero")), "model.safetensors"),
    "weights with a header of 2^63 bytes": Case(
        TRANSLATE, weights(lambda path: path.write_bytes(raw(b"{}", length=2**63))), "model.safetensors"
    ),
    "weights with a header of 17 MB": Case(
        TRANSLATE, weights(lambda path: path.write_bytes(raw(b" " * (17 * 2**20)))), "model.safetensors"
    ),
    "weights of 100,000 tensors": Case(TRANSLATE, weights(many_tensors), "model.safetensors"),
    "weights in float8": Case(TRANSLATE, converted(torch.float8_e4m3fn), "F8_E4M3"),
    "weights in int64": Case(TRANSLATE, converted(torch.int64), "I64"),
    "weights in complex numbers": Case(TRANSLATE, converted(torch.complex64), "C64"),
    "weights of 10^9 rows": Case(
        TRANSLATE, declared(lambda header: next(iter(header.values())).update(shape=[10**9, 6])), "model.safetensors"
    ),
    "weights of 2^62 x 16 values": Case(
        TRANSLATE, declared(lambda header: next(iter(header.values())).update(shape=[2**62, 16])), "model.safetensors"
    ),
    "weights with a key twice": Case(
        TRANSLATE,
        weights(
            lambda path: path.write_bytes(
                raw(b"{" + b",".join([b'"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'] * 2) + b"}", bytes(4))
            )
        ),
        "model.safetensors",
    ),
    "weights with a tensor of 20 GB": Case(TRANSLATE, weights(giant), "model.safetensors"),
    "weights followed by 20 GB": Case(TRANSLATE, weights(giant_rest), "model.safetensors"),
    "language model of 100,000 tensors": Case(GENERATE, weights(many_tensors, "causal"), "model.safetensors"),
}
