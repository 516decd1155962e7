"""Tokenizers written for `transformers`, which then gives our tokens with an end behind them, and our texts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import transformers

from tests.unit.interop.huggingface.folders import FAMILIES, WITHOUT_TRANSFORMERS, put
from tests.unit.sentencepiece_models import CORPUS, texts
from transduce.errors import SettingsError
from transduce.interop.export_model import export_tokenizers
from transduce.interop.huggingface.folder import HuggingFaceFolder
from transduce.interop.huggingface.tokenizer import import_tokenizers
from transduce.text.tokenizer.special import KINDS
from transduce.text.tokenizer.tokenizer import Tokenizer, TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer


def ours(kind: str, lowercase: bool = False) -> Tokenizer:
    return train_tokenizer(kind, CORPUS * 2, TokenizerConfig(vocab_size=500, lowercase=lowercase, min_frequency=1))


def new(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_transformers_gives_the_tokens_and_texts_of_ours(kind: str, lowercase: bool, tmp_path: Path) -> None:
    tokenizer = ours(kind, lowercase)
    export_tokenizers(tokenizer, tokenizer, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
    }
    for theirs in (
        transformers.AutoTokenizer.from_pretrained(tmp_path),
        transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path),
    ):
        assert len(theirs) == tokenizer.size
        assert (theirs.pad_token_id, theirs.bos_token_id, theirs.eos_token_id) == tokenizer.specials
        for text in [*texts(60), "e\u0301", "</s><s><pad><unk> \\<unk>"]:
            tokens = [*tokenizer.encode(text), tokenizer.end]
            assert theirs(text)["input_ids"] == tokens, ascii(text)
            assert theirs.decode(tokens, skip_special_tokens=True) == tokenizer.decode(tokens), ascii(text)


@pytest.mark.parametrize("model_type", ["marian", "m2m_100", "pegasus", "t5", "gpt2", "llama", "bert"])
def test_it_is_loaded_beside_whichever_model(model_type: str, tmp_path: Path) -> None:
    tokenizer = ours("bpe")
    export_tokenizers(tokenizer, tokenizer, tmp_path)
    put(tmp_path, config__json={"model_type": model_type, "vocab_size": tokenizer.size})
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in CORPUS:
        assert theirs(text)["input_ids"] == [*tokenizer.encode(text), tokenizer.end]


def test_two_tokenizers_stand_in_two_folders_and_come_back(tmp_path: Path) -> None:
    source, target = ours("unigram"), ours("word")
    export_tokenizers(source, target, tmp_path)
    put(tmp_path, config__json={"model_type": "marian", "vocab_size": source.size, "decoder_vocab_size": target.size})
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path, subfolder="target_tokenizer")
    again = import_tokenizers(HuggingFaceFolder(tmp_path))
    for text in CORPUS:
        assert theirs(text)["input_ids"] == [*target.encode(text), target.end]
    for text in texts(60):
        for one, other in zip(again, (source, target), strict=True):
            assert one.encode(text) == other.encode(text), ascii(text)
            assert one.decode(one.encode(text)) == other.decode(other.encode(text))
    assert [one.size for one in again] == [source.size, target.size]


@pytest.mark.parametrize("name", FAMILIES)
def test_imported_ones_are_written_as_the_files_that_they_came_from(name: str, tmp_path: Path) -> None:
    origin = FAMILIES[name](tmp_path / "origin")
    tokenizers = import_tokenizers(HuggingFaceFolder(origin))
    export_tokenizers(*tokenizers, new(tmp_path / "copy"))
    made = {"vocab.txt", "merges.txt"} & {path.name for path in origin.iterdir()}
    expected = {path.name for path in origin.iterdir()} - {"config.json"}
    expected = (expected - made - {"vocab.json"}) | {"tokenizer.json"} if made else expected
    assert {path.name for path in (tmp_path / "copy").iterdir()} == expected
    for path in (tmp_path / "copy").iterdir():
        if path.suffix != ".json":
            assert path.read_bytes() == (origin / path.name).read_bytes()
        elif (origin / path.name).exists():
            assert json.loads(path.read_bytes()) == json.loads((origin / path.name).read_bytes())
    put(tmp_path / "copy", config__json=json.loads((origin / "config.json").read_bytes()))
    again = import_tokenizers(HuggingFaceFolder(tmp_path / "copy"))
    assert [one.encode_batch(texts()) for one in again] == [one.encode_batch(texts()) for one in tokenizers]


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in WITHOUT_TRANSFORMERS])
def test_transformers_loads_what_was_imported(name: str, tmp_path: Path) -> None:
    origin = FAMILIES[name](tmp_path / "origin")
    source, target = import_tokenizers(HuggingFaceFolder(origin))
    export_tokenizers(source, target, new(tmp_path / "copy"))
    put(tmp_path / "copy", config__json=json.loads((origin / "config.json").read_bytes()))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "copy")
    for text in CORPUS:
        tokens = source.encode_with_specials(text)
        assert theirs(text, split_special_tokens=True)["input_ids"] == tokens
        written = target.encode_with_specials(text)
        assert theirs.decode(written, skip_special_tokens=True) == target.decode(written)


def test_kinds_that_have_no_files_together_are_rejected(tmp_path: Path) -> None:
    marian, _ = import_tokenizers(HuggingFaceFolder(FAMILIES["marian"](tmp_path / "marian")))
    with pytest.raises(SettingsError, match="exported together"):
        export_tokenizers(marian, ours("bpe"), tmp_path)
