"""`tokenizer.json`: the same after every round, the same for Hugging Face, and refused when it is not ours."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transduce.errors import CannotCreate, MissingInput, ModelFolderError
from transduce.text.tokenizer.special import KINDS
from transduce.text.tokenizer.tokenizer import Tokenizer, TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer

TEXTS = [
    "the cat sat on the mat, and the dog sat on the cat.",
    "Die Größe der Städte wächst, und die Flüsse werden größer.",
    "東京は日本の首都です。नमस्ते दुनिया",
]


@functools.cache
def trained(kind: str, lowercase: bool = False) -> Tokenizer:
    return train_tokenizer(kind, TEXTS * 3, TokenizerConfig(vocab_size=401, lowercase=lowercase))


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_save_load_save_is_the_same_file_and_tokenizer(tmp_path, kind, lowercase):
    tokenizer = trained(kind, lowercase)
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "tokenizer.json").read_bytes() == (tmp_path / "again.json").read_bytes()
    for name in ("kind", "size", "pad", "start", "end", "unknown"):
        assert getattr(loaded, name) == getattr(tokenizer, name)
    for text in [*TEXTS, "</s> <s> never seen: Ж  ", ""]:
        assert loaded.encode(text) == tokenizer.encode(text)
        assert loaded.decode(loaded.encode(text)) == tokenizer.decode(tokenizer.encode(text))
        assert loaded.pieces(loaded.encode(text)) == tokenizer.pieces(tokenizer.encode(text))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.json", "tokenizer.json"]


@pytest.mark.parametrize("kind", KINDS)
def test_hugging_face_reads_the_file_and_gives_the_same_tokens(tmp_path, kind):
    transformers = pytest.importorskip("transformers", reason="needs transformers; install the extra 'dev'")
    trained(kind).save(tmp_path / "tokenizer.json")
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    assert len(theirs) == trained(kind).size
    for text in [*TEXTS, "never seen: Ж  ", "  spaces  ", ""]:
        assert theirs(text)["input_ids"] == trained(kind).encode(text)
    assert theirs.convert_tokens_to_ids(["<pad>", "<s>", "</s>"]) == [0, 1, 2]


def changed(kind: str, change: Callable[[dict[str, Any]], object]) -> str:
    content = json.loads(trained(kind).to_json())
    change(content)
    return json.dumps(content)


def without(word: str) -> Callable[[dict[str, Any]], object]:
    """Take a word out of a vocabulary and close the gap."""

    def change(content: dict[str, Any]) -> None:
        words = [known for known in content["model"]["vocab"] if known != word]
        content["model"]["vocab"] = {known: token for token, known in enumerate(words)}

    return change


ADDED = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}

BAD = {
    "nothing": lambda: "",
    "a list": lambda: "[]",
    "null": lambda: "null",
    "another json": lambda: '{"model": {"type": "transformer"}}',
    "endless depth": lambda: '{"model":' * 100_000,
    "a cut file": lambda: trained("bpe").to_json()[:-59],
    "a lone surrogate": lambda: '{"model": {"type": "\ud800"}}',
    "another version": lambda: changed("bpe", lambda file: file.update(version="7.0")),
    "no space put first": lambda: changed("bpe", lambda file: file.update(normalizer=None)),
    "no bytes made": lambda: changed("bpe", lambda file: file.update(pre_tokenizer=None)),
    "no text made": lambda: changed("unigram", lambda file: file.update(decoder=None)),
    "a foreign decoder": lambda: changed("bpe", lambda file: file.update(decoder={"type": "Foreign"})),
    "a hole in the tokens": lambda: changed("bpe", lambda file: file["model"]["vocab"].update({"zz": 10**6})),
    "a token twice": lambda: changed("bpe", lambda file: file["model"]["vocab"].update({"!": 4})),
    "a token below zero": lambda: changed("bpe", lambda file: file["model"]["vocab"].update({"!": -4})),
    "a piece twice": lambda: changed("unigram", lambda file: file["model"]["vocab"].append(["!", -3.0])),
    "a merge of unknowns": lambda: changed("bpe", lambda file: file["model"].update(merges=[["q", "zzz"]])),
    "chance": lambda: changed("bpe", lambda file: file["model"].update(dropout=0.5)),
    "cutting": lambda: changed(
        "bpe", lambda file: file.update(truncation={"max_length": 7, "strategy": "LongestFirst"})
    ),
    "adding": lambda: changed("bpe", lambda file: file.update(post_processor={"type": "ByteLevel"})),
    "no specials": lambda: changed("bpe", lambda file: file.update(added_tokens=[])),
    "one more added": lambda: changed(
        "bpe", lambda file: file["added_tokens"].append({"id": 9, "content": "q", **ADDED})
    ),
    "a broken pattern": lambda: changed("word", lambda file: file["pre_tokenizer"].update(pattern={"Regex": "(("})),
    "a byte missing": lambda: changed("byte", without("Ā")),
    "a byte fallback missing": lambda: changed("character", without("<0x7F>")),
    "no unknown word": lambda: changed("word", lambda file: file["model"].update(unk_token="[UNK]")),
    "unlike the kind": lambda: changed("bpe", lambda file: file["model"].update(type="WordLevel", unk_token="<unk>")),
}


@pytest.mark.parametrize("name", BAD)
def test_a_damaged_or_foreign_file_is_rejected_with_one_sentence(name):
    with pytest.raises(ModelFolderError) as refusal:
        Tokenizer.from_json(BAD[name](), "runs/copy/tokenizer.json")
    assert str(refusal.value).startswith("runs/copy/tokenizer.json: is not a tokenizer trained by transduce (")
    assert "\n" not in str(refusal.value) and len(str(refusal.value)) < 400


def test_the_table_of_damage_starts_from_sound_files():
    for kind in KINDS:
        assert Tokenizer.from_json(changed(kind, lambda file: None), "sound").to_json() == trained(kind).to_json()


def test_a_file_that_is_no_text_or_too_large_is_rejected(tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(b"\x89PNG\xff")
    with pytest.raises(ModelFolderError, match=r"tokenizer\.json: is not a tokenizer"):
        Tokenizer.load(tmp_path / "tokenizer.json")
    with (tmp_path / "large.json").open("wb") as sparse:
        sparse.truncate(10**10)
    with pytest.raises(ModelFolderError, match=r"large\.json: is larger than"):
        Tokenizer.load(tmp_path / "large.json")


def test_a_missing_file_is_missing_input(tmp_path):
    with pytest.raises(MissingInput, match="cannot be read"):
        Tokenizer.load(tmp_path / "nowhere.json")
    with pytest.raises(ModelFolderError, match="is not a regular file"):
        Tokenizer.load(tmp_path)


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    for path in (tmp_path / "folder", tmp_path / "file" / "tokenizer.json"):
        with pytest.raises(CannotCreate, match=str(path)):
            trained("byte").save(path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_saving_replaces_what_was_there(tmp_path):
    path = Path(tmp_path / "tokenizer.json")
    trained("byte").save(path)
    trained("word").save(path)
    assert Tokenizer.load(path).kind == "word"
