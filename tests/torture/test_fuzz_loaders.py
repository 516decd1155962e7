"""Mutated model files, loaded: the result is a model or a known error, and never takes longer than a second.

Each loader gets files that were sound before a few bytes or values changed. An error of any other kind, a panic of a
library in Rust and a crash of the process are failures.
"""

from __future__ import annotations

import collections
import contextlib
import json
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.torture.example import Tally, sizes
from tests.torture.hostile.case import make_bases
from tests.torture.hostile.mutation import mutated_bytes, mutated_json
from tests.unit.interop.test_gguf import FIELDS, SHAPES, put
from tests.unit.sentencepiece_models import trained
from transduce.errors import TransduceError
from transduce.interop.gguf import GgufFile
from transduce.interop.huggingface.architecture import Settings
from transduce.interop.huggingface.folder import HuggingFaceFolder
from transduce.interop.huggingface.language_model import GPT2
from transduce.interop.huggingface.tokenizer import import_tokenizers
from transduce.model_folder import describe_model, load_model, load_weights
from transduce.storage.layout import MANIFEST, MODEL_KIND
from transduce.storage.manifest import save_manifest, verify, write_manifest
from transduce.text.tokenizer import load_tokenizer
from transduce.text.tokenizer.sentencepiece import read_sentencepiece
from transduce.text.tokenizer.sentencepiece_codec import SentencePieceCodec

SLOWEST = 1.0
"""Seconds of processor time for one file."""
Load = Callable[[Path], object]
Mutate = Callable[[bytes, random.Random], bytes]
TEXT = "the lazy fox </s> ÄÖ 東京\t12,345 aaaaaaaa!"


def load_manifest(path: Path) -> None:
    with contextlib.suppress(ValueError):
        table = json.loads(path.read_bytes())
        if len(path.read_bytes()) % 2 and isinstance(table, dict):  # with a digest that fits, half of the time
            save_manifest(path.parent, table)
    verify(path.parent, MODEL_KIND)


def sign(path: Path) -> None:
    """Write a manifest that fits, so that what was mutated is reached."""
    (path.parent / MANIFEST).unlink(missing_ok=True)
    write_manifest(path.parent, MODEL_KIND)


def load_config(path: Path) -> None:
    sign(path)
    describe_model(path.parent)


def load_folder(path: Path) -> None:
    sign(path)
    load_model(path.parent)


def use_tokenizer(path: Path) -> None:
    tokenizer = load_tokenizer(path)
    tokenizer.decode(tokenizer.encode(TEXT))
    tokenizer.pieces(range(min(50, tokenizer.size)))


def load_gguf(path: Path) -> None:
    file = GgufFile(path)
    for name in file.names:
        file.load(name)


def load_sentencepiece(path: Path) -> None:
    codec = SentencePieceCodec(read_sentencepiece(path.read_bytes(), str(path)))
    codec.encode_batch([TEXT])


def load_foreign(path: Path) -> None:
    folder = HuggingFaceFolder(path.parent)
    GPT2.read(Settings(folder.config, str(path)), folder.weights)
    tokenizer, _ = import_tokenizers(folder)
    tokenizer.decode(tokenizer.encode(TEXT))


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_bases(tmp_path_factory.mktemp("fuzz") / "bases")
    put(folder / "model.gguf", FIELDS, SHAPES)
    (folder / "unigram.model").write_bytes(trained(model_type="unigram"))
    return folder


TARGETS: dict[str, tuple[str, Mutate, Load, float]] = {
    "safetensors": ("native/model.safetensors", mutated_bytes, lambda path: load_weights(path), 0.25),
    "manifest": ("native/manifest.json", mutated_json, load_manifest, 0.2),
    "config": ("native/config.json", mutated_json, load_config, 0.1),
    "folder": ("causal/config.json", mutated_json, load_folder, 0.02),
    "own tokenizer": ("native/tokenizer.json", mutated_json, use_tokenizer, 0.1),
    "gguf": ("model.gguf", mutated_bytes, load_gguf, 0.2),
    "sentencepiece": ("unigram.model", mutated_bytes, load_sentencepiece, 0.05),
    "foreign config": ("foreign/config.json", mutated_json, load_foreign, 0.03),
    "foreign tokenizer": ("foreign/tokenizer.json", mutated_json, load_foreign, 0.05),
}
"""What is mutated, how, who loads it, and its share of all mutations."""


def test_the_shares_make_a_whole() -> None:
    assert sum(share for *_, share in TARGETS.values()) == pytest.approx(1)


@sizes(400, 100_000)
def test_a_mutated_file_is_loaded_or_rejected(size: int, bases: Path, tally: Tally) -> None:
    for target, (name, mutate, load, share) in TARGETS.items():
        draw, path = random.Random(target), bases / name
        sound, outcomes, slowest = path.read_bytes(), collections.Counter[str](), 0.0
        for number in range(round(size * share)):
            content = mutate(sound, draw)
            path.write_bytes(content)
            began = time.process_time()
            try:
                load(path)
                outcomes["loaded"] += 1
            except TransduceError as error:
                assert "\n" not in str(error)
                outcomes[type(error).__name__] += 1
            except BaseException as error:
                raise AssertionError(f"{target} {number}: {error!r}") from error
            taken = time.process_time() - began
            slowest = max(slowest, taken)
            assert taken < SLOWEST, f"{target} {number}: {taken:.1f} s"
        path.write_bytes(sound)
        if path.parent.name in ("native", "causal"):
            sign(path)
        counts = ", ".join(f"{number:,} {what}" for what, number in outcomes.most_common())
        tally(f"mutated: {target}", sum(outcomes.values()), f" ({counts}; the slowest {slowest:.2f} s)")
